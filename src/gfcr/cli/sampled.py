"""Rollouts of one task on the terminal and as JSON.

Invariants: what rollouts share is shown once; every piece of text says who wrote it, in words and not in colour alone; a number that
is not known is a dash, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from gfcr.report.samples import worth
from gfcr.run.one_task import Sampled
from gfcr.types import Member, Node, Role, Segment, SegmentKind

Decode = Callable[[np.ndarray], str]
STYLES = {
    SegmentKind.PROMPT: "dim",
    SegmentKind.ACTION: "green",
    SegmentKind.OBSERVATION: "cyan",
    SegmentKind.GUIDANCE: "magenta",
    SegmentKind.FORCED: "yellow",
    SegmentKind.DEMO: "blue",
}

OUTCOMES: dict[bool | None, tuple[str, str]] = {
    True: ("right", "bold green"),
    False: ("wrong", "bold red"),
    None: ("unscored", "bold yellow"),
}


def show(console: Console, found: Sampled, decode: Decode, tokens: bool) -> None:
    """The tree of a task's rollouts, and what they cost."""
    group = found.group
    members = list(group.members.values())
    tree = Tree(Text(f"task {group.task.id[:12]}  {group.task.category}", style="bold"))
    _branches(tree, [(m, m.rollout.path) for m in members], decode, tokens)
    console.print(tree)
    right, wrong = group.outcomes()
    helped = [m for m in members if not m.fresh]
    others = f", and {sum(m.signals.correct is True for m in helped)} of {len(helped)} with help right" if helped else ""
    reason = f" ({group.reason})" if group.reason else ""
    console.print(f"{right} of {right + wrong} judged right{others}; group {group.state}{reason}", markup=False, soft_wrap=True)
    console.print(_cost(found), markup=False, soft_wrap=True)


def as_data(found: Sampled, decode: Decode, tokens: bool) -> dict[str, Any]:
    """The same as JSON data; nodes are shared by id."""
    group = found.group
    nodes = {n.id: n for m in group.members.values() for n in m.rollout.path}
    return {
        "task": {"id": group.task.id, "category": group.task.category},
        "state": str(group.state),
        "reason": group.reason,
        "nodes": [_node(n, decode, tokens) for n in nodes.values()],
        "rollouts": [_rollout(m) for m in group.members.values()],
        "decisions": [{"slot": d.slot, "subject": d.subject, "action": d.action, "reason": d.reason} for d in found.decisions],
        "cost": {
            "decoded": found.usage.decoded,
            "prefilled": found.usage.prefilled,
            "cached": found.usage.cached,
            "scored": found.usage.scored,
            "spilled": found.spilled,
            "seconds": round(found.seconds, 3),
        },
    }


def _branches(tree: Tree, rows: Sequence[tuple[Member, Sequence[Node]]], decode: Decode, tokens: bool) -> None:
    """Rows that begin with the same node go through one branch; a chain of one row needs no branch of its own."""
    by_node: dict[str, list[tuple[Member, Sequence[Node]]]] = {}
    for member, path in rows:
        if path:
            by_node.setdefault(path[0].id, []).append((member, path))
        else:
            tree.add(_leaf(member))
    for inside in by_node.values():
        first = inside[0][1][0]
        branch = tree.add(_said(first.segment, decode, tokens))
        rest = [(member, path[1:]) for member, path in inside]
        while len(rest) == 1 and rest[0][1]:
            branch.add(_said(rest[0][1][0].segment, decode, tokens))
            rest = [(rest[0][0], rest[0][1][1:])]
        _branches(branch, rest, decode, tokens)


def _said(segment: Segment, decode: Decode, tokens: bool) -> Text:
    who = "policy" if segment.kind is SegmentKind.ACTION and segment.author in ("", "policy") else str(segment.kind)
    who += f" {segment.author}" if segment.kind is SegmentKind.ACTION and segment.author not in ("", "policy") else ""
    style = STYLES[segment.kind]
    text = Text(f"{who:<12}", style="bold " + style)
    if not tokens or segment.logprobs is None:
        return text.append(decode(segment.ids), style="not bold " + style)
    for i, logprob in zip(segment.ids, segment.logprobs):
        text.append(decode(np.asarray([i])), style="not bold " + style).append(f"{logprob:+.2f} ", style="not bold dim")
    return text


def _leaf(member: Member) -> Text:
    signals, rollout = member.signals, member.rollout
    verdict = signals.verdict
    outcome, style = OUTCOMES[signals.correct]
    text = Text(outcome, style=style)
    facts = [f"reward {'–' if signals.reward is None else format(signals.reward, 'g')}"]
    facts.append(f"advantage {'–' if member.credit is None else worth(member.credit)}")
    facts.append(f"{rollout.response_length} tokens, ended by {str(rollout.stop).replace('_', ' ')}")
    logprob = _logprob(member)
    facts.append(f"log-probability {'–' if logprob is None else format(logprob, '.2f')}")
    if member.role is not Role.FRESH:
        facts.append(str(member.role))
    if member.drop is not None:
        facts.append(f"dropped: {str(member.drop).replace('_', ' ')}")
    if verdict is not None and verdict.evidence:
        facts.append(f"{verdict.verifier}: {verdict.evidence}")
    return text.append("  " + "; ".join(facts), style="not bold default")


def _logprob(member: Member) -> float | None:
    """Of all the policy wrote; None where it is not known."""
    parts = [s.logprobs for s in member.rollout.actions()]
    if not parts or any(p is None for p in parts):
        return None
    return float(sum(np.sum(p) for p in parts if p is not None))


def _cost(found: Sampled) -> str:
    usage, leaves = found.usage, len(found.group.members)
    each = f" ({usage.decoded / leaves:.1f} a rollout)" if leaves else ""
    spilled = "".join(f", {n} of them {reason.replace('_', ' ')}" for reason, n in found.spilled.items())
    return (
        f"decoded {usage.decoded} tokens{each}{spilled}; context: {usage.prefilled} computed, {usage.cached} reused; "
        f"scored {usage.scored}; {found.seconds:.2f} s"
    )


def _node(node: Node, decode: Decode, tokens: bool) -> dict[str, Any]:
    segment = node.segment
    more: dict[str, Any] = {}
    if tokens:
        more["ids"] = segment.ids.tolist()
        more["logprobs"] = None if segment.logprobs is None else segment.logprobs.tolist()
    return {
        "id": node.id,
        "parent": node.parent,
        "kind": str(segment.kind),
        "author": segment.author,
        "turn": segment.turn,
        "tokens": len(segment),
        "text": decode(segment.ids),
        **more,
    }


def _rollout(member: Member) -> dict[str, Any]:
    signals, rollout = member.signals, member.rollout
    return {
        "id": rollout.id,
        "path": [n.id for n in rollout.path],
        "role": str(member.role),
        "stop": str(rollout.stop),
        "correct": signals.correct,
        "reward": signals.reward,
        "advantage": None if member.credit is None else worth(member.credit),
        "logprob": _logprob(member),
        "drop": None if member.drop is None else str(member.drop),
        "verdicts": {
            name: {"status": str(v.status), "correct": v.correct, "evidence": v.evidence}
            for name, v in signals.verdicts.items()
        },
        "decoded": rollout.cost.generated,
    }
