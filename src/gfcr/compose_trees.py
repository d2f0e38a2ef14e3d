"""Rules of the composition check about trees: answers that share beginnings are no independent draws, and come in pieces."""

from __future__ import annotations

from gfcr.compose import Facts, Finding, pair_of, rule
from gfcr.errors import leave_out
from gfcr.registry import Slot

GROUP = 'use generate.topology = {name = "group", k = 8}'


@rule
def answers_not_independent(facts: Facts) -> Finding | None:
    """What counts each answer as a draw of its own would count a shared beginning once per leaf."""
    if not (pair := pair_of(facts, "shares prefixes", "counts independent answers")):
        return None
    return Finding(
        "answers_not_independent",
        f"{pair[1]} counts every answer as one independent draw, and the answers of {pair[0]} share beginnings: they say less than"
        " their number",
        f"{GROUP}, or {leave_out(facts.slot_of(pair[1]))}",
    )


@rule
def fixed_shape(facts: Facts) -> Finding | None:
    """Trees of a fixed shape have as many leaves as that shape, whatever an allocator asks for."""
    shaped = facts.having("fixed shape")
    other = [f for t in ("uneven groups", "breaks: iid group") for f in facts.having(t) if facts.slot_of(f) == Slot.ALLOCATE]
    if not shaped or not other:
        return None
    return Finding(
        "fixed_shape",
        f"{shaped[0]} grows whole trees of {facts.k} leaves in all, and {other[0]} asks for other numbers of rollouts",
        'set control.allocate = {name = "uniform"}, or take a tree that grows to any number (treepo, best-first)',
    )


@rule
def stopper_on_pieces(facts: Facts) -> Finding | None:
    """A stopper sees what one request has sampled."""
    stopping = [f"{m.slot} {m.name!r}" for m, _ in facts.methods if m.slot is Slot.STOP and "handles: pieces" not in m.traits]
    growing = facts.having("grows in pieces")
    if not stopping or not growing:
        return None
    return Finding(
        "stopper_on_pieces",
        f"{stopping[0]} decides on what one request has sampled, and {growing[0]} samples an answer in several: it would take a piece"
        " for the whole answer",
        leave_out("control.stop"),
    )


@rule
def stop_string_over_pieces(facts: Facts) -> Finding | None:
    """Engines look for stop strings in what one request has sampled."""
    long, growing = [text for text in facts.stop_strings if len(text) > 1], facts.having("grows in pieces")
    if not long or not growing:
        return None
    return Finding(
        "stop_string_over_pieces",
        f"generate.stop_strings has {long[0]!r}, and {growing[0]} samples an answer in pieces: a stop string that lies across two of them"
        " would not be found",
        "use stop strings of one character, or let the end token end answers",
    )
