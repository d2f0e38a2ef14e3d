"""Rules of the composition check about rewards: what shapes and weighs them, and what admission leaves of them."""

from __future__ import annotations

from difflib import get_close_matches

from gfcr.compose import Facts, Finding, pair_of, rule
from gfcr.errors import leave_out
from gfcr.registry import Slot


@rule
def zero_variance_on_shaped(facts: Facts) -> Finding | None:
    found = facts.having("zero-variance on shaped reward")
    if not found or not facts.having("shapes reward"):
        return None
    return Finding(
        "zero_variance_on_shaped",
        f"{found[0]} tests the shaped reward for variance: a length term makes every all-wrong group look informative",
        "test correctness",
    )


@rule
def length_on_all_wrong(facts: Facts) -> Finding | None:
    shaping, std = facts.having("shapes length in all-wrong groups"), facts.having("divides by std")
    if not shaping or not std:
        return None
    return Finding(
        "length_on_all_wrong",
        f"{shaping[0]} rewards length in all-wrong groups, and {std[0]} divides by the std: there "
        "length is the only variance left and gets full-size advantages",
        'set its on = "mixed" or "right", or credit without std (dr-grpo, rloo)',
    )


@rule
def shape_by_group(facts: Facts) -> Finding | None:
    if not (pair := pair_of(facts, "shapes wrong answers by their group", "baseline: batch")):
        return None
    return Finding(
        "shape_by_group",
        f"{pair[0]} shapes a wrong answer only where its group holds a right one, and {pair[1]} compares answers of all groups: "
        "wrong answers of hopeless groups would look better than those of others",
        'set its on = "right"',
    )


@rule
def shape_without_readers(facts: Facts) -> Finding | None:
    if not (pair := pair_of(facts, "shapes reward", "ignores shaped reward")):
        return None
    return Finding(
        "shape_without_readers",
        f"{pair[1]} reads verdicts and rewards as the verifiers gave them, so {pair[0]} would change nothing",
        f"{leave_out('filter.shape')}, or take another credit",
    )


@rule
def correction_without_effect(facts: Facts) -> Finding | None:
    gated = any(m.slot is Slot.GATE for m, _ in facts.methods)  # what a gate refused keeps its reward: no affine change
    if gated or not (pair := pair_of(facts, "affine in reward", "divides by std")):
        return None
    return Finding(
        "correction_without_effect",
        f"{pair[0]} has one pair of rates for every answer, which is an affine change of the reward, and {pair[1]} divides by the "
        "std, which undoes it exactly",
        "give its rates by verifier (by, measured), or take credit without std (dr-grpo, rloo)",
    )


@rule
def steps_without_scorer(facts: Facts) -> Finding | None:
    needing = facts.having("needs: step scores")
    if not needing or facts.having("interactive") or any(m.slot is Slot.STEPS for m, _ in facts.methods):
        return None  # an environment's turn rewards are step scores
    return Finding(
        "steps_without_scorer",
        f"{needing[0]} reads step scores, and filter.steps is empty: it would find none",
        "name a step scorer in filter.steps (the lab has program-steps)",
    )


@rule
def turn_rewards_twice(facts: Facts) -> Finding | None:
    summing = facts.having("sums turn rewards")
    reading = [f for t in ("credits turns", "needs: step scores") for f in facts.having(t) if facts.slot_of(f) == Slot.CREDIT]
    if not summing or not reading:
        return None
    return Finding(
        "turn_rewards_twice",
        f"{reading[0]} gives each turn its own reward, and {summing[0]} adds their sum to the outcome: they would count twice",
        f"{leave_out('filter.shape')}, or take a credit of whole rollouts (grpo)",
    )


@rule
def negative_rewards(facts: Facts) -> Finding | None:
    needing, shaping = facts.having("assumes: rewards not negative"), facts.having("shapes reward")
    if not needing or not (shaping or facts.invalid_reward < 0):
        return None
    source = shaping[0] if shaping else f"filter.admission.invalid_reward = {facts.invalid_reward}"
    return Finding(
        "negative_rewards",
        f"{needing[0]} divides by the group's mean reward, and {source} can make it 0 or negative",
        "take another credit, or keep filter.admission.invalid_reward at 0 or more and " + leave_out("filter.shape"),
    )


@rule
def rewards_out_of_range(facts: Facts) -> Finding | None:
    needing, shaping = facts.having("assumes: rewards from 0 to 1"), facts.having("shapes reward")
    if not needing or not (shaping or not 0 <= facts.invalid_reward <= 1):
        return None
    source = shaping[0] if shaping else f"filter.admission.invalid_reward = {facts.invalid_reward}"
    return Finding(
        "rewards_out_of_range",
        f"{needing[0]} takes a reward for a chance of success, and {source} can leave the range from 0 to 1",
        "set its spread to 'std' or 'none', or keep rewards from 0 to 1 and " + leave_out("filter.shape"),
    )


@rule
def one_reward_dropped(facts: Facts) -> Finding | None:
    if not facts.admission_zero_variance:
        return None
    if not facts.single:
        return _batch_baseline_dropped(facts)
    if facts.having("needs: group baseline") or facts.having("injects"):
        return None
    return Finding(
        "one_reward_dropped",
        "groups have one rollout, and filter.admission.drop_zero_variance takes every group with one "
        "reward out of the batch: nothing would be trained",
        "set filter.admission.drop_zero_variance = false",
    )


def _batch_baseline_dropped(facts: Facts) -> Finding | None:
    if not (found := facts.having("baseline: batch")):
        return None
    return Finding(
        "one_reward_dropped",
        f"{found[0]} compares with the whole batch, and filter.admission.drop_zero_variance takes every group with one reward out "
        "of it: what remains has another mean than the policy",
        "set filter.admission.drop_zero_variance = false",
    )


@rule
def weights_of_nobody(facts: Facts) -> Finding | None:
    """A credit with weights by verifier, and the names that verifiers speak under."""
    for credit, settings in facts.methods:
        weights = getattr(settings, "weights", None)
        if "weighs rewards by verifier" not in credit.traits or not weights:
            continue
        where = f"{credit.slot}.weights"
        if not any(weights.values()):
            return Finding("weights_of_nobody", f"{where} are all 0: every advantage would be 0", leave_out(where, "{}"))
        verifiers = [(m, s) for m, s in facts.methods if m.slot is Slot.VERIFIER]
        names = [getattr(m.cls, "name", None) for m, _ in verifiers]
        if not all(isinstance(name, str) for name in names):
            continue  # one of them speaks under a name that only its object knows
        known = [str(name) for name in names]
        if missing := [name for name in weights if name not in known]:
            near = get_close_matches(missing[0], known, 1)
            return Finding(
                "weights_of_nobody",
                f"{where} has {missing[0]!r}, and filter.verifiers has nothing of that name: {', '.join(known) or 'it is empty'}",
                f"did you mean {near[0]!r}?" if near else f"weigh {', '.join(known)}, or add the verifier",
            )
        deciding = [i for i, (m, s) in enumerate(verifiers) if "binary correctness" in m.traits | s.traits()]
        late = [i for i, name in enumerate(known) if deciding and i > deciding[0] and weights.get(name)]
        if late:
            first, second = known[deciding[0]], known[late[0]]
            remedy = f"move {second!r} before {first!r}"
            if late[0] in deciding:
                scores = "right_at" in type(verifiers[late[0]][1]).model_fields
                remedy = (
                    f'{remedy} and set right_at = "never" on it' if scores else f"weigh one of {first!r} and {second!r} only"
                )
            return Finding(
                "weights_of_nobody",
                f"{where} has {second!r}, which stands in filter.verifiers behind {first!r}: that one decides correctness and ends"
                " the cascade, so the other is hardly ever asked",
                remedy,
            )
    return None


@rule
def unnormalised_batch(facts: Facts) -> Finding | None:
    needing = facts.having("needs: batch normalisation")
    if not needing or facts.having("normalises batch"):
        return None
    return Finding(
        "unnormalised_batch",
        f"{needing[0]} is half a method: its advantages want normalising over the batch, and filter.credit_batch is empty",
        'set filter.credit_batch = {name = "whiten"}',
    )
