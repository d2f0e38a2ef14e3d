"""What does not go together with partial rollouts (`generate.partial`)."""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule
from gfcr.registry import Slot


@rule
def partial_growths(facts: Facts) -> Finding | None:
    if facts.partial is None:
        return None
    for found, _ in facts.methods:
        if found.slot is Slot.TOPOLOGY and hasattr(found.cls, "grow"):
            return Finding(
                "partial_growths",
                f"generate.partial cuts answers that know nothing of each other, and {found.slot} {found.name!r} decides by what came of "
                "one request what it asks next: half a tree or half a turn is nothing to wait with",
                'leave generate.partial out, or use generate.topology = {name = "group", k = 8}',
            )
    return None


@rule
def partial_without_resume(facts: Facts) -> Finding | None:
    if facts.partial is None or {"resume", "versions"} <= facts.engine_features:
        return None
    return Finding(
        "partial_without_resume",
        f"generate.partial lets answers go on under newer weights, and the engine {facts.engine!r} cannot resume a stream or does not "
        "say which weights sampled a token",
        "leave generate.partial out, or use another engine",
    )


@rule
def partial_masked_and_stored(facts: Facts) -> Finding | None:
    if facts.partial is None or facts.partial.train == "all" or not (storing := facts.having("stores: verified answers")):
        return None
    return Finding(
        "partial_masked_and_stored",
        f'generate.partial.train = "newest" takes the beginning of late answers out of the loss, and {storing[0]} would store them so: '
        "their injected copies would train on their ends alone",
        'set generate.partial.train = "all", or leave replay.store out',
    )
