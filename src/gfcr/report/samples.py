"""Sample rollouts with what every token got.

Invariants: chosen by a fixed rule (first, middle, last step; the first mixed group; its first right and first wrong answer; the
last step with an injected one), never by how good they look; a token without a log-probability or an advantage says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np

from gfcr.errors import GfcrError
from gfcr.run.directory import RunDirectory
from gfcr.types import Credit, Group, Member, PartKind, Role, SegmentKind, Task

LONGEST = 1500
"""Tokens shown of one rollout; the middle of longer ones is left out."""

Decode = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Token:
    """One token as the page shows it."""

    text: str
    kind: str
    """`prompt`, `action` or another segment kind."""
    surprise: str
    """0..1 as CSS number: how unlikely it was (1 = 1 % or less); empty without a log-probability."""
    credit: str
    """-1..1 as CSS number: its advantage over the largest one of this page; empty without one."""
    hover: str
    gap: bool = False
    """Tokens before it were left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One member as the page shows it."""

    title: str
    outcome: str
    """`right`, `wrong`, `unscored`."""
    facts: Sequence[tuple[str, str]]
    tokens: Sequence[Token]


@dataclass(frozen=True, slots=True)
class SampleGroup:
    step: int
    task: str
    category: str
    reference: str
    composition: str
    samples: Sequence[Sample]


def choose(run: RunDirectory, rows: Sequence[dict[str, Any]]) -> list[SampleGroup]:
    """Groups of the first, a middle and the last step, and the last one with an injected answer."""
    trained = [row["step"] for row in rows if row.get("groups_trained")]
    steps = sorted({trained[0], trained[len(trained) // 2], trained[-1]}) if trained else []
    decode = _decoder(run)
    chosen = [(step, group) for step in steps if (group := _mixed(run.groups(step)))]
    injected = [row["step"] for row in rows if row.get("injected")]
    for step in injected[-1:]:
        found = next((g for g in run.groups(step) if any(m.role is Role.INJECTED for m in g.members.values())), None)
        chosen += [(step, found)] if found else []
    largest = max((_largest(group) for _, group in chosen), default=1.0) or 1.0
    return [_group(step, group, decode, largest) for step, group in chosen]


def _mixed(groups: Sequence[Group]) -> Group | None:
    """The first mixed group that was trained on, else the first with any member."""
    mixed = [g for g in groups if g.composition == "mixed" and any(m.credit for m in g.members.values())]
    return next(iter([*mixed, *(g for g in groups if g.members)]), None)


def _group(step: int, group: Group, decode: Decode, largest: float) -> SampleGroup:
    members = list(group.members.values())
    picked = [next((m for m in members if m.fresh and m.signals.correct is wanted), None) for wanted in (True, False)]
    injected = [m for m in members if m.role in (Role.INJECTED, Role.REPLAYED)][:1]
    right, wrong = group.outcomes()
    return SampleGroup(
        step,
        prompt_text(group.task),
        group.task.category,
        _reference(group.task.reference),
        f"{right} of {right + wrong} right" + (", one injected" if injected else ""),
        [_sample(m, decode, largest) for m in [*picked, *injected] if m is not None],
    )


def _reference(reference: Any) -> str:
    if isinstance(reference, dict):
        return str(reference.get("final", reference))
    return "" if reference is None else str(reference)


def _sample(member: Member, decode: Decode, largest: float) -> Sample:
    rollout, signals = member.rollout, member.signals
    outcome = {True: "right", False: "wrong", None: "unscored"}[signals.correct]
    credit = member.credit
    advantage = "none: not in the loss" if credit is None else worth(credit)
    verdict = signals.verdict
    facts = [
        ("reward", "–" if signals.reward is None else f"{signals.reward:g}"),
        ("advantage", advantage),
        ("length", f"{rollout.response_length} tokens"),
        ("stopped by", str(rollout.stop).replace("_", " ")),
    ]
    if verdict and verdict.evidence:
        facts.append((verdict.verifier, verdict.evidence))
    if member.drop:
        facts.append(("dropped", str(member.drop).replace("_", " ")))
    title = {Role.FRESH: "", Role.RESUMED: "resumed"}.get(member.role, str(member.role))
    return Sample(f"{outcome}{', ' + title if title else ''}", outcome, facts, _tokens(member, decode, largest))


def worth(credit: Credit) -> str:
    """A credit in a few words."""
    if credit.rewards is not None:
        return f"by the critic, from rewards of {float(np.sum(credit.rewards)):+.3f}"
    if credit.advantage is None:
        return f"none: cross-entropy weight {credit.ce_weight:g}" if credit.ce_weight else "none: in preference pairs"
    if isinstance(credit.advantage, np.ndarray):
        return f"{float(np.min(credit.advantage)):+.3f} to {float(np.max(credit.advantage)):+.3f}"
    return f"{credit.advantage:+.3f}"


def _tokens(member: Member, decode: Decode, largest: float) -> list[Token]:
    path = member.rollout.trained_path
    advantages = _advantages(member)
    out: list[Token] = []
    offset = 0
    for node in path:
        segment = node.segment
        for i, token in enumerate(segment.ids.tolist()):
            logp = None if segment.logprobs is None else float(segment.logprobs[i])
            entropy = float(segment.tracks["entropy"][i]) if "entropy" in segment.tracks else None
            advantage = advantages[offset + i] if segment.kind is SegmentKind.ACTION and advantages is not None else None
            hover = [str(segment.kind)] if logp is None else [f"log p {logp:.3f} (p {exp(min(logp, 0.0)):.3f})"]
            if advantage is not None:
                hover.append(f"advantage {advantage:+.3f}")
            if entropy is not None and entropy == entropy:
                hover.append(f"entropy {entropy:.2f} nats")
            if segment.version is not None:
                hover.append(f"weights {segment.version}")
            out.append(
                Token(
                    decode(token),
                    str(segment.kind),
                    "" if logp is None or logp != logp else f"{min(1.0, max(0.0, -logp / 4.6)):.3f}",
                    "" if advantage is None or advantage != advantage else f"{max(-1.0, min(1.0, advantage / largest)):.3f}",
                    " · ".join(hover),
                )
            )
        offset += len(segment)
    if len(out) <= LONGEST:
        return out
    tail = out[-LONGEST // 2 :]
    first = Token(tail[0].text, tail[0].kind, tail[0].surprise, tail[0].credit, tail[0].hover, gap=True)
    return [*out[: LONGEST // 2], first, *tail[1:]]


def _advantages(member: Member) -> np.ndarray | None:
    """float[n] over the trained path; None for a member without an advantage of its own."""
    if member.credit is None or member.credit.advantage is None:
        return None
    length = sum(len(n.segment) for n in member.rollout.trained_path)
    return np.broadcast_to(np.asarray(member.credit.advantage, float), (length,))


def _largest(group: Group) -> float:
    given = [m.credit.advantage for m in group.members.values() if m.credit is not None]
    return max((float(np.max(np.abs(a))) for a in given if a is not None), default=0.0)


def _decoder(run: RunDirectory) -> Decode:
    """Token id -> text, by the run's own tokenizer; the bare id where that is gone."""
    tokenizer = tokenizer_of(run)
    if tokenizer is None:
        return lambda token: f"‹{token}›"
    cache: dict[int, str] = {}

    def decode(token: int) -> str:
        if token not in cache:
            text = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
            cache[token] = text.replace("\n", "↵\n").replace("\t", "⇥") or "∅"
        return cache[token]

    return decode


def tokenizer_of(run: RunDirectory) -> Any:
    """The tokenizer the run used; None where it is gone."""
    from gfcr.build import model_path
    from gfcr.engine.models import load_tokenizer

    try:
        return load_tokenizer(model_path(run.recipe["recipe"]["model"]["path"]))
    except (GfcrError, ImportError, KeyError):
        return None


def prompt_text(task: Task) -> str:
    """A task's prompt as text; chat messages with their roles."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(f"{m.role}: " + "".join(p.text or "" for p in m.parts if p.kind is PartKind.TEXT) for m in task.prompt)
