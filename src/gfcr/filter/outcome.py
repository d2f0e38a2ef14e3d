"""Right or wrong, for methods that cannot do without. Invariant: an answer whose correctness nobody decided is never taken for
a wrong one.
"""

from __future__ import annotations

from gfcr.errors import ConfigError
from gfcr.types import Member


def right(member: Member, who: str) -> bool:
    """Whether the answer is right; an INVALID one is wrong. `who` asks, e.g. `filter.credit 'pass-at-k'`. Raises ConfigError when
    the answer was scored without a word on correctness."""
    correct = member.signals.correct
    if correct is None:
        raise ConfigError(
            f"{who} needs right and wrong answers, and {member.signals.primary or 'no verifier'!r} scored the answer "
            f"{member.rollout.id} ({member.signals.reward}) without deciding which it is",
            "name a verifier that decides correctness, or another method",
        )
    return correct
