"""The composition check: environments and who plays them. Registers with compose.RULES.

Invariant: as in compose.py.
"""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule
from gfcr.errors import leave_out
from gfcr.registry import Slot

PLAYS, NEEDS = "interactive", "needs: environment"
"""Traits of a topology that plays turns with `generate.environment`, and of whatever cannot do without one."""

ENDED = "judges ended answers"
"""Trait of a verifier for which an answer that the policy did not end itself is wrong."""


@rule
def environment_unplayed(facts: Facts) -> Finding | None:
    named = [found.name for found, _ in facts.methods if found.slot is Slot.ENVIRONMENT]
    if not named or facts.having(PLAYS):
        return None
    return Finding(
        "environment_unplayed",
        f"generate.environment {named[0]!r} would never be asked: the topology lets each rollout write one answer",
        f'set generate.topology = {{name = "interactive"}}, or {leave_out("generate.environment")}',
    )


@rule
def turns_missing(facts: Facts) -> Finding | None:
    """Credit by turn of rollouts that have one turn is the credit of whole answers by another name."""
    if facts.having(PLAYS) or not (topology := [f"{m.slot} {m.name!r}" for m, _ in facts.methods if m.slot is Slot.TOPOLOGY]):
        return None
    value = facts.train.value
    bilevel = value is not None and value.turn_gamma is not None
    if not (by_turn := [*facts.having("credits turns"), *(["train.value.turn_gamma"] if bilevel else ())]):
        return None
    return Finding(
        "turns_missing",
        f"{by_turn[0]} credits turns, and {topology[0]} lets each rollout write one: it would credit whole answers",
        'set generate.topology = {name = "interactive"} with a generate.environment, or '
        + ("leave train.value.turn_gamma out" if by_turn[0].startswith("train") else 'use filter.credit = "grpo"'),
    )


@rule
def snapshots_missing(facts: Facts) -> Finding | None:
    needs = facts.having("needs: snapshots")
    plain = [
        found.name for found, _ in facts.methods if found.slot is Slot.ENVIRONMENT and not getattr(found.cls, "snapshots", True)
    ]
    if not needs or not plain:
        return None
    return Finding(
        "snapshots_missing",
        f"{needs[0]} begins again where a rollout stood before, and generate.environment {plain[0]!r} cannot keep its state",
        'name an environment with snapshots (registers, calculator), or let rollouts end where they go: {name = "interactive"}',
    )


@rule
def environment_missing(facts: Facts) -> Finding | None:
    needs = facts.having(NEEDS)
    if not needs or any(found.slot is Slot.ENVIRONMENT for found, _ in facts.methods):
        return None
    return Finding(
        "environment_missing",
        f"{needs[0]} needs an environment, and the recipe names none",
        'name one, for example generate.environment = {name = "calculator"}; `gfcr methods --slot generate.environment` lists them',
    )


@rule
def end_never_written(facts: Facts) -> Finding | None:
    plays, wants = facts.having(PLAYS), facts.having(ENDED)
    if (
        not plays
        or not wants
        or not any(found.slot is Slot.ENVIRONMENT and found.name == "registers" for found, _ in facts.methods)
    ):
        return None
    return Finding(
        "end_never_written",
        f"{wants[0]} takes an answer that the policy ended, and turns of generate.environment 'registers' end with the environment: every"
        " rollout would be wrong",
        'set filter.verifiers = [{name = "environment"}]',
    )
