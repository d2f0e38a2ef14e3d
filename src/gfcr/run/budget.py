"""The compute budget. Invariants: what is reserved and not yet settled counts as spent, so the limit is never exceeded (but by what an
engine lost behind our back, `lose`, which nobody can reserve); a settlement replaces its reservation by what was really used, kept or
discarded.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """Generated tokens a run may spend (B in the survey)."""

    limit: int | None
    """Tokens; None = unlimited."""
    spent: int = 0
    reserved: dict[str, int] = field(default_factory=dict)
    """Worst case of each outstanding request, in tokens."""
    held: int = 0
    """Sum of `reserved`."""

    def available(self) -> int | None:
        """Tokens that may still be reserved; None = unlimited."""
        return None if self.limit is None else max(0, self.limit - self.spent - self.held)

    def affordable(self, tokens_each: int) -> int | None:
        """How many requests of this worst case fit; None = any number."""
        available = self.available()
        return None if available is None else available // tokens_each

    def reserve(self, request: str, tokens: int) -> bool:
        """Reserve the worst case of a request; False when it does not fit. Raises ValueError for one reserved already."""
        if request in self.reserved:
            raise ValueError(f"request {request} is reserved already")
        available = self.available()
        if available is not None and tokens > available:
            return False
        self.reserved[request] = tokens
        self.held += tokens
        return True

    def settle(self, request: str, tokens: int) -> None:
        """Replace a reservation by the tokens really generated. Raises KeyError for an unknown request (settled twice)."""
        self.held -= self.reserved.pop(request)
        self.spent += tokens

    def lose(self, tokens: int) -> None:
        """Tokens that an engine over a network sampled for nothing."""
        self.spent += tokens

    @property
    def progress(self) -> float:
        """Share of the budget spent, 0..1; 0 when unlimited."""
        return 0.0 if not self.limit else min(1.0, self.spent / self.limit)

    def over(self, done: int, steps: int | None) -> float:
        """Share of a run that is over, 0..1: of its budget or of its `steps`, whichever is further; 0 when nothing bounds it."""
        return max(self.progress, min(1.0, done / steps) if steps else 0.0)

    def state_dict(self) -> dict[str, int]:
        """Between rounds nothing is reserved."""
        return {"spent": self.spent}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.spent, self.held, self.reserved = int(state["spent"]), 0, {}
