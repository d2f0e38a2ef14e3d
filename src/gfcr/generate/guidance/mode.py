"""Forced modes: an answer begins with a text that the policy did not choose (think, or answer at once).

Invariants: the modes alternate by the rollout's number, so that each has its share of every group; a forced token tells nothing about
the task, so these rollouts are FRESH; forced tokens are not the policy's own: no verifier reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build, Seed, View
from gfcr.errors import ConfigError
from gfcr.generate.slots import Settled
from gfcr.generate.words import words_of, writable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, LossRole, Path, Role, Segment, SegmentKind

AUTHOR = "mode"
"""Authors are `mode:think` and `mode:quiet`."""


@method(
    "mode",
    Slot.SEED,
    title="forced modes (AdaptThink)",
    arxiv="2505.13417",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    traits=("breaks: iid group",),
)
class Mode:
    """A share of every group begins with `quiet`, the rest with `think` (AdaptThink's importance sampling, arXiv:2505.13417: half of 16
    rollouts forced each way). Its reward (a bonus for the quiet mode against a reference model's accuracy) is not part of this."""

    class Settings(FrozenModel):
        think: str = "Alright"
        """How a thinking answer begins; empty = the policy chooses."""
        quiet: str = Field("</think>", min_length=1)
        """How an answer without thinking begins."""
        share: float = Field(0.5, gt=0, lt=1)
        """Share of quiet rollouts."""
        loss: Literal["share", "none"] = "share"
        """`share`: the first forced token is trained, with the mode's share as the probability that sampled it (AdaptThink: log .5 in the
        old log-probability's place), so that the policy learns which mode to choose. `none`: forced tokens carry no loss."""
        think_tokens: int | None = Field(None, ge=1)
        """Longest thinking answer, in tokens; None = generate.max_tokens."""
        quiet_tokens: int | None = Field(None, ge=1)
        """Longest quiet answer (AdaptThink: 4096 beside 16384)."""
        cohort: Literal["joint", "own"] = "joint"
        """`own`: each mode has its own baseline."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.build = settings, build
        writable(build, {"generate.seed.think": settings.think, "generate.seed.quiet": settings.quiet})

    def seed(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        s = self.settings
        quiet = self._seed("quiet", s.quiet, s.share, s.quiet_tokens)
        think = self._seed("think", s.think, 1 - s.share, s.think_tokens) if s.think else None
        first = group.planned
        return [quiet if math.floor((i + 1) * s.share) > math.floor(i * s.share) else think for i in range(first, first + n)]

    def _seed(self, name: str, text: str, share: float, limit: int | None) -> Seed:
        ids = words_of(self.build, "generate.seed 'mode'").after(text)
        if not len(ids):
            raise ConfigError(f"generate.seed 'mode': {name} = {text!r} has no tokens", "give a text of one token or more")
        author = f"{AUTHOR}:{name}"
        if self.settings.loss == "none":
            return Seed(
                (Segment(SegmentKind.FORCED, ids, author=author),), f"forced to {name}", role=Role.FRESH, max_tokens=limit
            )
        chance = np.full(1, math.log(share), np.float32)
        chosen = Segment(SegmentKind.DEMO, ids[:1], chance, author=author, role=LossRole.RL, tracks={"proximal": chance})
        rest = (Segment(SegmentKind.FORCED, ids[1:], author=author),) if len(ids) > 1 else ()
        return Seed((chosen, *rest), f"forced to {name}", role=Role.FRESH, max_tokens=limit)

    def settle(self, group: Group, view: View) -> Settled | None:
        if self.settings.cohort == "joint":
            return None
        modes = {i: mode_of(m.rollout.path) for i, m in group.members.items()}
        return Settled(cohorts={i: mode for i, mode in modes.items() if mode}, reason="a baseline for each mode")


def mode_of(path: Path) -> str:
    """`think` or `quiet`; empty for a rollout that was not forced."""
    for node in path:
        name, _, mode = node.segment.author.partition(":")
        if name == AUTHOR:
            return mode
    return ""
