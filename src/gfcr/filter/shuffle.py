"""The control experiment: signals permuted over a round's fresh members, so that rewards carry no information."""

from __future__ import annotations

from collections.abc import Sequence

from gfcr.run.seeds import generator
from gfcr.types import Group


def shuffle_signals(groups: Sequence[Group], seed: int, round_number: int) -> None:
    """Permute the members' signals in place, over all groups together; their multiset is unchanged."""
    members = [m for g in groups for m in g.members.values() if m.sampled]
    order = generator(seed, "shuffle", round_number).permutation(len(members))
    signals = [m.signals for m in members]
    for member, source in zip(members, order):
        member.signals = signals[source]
