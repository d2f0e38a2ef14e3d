"""What went wrong between an engine and what it runs on, in the books and the metrics of whoever runs rounds. Invariant: each fault is in one
row, each lost token booked once: those of a round as generated and discarded, others (publication, evaluation) as evaluated."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gfcr.build import RolloutParts
from gfcr.engine.contract import Lossy, losses_of
from gfcr.run.budget import Budget
from gfcr.run.ledger import Ledger
from gfcr.types import Cost


class EngineFaults:
    """Collects them from commit to commit."""

    def __init__(self, parts: RolloutParts, ledger: Ledger, budget: Budget) -> None:
        self.parts, self.ledger, self.budget = parts, ledger, budget
        self._faults = Counter[str]()

    def of_a_round(self) -> None:
        """After a round: what it lost was generated for nothing."""
        if (lost := losses_of(self.parts.engine)) is not None:
            self.budget.lose(self.ledger.lose(lost.tokens))
            self._faults.update(lost.faults)

    def of_the_rest(self) -> None:
        """Before a round, or before a commit."""
        if (lost := losses_of(self.parts.engine)) is not None:
            self.ledger.add(Cost(evaluated=sum(lost.tokens.values())))
            self._faults.update(lost.faults)

    def row(self) -> dict[str, Any]:
        """`engine_faults` of a metrics row, since the last one; nothing for an engine that loses nothing behind one's back."""
        if not isinstance(self.parts.engine, Lossy):
            return {}
        found, self._faults = dict(self._faults), Counter[str]()
        return {"engine_faults": found}
