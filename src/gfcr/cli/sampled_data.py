"""Rollouts of one task as JSON. Invariants: nodes are shared by id; a number that is not known is null, never 0; costs of rollouts and of
what was spilled add up to the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gfcr.report.samples import worth
from gfcr.run.one_task import Sampled
from gfcr.types import Cost, Member, Node, Segment

Decode = Callable[[np.ndarray], str]


def as_data(found: Sampled, decode: Decode, tokens: bool) -> dict[str, Any]:
    """Task, nodes, rollouts, decisions and cost. `tokens`: ids and log-probabilities of every node too."""
    group = found.group
    nodes = {n.id: n for m in group.members.values() for n in m.rollout.path}
    return {
        "task": {"id": group.task.id, "category": group.task.category, "reference": group.task.reference},
        "step": found.standing.step,
        "state": str(group.state),
        "reason": group.reason,
        "nodes": [_node(n, decode, tokens) for n in nodes.values()],
        "rollouts": [_rollout(m) for m in group.members.values()],
        "decisions": [{"slot": d.slot, "subject": d.subject, "action": d.action, "reason": d.reason} for d in found.decisions],
        "cost": _cost(found),
    }


def _cost(found: Sampled) -> dict[str, Any]:
    ledger = found.ledger
    total, spilled = ledger.total, found.spilled_context
    return {
        "decoded": total.generated,
        "trained_on": total.generated - total.discarded - ledger.parked,
        "discarded": dict(ledger.discarded),
        "parked": ledger.parked,
        "prefilled": total.prefilled,
        "cached": total.cached,
        "scored": total.scored,
        "judged": total.judged,
        "env_steps": total.env_steps,
        "tool_seconds": round(found.tool_seconds, 4),
        "verifiers": {
            name: {"calls": use.calls, "seconds": round(use.seconds, 4), "tokens": use.tokens}
            for name, use in ledger.judging.use.items()
        },
        "engine": {name: getattr(found.usage, name) for name in ("decoded", "prefilled", "cached", "scored")},
        "spilled": {**found.spilled},
        "spilled_context": {"prefilled": spilled.prefilled, "cached": spilled.cached},
        "seconds": round(found.seconds, 3),
    }


def _node(node: Node, decode: Decode, tokens: bool) -> dict[str, Any]:
    segment = node.segment
    more: dict[str, Any] = {}
    if tokens:
        more["ids"] = segment.ids.tolist()
        more["logprobs"] = segment.logprobs.tolist() if segment.logprobs is not None and known(segment) else None
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
        "logprob": own_logprob(member),
        "drop": None if member.drop is None else str(member.drop),
        "verdicts": {
            name: {"status": str(v.status), "correct": v.correct, "evidence": v.evidence}
            for name, v in signals.verdicts.items()
        },
        "cost": own_cost(member),
    }


def own_cost(member: Member) -> dict[str, int | float]:
    """What was spent on this rollout now; what it shares is counted with the first that has it, what was met before costs nothing."""
    cost = member.rollout.cost if member.sampled else Cost()
    judged = cost.judged + sum(v.tokens for v in member.signals.verdicts.values()) if member.sampled else 0
    return {
        "decoded": cost.generated,
        "prefilled": cost.prefilled,
        "cached": cost.cached,
        "env_steps": cost.env_steps,
        "judged": judged,
        "tool_seconds": round(cost.tool_seconds, 4),
    }


def known(segment: Segment) -> bool:
    """Whether every token's log-probability is."""
    return segment.logprobs is not None and bool(np.isfinite(segment.logprobs).all())


def own_logprob(member: Member) -> float | None:
    """Of all the policy wrote; None where it is not known."""
    parts = [s.logprobs for s in member.rollout.actions()]
    if not parts or any(p is None for p in parts):
        return None
    found = float(sum(np.sum(p) for p in parts if p is not None))
    return found if np.isfinite(found) else None  # an endpoint of texts tells none
