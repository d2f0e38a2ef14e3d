"""Settings of the cascade (`filter.cascade`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gfcr.registry import FrozenModel


class CascadeSettings(FrozenModel):
    order: Literal["given", "declared", "measured"] = "given"
    """Of the verifiers, from cheap to dear: as the recipe lists them; by the cost each declares; by the seconds each took so far (they
    depend on the machine, so a run is not bit-equal then)."""
    appeal: bool = False
    """What a cheap verifier calls wrong goes on to the next dearer one, whose word then counts (xVerify as an appeal, arXiv:2504.10481;
    arXiv:2510.00915); where that one abstains, the cheap one's word stands."""
    escalate: float = Field(0.0, ge=0.0, le=1.0)
    """Chance that a verdict decided without the dearest verifier is given by that one, too, to measure how often the cheap ones are
    wrong; the reward does not change. The report shows the rates with their intervals."""
    calls: Annotated[int, Field(ge=0)] | None = None
    """Calls that all verifiers but the first may take in a run together; then they are skipped, with that reason as evidence. None = no
    limit. Held-out evaluation is outside."""
    seconds: Annotated[float, Field(ge=0)] | None = None
    """The same in seconds of their work, which depend on the machine, so that a run is not bit-equal then."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """The same in tokens that judging models read and write."""

    @property
    def limited(self) -> bool:
        return not (self.calls is None and self.seconds is None and self.tokens is None)
