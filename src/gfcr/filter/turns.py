"""A member's own turns, as recorded when they were sampled (`Segment.turn`).

Invariants: a turn is what has one number, whether or not something was read before it, and whether or not it came in pieces or with
others' tokens inside it; turns of agents that are not trained are nobody's here, and the numbers of the others stay.
"""

from __future__ import annotations

from typing import NamedTuple

from gfcr.types import LossRole, Member


class OwnTurn(NamedTuple):
    start: int
    """Flat offset on the trained path of its first own token."""
    end: int
    """After its last own token."""
    number: int
    """From 0, untrained agents' turns counted: it began in the state `state_keys[number - 1]`, the first one in the task's own."""


def own_turns(member: Member) -> list[OwnTurn]:
    """The turns with own tokens on the trained path, in order; empty when there are none."""
    out: list[OwnTurn] = []
    at = 0
    for node in member.rollout.trained_path:
        segment = node.segment
        n = len(segment)
        if n and segment.role is LossRole.RL:
            if out and out[-1].number == segment.turn:
                out[-1] = out[-1]._replace(end=at + n)
            else:
                out.append(OwnTurn(at, at + n, segment.turn))
        at += n
    return out
