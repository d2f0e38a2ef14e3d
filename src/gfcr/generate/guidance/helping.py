"""What all guidance for failed groups has in common: how many rollouts, the context they are trained under, what becomes of the others.

Invariants: a group is helped only after its fresh rollouts were all judged wrong; as many failures leave as guided rollouts stay, drawn
from run/seeds.py.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from pydantic import Field

from gfcr.context import Seed, View
from gfcr.generate.guidance.strength import failures
from gfcr.generate.slots import Settled
from gfcr.registry import FrozenModel
from gfcr.run.seeds import generator
from gfcr.types import Group, Member, Role, Segment, SegmentKind

OWN = "guided"
"""Cohort of guided rollouts that are normalised apart."""


class HelpSettings(FrozenModel):
    n: int | None = Field(None, ge=1)
    """Guided rollouts per visit (per probe, where hints grow or are searched for); None = half of K."""
    context: Literal["guided", "plain"] = "guided"
    """The context guided rollouts are trained under: the one they were sampled in, or the plain question. XRPO does not say which it
    takes (UNCONFIRMED), Guide-GRPO takes the plain one."""
    ratio: Literal["recomputed", "guided"] = "recomputed"
    """Denominator of the ratio under the plain question: the policy's own probability there, so that it starts at 1 and hides the
    gap; or the probability under the guidance that really sampled (Guide-GRPO's pi(o|x) / pi_old(o|x, hint), clipped)."""
    replace: bool = True
    """As many of the failed plain rollouts leave as guided ones stay; false: all stay."""
    cohort: Literal["joint", "own"] = "joint"
    """`joint`: guided and plain rollouts share a baseline (a right guided one lifts the mean of the plain ones). `own`: they do
    not."""

    def rollouts(self, k: int) -> int:
        """Guided rollouts of one visit, where a group plans k."""
        return self.n or max(1, k // 2)

    def traits(self) -> frozenset[str]:
        return frozenset({"keeps guided ratio"} if self.context == "plain" and self.ratio == "guided" else ())


def instead(prompt: Segment, author: str, reason: str, settings: HelpSettings, source: str | None = None) -> Seed:
    """A question that says more, in the plain one's place."""
    segment = Segment(SegmentKind.GUIDANCE, prompt.ids, author=author, template=prompt.template)
    plain = settings.context == "plain"
    kept = plain and settings.ratio == "guided"
    return Seed((segment,), reason, train_without=plain, source=source, instead=True, keep_ratio=kept)


def guided(group: Group) -> dict[str, Member]:
    """Guided members that are still in."""
    return {i: m for i, m in group.members.items() if m.role is Role.GUIDED and m.drop is None}


def settled(group: Group, view: View, settings: HelpSettings, stay: Set[str], replace: bool = True) -> Settled | None:
    """What a closed group becomes when of its guided members those in `stay` count; None for a group without any."""
    found = guided(group)
    if not found:
        return None
    gone = set(found) - stay
    if settings.replace and replace:
        judged = sum(found[i].signals.reward is not None for i in stay)
        wrong = failures(group)
        order = generator(view.seed, "help", group.id, "replaced").permutation(len(wrong))
        gone |= {wrong[i] for i in order[:judged]}
    cohorts = dict.fromkeys(stay, OWN) if settings.cohort == "own" else {}
    return Settled(frozenset(gone), cohorts, f"{len(stay)} guided rollouts count")
