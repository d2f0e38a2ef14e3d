"""Rules of the composition check about guidance and demonstrations.

A seeder that conditions rollouts on more than the prompt declares `guides`; with `helps all-wrong groups` it (or an injector) acts on
groups without a right answer.
"""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule
from gfcr.errors import leave_out


@rule
def two_remedies(facts: Facts) -> Finding | None:
    """Guidance and injection both wait for a group without a right answer; guidance comes first, injectors follow in their order, and
    those that declare `sees other help` leave a group alone that got some."""
    found = list(dict.fromkeys([*facts.having("injects"), *facts.having("helps all-wrong groups")]))
    blind = [name for name in facts.having("injects") if name not in facts.having("sees other help")]
    if len(found) < 2 or not blind:
        return None
    found = [*(name for name in found if name not in blind), *blind]
    return Finding(
        "two_remedies",
        f"{found[0]} and {found[1]} both put a right answer into a group that has none: neither sees what the other did, and the group"
        " would get both",
        "leave one of the two out",
    )


@rule
def guidance_in_iid_group(facts: Facts) -> Finding | None:
    needing, guiding = facts.having("assumes: iid group"), facts.having("guides")
    if not needing or not guiding:
        return None
    return Finding(
        "guidance_in_iid_group",
        f"{needing[0]} assumes that a group's answers are independent draws of one law, and {guiding[0]} guides some of them",
        "leave one of the two out",
    )


@rule
def refill_against_guidance(facts: Facts) -> Finding | None:
    refills, helping = facts.having("refills"), facts.having("helps all-wrong groups")
    if not refills or not helping or facts.having("injects"):  # injectors: refill_against_injection
        return None
    return Finding(
        "refill_against_guidance",
        f"{helping[0]} helps groups without a right answer, and {refills[0]} drops exactly those groups",
        "use one of the two; help makes further draws unnecessary",
    )


@rule
def guided_ratio_truncated(facts: Facts) -> Finding | None:
    """The trainer's full softmax would be divided by probabilities renormalised over a kept set."""
    found = facts.having("keeps guided ratio")
    if not found or not facts.truncated:
        return None
    return Finding(
        "guided_ratio_truncated",
        f"{found[0]} keeps the sampled log-probabilities as the ratio's denominator, and sampling is truncated (top-p, top-k, min-p or"
        " bans): every ratio would be off by the kept mass",
        "sample with top_p = 1, top_k = 0, min_p = 0 and no bans, or recompute: ratio = 'recomputed'",
    )


@rule
def imitation_without_weight(facts: Facts) -> Finding | None:
    found = facts.having("needs: imitation weight")
    if not found or facts.having("weighs imitation"):
        return None
    return Finding(
        "imitation_without_weight",
        f"{found[0]} marks the tokens it gives for cross-entropy, and nothing gives them a weight: it would be 0",
        'add filter.credit_batch = [{name = "imitation", coef = 0.001}], or set learn = "nothing"',
    )


@rule
def weight_without_imitation(facts: Facts) -> Finding | None:
    found = facts.having("weighs imitation")
    if not found or facts.having("needs: imitation weight"):
        return None
    return Finding(
        "weight_without_imitation",
        f"{found[0]} weighs tokens that are marked for cross-entropy, and no method marks any",
        "set learn = 'ce' in generate.seed 'hint', or " + leave_out(facts.slot_of(found[0])),
    )


@rule
def packed_imitation(facts: Facts) -> Finding | None:
    found = facts.having("weighs imitation")
    if not found or not facts.packed:
        return None
    return Finding(
        "packed_imitation",
        f"loss.packed puts a group into one row, and {found[0]} weighs tokens of single answers",
        "set loss.packed = false",
    )


@rule
def shaping_without_demonstrations(facts: Facts) -> Finding | None:
    if facts.loss.demo_shaping is None or facts.having("trains demonstrations"):
        return None
    return Finding(
        "shaping_without_demonstrations",
        f"loss.demo_shaping = {facts.loss.demo_shaping:g} is the loss of tokens that nobody sampled, and no method trains any",
        'set replay.augment = [{name = "reference"}], or ' + leave_out("loss.demo_shaping"),
    )
