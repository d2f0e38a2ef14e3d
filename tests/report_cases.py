"""Run directories without a model: rows, groups and decisions as a session would commit them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import group_cases
from gfcr.recipe import Recipe, parse
from gfcr.run.directory import RunDirectory, StepRecord
from gfcr.types import Credit, Decision, Drop, Group, GroupState, Member, Role, SegmentKind, Signals, Status, Task, Verdict

EVIL = "<script>alert(1)</script>"


def recipe(**sections: Any) -> Recipe:
    return parse({"name": "case", "budget": {"tokens": 1000}, **sections})


def row(step: int, tokens: int, accuracy: float | None = None, ended: str | None = None, **more: Any) -> dict[str, Any]:
    """A metrics row as the session writes it; half of the tokens are discarded."""
    shares = dict.fromkeys(
        ("share_all_wrong", "share_mixed", "share_all_right", "share_unscored", "reward_mean"), 0.25 if step else None
    )
    return {
        "step": step,
        **shares,
        "response_length_mean": 5.0 if step else None,
        "response_length_p90": 9.0 if step else None,
        "entropy_mean": 0.5 if step else None,
        "groups_trained": int(step > 0),
        "injected": int(step == 2),
        "heldout_accuracy": accuracy,
        "heldout_greedy": accuracy,
        "ended": ended,
        "tokens_generated": tokens,
        "tokens_discarded": tokens // 2,
        "seconds": float(step + 1),
        "tokens_prefilled": 10 * step,
        "tokens_cached": 70 * step,
        "tokens_scored": 0,
        "tokens_trained": tokens,
        "tokens_evaluated": 100,
        "discarded_by_reason": {"zero_variance": tokens // 2} if tokens else {},
        "stops": {"eos": 3, "max_tokens": 1} if step else {},
        "drops": {},
        **more,
    }


def member(
    name: str, right: bool, role: Role = Role.FRESH, advantage: float | np.ndarray | None = 0.5, evidence: str = "why"
) -> Member:
    prompt, answer = group_cases.plain(SegmentKind.PROMPT, 2), group_cases.action(3, tracks={"entropy": np.full(3, 0.4)})
    signals = Signals(
        {"v": Verdict("v", "1", Status.SCORED, float(right), right, evidence)}, "v", {"v": float(right)}, float(right)
    )
    credit = None if advantage is None else Credit(advantage)
    return Member(
        group_cases.rollout(name, prompt, answer),
        role,
        signals=signals,
        credit=credit,
        drop=Drop.REPLACED if advantage is None else None,
    )


def group(name: str, members: Sequence[Member], prompt: str = "a+?11") -> Group:
    return Group(
        name,
        Task("test", prompt, {"final": "21"}, category="L1"),
        1,
        0,
        state=GroupState.CLOSED,
        members={m.rollout.id: m for m in members},
    )


def write_run(path: Path, rows: Sequence[dict[str, Any]], of: Recipe | None = None, seed: int = 0, evil: str = "") -> Path:
    """A run directory with these rows; steps have a mixed group, step 2 one with an injected answer."""
    of = of or recipe()
    stored = {"recipe": of.frozen(), "seed": seed, "hash": of.hash()}
    with RunDirectory.create(path, stored, {"torch": "0", "cpu": evil or "none"}) as run:
        for one in rows:
            step = one["step"]
            groups = (
                []
                if not step
                else [
                    group(
                        f"g{step}",
                        [
                            member(f"r{step}", True, evidence=evil or "equal"),
                            member(f"w{step}", False, advantage=None if step == 2 else np.full(5, -0.5, np.float32)),
                            *([member(f"i{step}", True, Role.INJECTED)] if step == 2 else []),
                        ],
                        prompt=f"a+?1{step}{evil}",
                    )
                ]
            )
            decisions = [Decision("select", f"t{step}", "open", f"epoch {step} {evil}")] if step else []
            run.commit(StepRecord(step, step, step, groups=groups, decisions=decisions, metrics=one, state={}))
    return path


def finished_rows(final: float = 0.75, start: float = 0.25) -> list[dict[str, Any]]:
    return [row(0, 0, start), row(1, 400), row(2, 800, final, "budget")]
