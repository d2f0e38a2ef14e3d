"""One metrics row per step. Invariants: counters are cumulative; a mean over nothing is None, never 0; shares are over
completed groups and read fresh members only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gfcr.control.spread import spread
from gfcr.filter.credit.gigpo import share_alone
from gfcr.filter.steps import has_wrong_step
from gfcr.generate.guidance.solutions import AUTHOR as SOLUTION
from gfcr.run.ledger import Ledger
from gfcr.run.sampling_metrics import sampling_metrics
from gfcr.types import Decision, Drop, Group, GroupState, LossRole, Member, Role, SegmentKind, Status, StopReason


def step_metrics(groups: Sequence[Group], decisions: Sequence[Decision]) -> dict[str, Any]:
    """What one round's groups say; None where there is nothing to average."""
    closed = [g for g in groups if g.state is GroupState.CLOSED]
    members = [m for g in closed for m in g.fresh()]
    kinds = Counter(g.composition for g in closed)
    rewards = [m.signals.reward for m in members if m.signals.reward is not None]
    actions = [[n.segment for n in m.rollout.path if n.segment.kind is SegmentKind.ACTION] for m in members]
    lengths = [sum([len(s.ids) for s in own]) for own in actions]
    entropies = [s.tracks["entropy"] for own in actions for s in own if "entropy" in s.tracks]
    entropy = np.concatenate(entropies) if entropies else np.empty(0, np.float32)
    statuses = Counter(m.signals.status for m in members)
    count = Counter(f"{d.slot}:{d.action}" for d in decisions)
    return {
        "reward_mean": _mean(rewards),
        "reward_std_in_groups": _mean([s for g in closed if (s := spread(g)) is not None]),
        "share_all_wrong": _share(kinds["all_wrong"], len(closed)),
        "share_mixed": _share(kinds["mixed"], len(closed)),
        "share_all_right": _share(kinds["all_right"], len(closed)),
        "share_unscored": _share(kinds["unscored"], len(closed)),
        "response_length_mean": _mean(lengths),
        "response_length_p90": float(np.percentile(lengths, 90)) if lengths else None,
        "entropy_mean": float(np.nanmean(entropy)) if len(entropy) else None,
        **sampling_metrics(closed),
        "share_truncated": _share(sum(m.rollout.stop.truncated for m in members), len(members)),
        "share_invalid": _share(statuses[Status.INVALID], len(members)),
        "share_unscorable": _share(statuses[Status.UNSCORABLE], len(members)),
        "share_right_with_wrong_step": _mean(
            [wrong for m in members if m.signals.correct and (wrong := has_wrong_step(m)) is not None]
        ),
        "share_turns_alone": share_alone(closed),
        "groups": len(groups),
        "groups_trained": sum(any(m.credit is not None for m in g.members.values()) for g in closed),
        "groups_abandoned": sum(g.state is GroupState.ABANDONED for g in groups),
        "abandoned_by_reason": dict(Counter(g.reason.split(":")[0] for g in groups if g.state is GroupState.ABANDONED)),
        "rollouts": len(members),
        "guided": sum(m.role is Role.GUIDED for g in closed for m in g.members.values()),
        "share_guided": _share(sum(any(m.role is Role.GUIDED for m in g.members.values()) for g in closed), len(closed)),
        "guided_right": _mean(
            [c for g in closed for m in g.members.values() if m.role is Role.GUIDED and (c := m.signals.correct) is not None]
        ),
        "privileged": sum(_privileged(m) for g in closed for m in g.members.values()),
        "injected": sum(m.role in (Role.INJECTED, Role.DEMO) for g in closed for m in g.members.values()),
        "refills": count["refill:open"],
        "retries": count["round:retry"],
        "stored": count["store:keep"],
        "merged": count["topology:merge"],
    }


def _privileged(member: Member) -> bool:
    """Whether its context or its tokens hold a part of the task's solution."""
    authors = {node.segment.author for node in member.rollout.path}
    return any(author.partition(":")[0] == SOLUTION for author in authors)


def parked_metrics(groups: Sequence[Group], number: int, version: int) -> dict[str, Any]:
    """What waits and what came late in round `number`; nothing where nothing does. `version`: the weights in use.

    `age_of_groups`: rounds since they were opened -> completed groups. `length_by_round`: round opened -> mean answer length, in
    tokens. `share_off_policy`: tokens of earlier weights among those in the loss.
    """
    parked = [g for g in groups if g.state is GroupState.PARKED]
    closed = [g for g in groups if g.state is GroupState.CLOSED]
    stale = sum(m.drop is Drop.STALE for g in groups for m in g.members.values())
    if not parked and not stale and all(g.round == number for g in closed):
        return {}
    trained = [
        (len(n.segment), n.segment.version is not None and n.segment.version < version)
        for g in closed
        for m in g.members.values()
        if m.sampled and m.in_loss and m.credit is not None
        for n in m.rollout.trained_path
        if n.segment.role is LossRole.RL
    ]
    lengths: dict[int, list[int]] = {}
    for group in closed:
        lengths.setdefault(group.round, []).extend(m.rollout.response_length for m in group.members.values() if m.sampled)
    return {
        "groups_parked": len(parked),
        "rollouts_parked": sum(m.rollout.stop is StopReason.PARKED for g in parked for m in g.members.values()),
        "rollouts_resumed": sum(m.role is Role.RESUMED for g in closed for m in g.members.values()),
        "rollouts_stale": stale,
        "age_of_groups": {str(age): n for age, n in sorted(Counter(number - g.round for g in closed).items())},
        "length_by_round": {str(opened): _mean(found) for opened, found in sorted(lengths.items())},
        "share_off_policy": _share(sum(n for n, old in trained if old), sum(n for n, _ in trained)),
    }


def ledger_metrics(ledger: Ledger, seconds: float) -> dict[str, Any]:
    """Cumulative counters."""
    total = ledger.total
    return {
        "tokens_generated": total.generated,
        "tokens_discarded": total.discarded,
        "tokens_parked": ledger.parked,
        "seconds": round(seconds, 3),
        "tokens_prefilled": total.prefilled,
        "tokens_cached": total.cached,
        "tokens_scored": total.scored,
        "tokens_trained": total.trained,
        "tokens_evaluated": total.evaluated,
        "tokens_judged": total.judged,
        "discarded_by_reason": {reason: n for reason, n in ledger.discarded.items() if n},
        "env_steps": total.env_steps,
        "env_steps_lost": dict(ledger.lost_steps),
        "tool_seconds": round(total.tool_seconds, 3),
        "stops": dict(ledger.stops),
        "drops": dict(ledger.drops),
        **ledger.judging.metrics(),
        **ledger.judging.use_metrics(),
    }


EMPTY = ("reward_mean", "share_all_wrong", "share_mixed", "share_all_right", "response_length_mean", "entropy_mean")
"""Keys that row 0 has as null."""


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
