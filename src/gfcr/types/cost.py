"""Measured compute. Invariant: a `Cost` is what was spent, kept or not; discarding work never lowers it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gfcr.types.frozen import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True)
class Cost:
    """Compute of one rollout, one step or one run; addable (c(tau) in the survey)."""

    generated: int = 0
    """Tokens sampled by the policy."""
    discarded: int = 0
    """Of `generated`: tokens that reached no loss."""
    prefilled: int = 0
    """Context tokens computed by the engine."""
    cached: int = 0
    """Context tokens whose keys and values were reused instead of computed."""
    scored: int = 0
    """Tokens run through the engine for log-probabilities only."""
    judged: int = 0
    """Tokens read or written by a model that judges."""
    trained: int = 0
    """Tokens run forward and backward by the trainer, prompts included, padding not."""
    evaluated: int = 0
    """Tokens sampled for held-out evaluation (outside the budget)."""
    evaluated_context: int = 0
    """Context tokens computed for held-out evaluation."""
    env_steps: int = 0
    verifier_seconds: float = 0.0
    tool_seconds: float = 0.0
    wall_seconds: float = 0.0
    money: float = 0.0
    """In the price table's currency; 0 where no price table is set."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, name) + getattr(other, name) for name in COST_FIELDS))


COST_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Cost))
