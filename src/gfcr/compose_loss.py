"""Rules of the composition check about losses: which credit feeds which loss, and what the trainer's settings can act on.

A credit yields advantages unless it declares `yields: pairs`, `yields: cross-entropy` or `yields: rewards` (for a critic).
"""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule
from gfcr.errors import leave_out
from gfcr.registry import Slot
from gfcr.train.settings import mismatch
from gfcr.types import Normalise

_KINDS = {
    "pairs": "'dpo' or 'ipo'",
    "cross-entropy": "'sft'",
    "rewards": "'ppo', 'cispo' or 'gspo-token'",
    "advantages": "'ppo', 'cispo', 'gspo' or 'gspo-token'",
}


def _yields(facts: Facts) -> tuple[str, str] | None:
    """(the credit's name, what it yields); None without a credit."""
    for found, _ in facts.methods:
        if found.slot is Slot.CREDIT:
            declared = [t.removeprefix("yields: ") for t in found.traits if t.startswith("yields: ")]
            return f"{found.slot} {found.name!r}", declared[0] if declared else "advantages"
    return None


@rule
def loss_against_train(facts: Facts) -> Finding | None:
    wrong = mismatch(facts.train, facts.loss)
    return Finding("loss_against_train", *wrong) if wrong else None


@rule
def credit_against_loss(facts: Facts) -> Finding | None:
    if (credit := _yields(facts)) is None:
        return None
    name, found = credit
    wanted = facts.loss.wants
    if ("advantages" if found == "rewards" else found) == wanted:
        return None
    return Finding(
        "credit_against_loss",
        f"{name} yields {found}, and loss.kind = {facts.loss.kind!r} trains {wanted}: nothing would reach the loss",
        f"set loss.kind to {_KINDS.get(found, 'one that fits')}, or use a credit that yields {wanted}",
    )


@rule
def rewards_without_critic(facts: Facts) -> Finding | None:
    credit = _yields(facts)
    if credit is None or facts.loss.wants != "advantages" or (credit[1] == "rewards") == (facts.train.value is not None):
        return None
    if facts.train.value is None:
        return Finding(
            "rewards_without_critic",
            f"{credit[0]} yields rewards for a critic, and train.value is not set: nobody would make advantages of them",
            "add the section [train.value]",
        )
    return Finding(
        "critic_without_rewards",
        f"train.value is set, and {credit[0]} gives advantages of its own: the value head would learn nothing",
        'use filter.credit = {name = "gae"}, or ' + leave_out("train.value"),
    )


@rule
def gspo_per_token(facts: Facts) -> Finding | None:
    found = facts.having("per-token advantages")
    if facts.loss.kind != "gspo" or not found or facts.train.value is not None:  # with a critic: loss_against_train
        return None
    return Finding(
        "gspo_per_token",
        f"{found[0]} gives the tokens of an answer different advantages, and loss.kind = 'gspo' has one ratio and one"
        " advantage per answer",
        "set loss.kind = 'gspo-token'",
    )


@rule
def gspo_by_tokens(facts: Facts) -> Finding | None:
    if facts.loss.kind != "gspo" or facts.normalise is Normalise.SEQUENCE_MEAN:
        return None
    return Finding(
        "gspo_by_tokens",
        f"loss.normalise = {str(facts.normalise)!r} sums over tokens, and loss.kind = 'gspo' has one loss per answer: long"
        " answers would count by their length",
        "set loss.normalise = 'sequence-mean'",
    )


@rule
def constant_of_nothing(facts: Facts) -> Finding | None:
    if facts.constant is None or facts.normalise is Normalise.CONSTANT:
        return None
    return Finding(
        "constant_of_nothing",
        f"loss.constant = {facts.constant:g} is the denominator of constant normalisation, and loss.normalise ="
        f" {str(facts.normalise)!r} has its own",
        "set loss.normalise = 'constant', or " + leave_out("loss.constant"),
    )


@rule
def pairs_of_one(facts: Facts) -> Finding | None:
    found = facts.having("needs: two answers")
    if not found or not facts.single:
        return None
    return Finding(
        "pairs_of_one",
        f"{found[0]} compares the answers of a group, and groups have one",
        'use generate.topology = {name = "group", k = 8}',
    )


@rule
def advantages_that_are_not_there(facts: Facts) -> Finding | None:
    credit = _yields(facts)
    if credit is None or credit[1] == "advantages":
        return None
    for found, _ in facts.methods:
        reads = found.slot is Slot.CREDIT_BATCH or (found.slot is Slot.OFF_POLICY and credit[1] != "rewards")
        if reads:
            hint = " (the critic whitens: train.value.whiten)" if credit[1] == "rewards" else ""
            return Finding(
                "advantages_that_are_not_there",
                f"{found.slot} {found.name!r} works on advantages, and {credit[0]} yields {credit[1]}{hint}",
                leave_out(found.slot),
            )
    return None


@rule
def injected_without_loss(facts: Facts) -> Finding | None:
    credit = _yields(facts)
    if credit is None or credit[1] == "advantages":
        return None
    for found, settings in facts.methods:
        if "injects" in found.traits and getattr(settings, "option", 1) == 2:
            return Finding(
                "injected_without_loss",
                f"{found.slot} {found.name!r} with option = 2 only shifts the group's mean, and {credit[0]} yields"
                f" {credit[1]}, which reads no mean",
                "set option = 1, so that the injected answer itself is trained",
            )
    return None


@rule
def packed_rows(facts: Facts) -> Finding | None:
    """A packed row holds a whole group, so nothing in it is one answer's own."""
    credit = _yields(facts)
    if not facts.packed or credit is None:
        return None
    if credit[1] != "advantages":
        what = f"{credit[0]} yields {credit[1]}, which need one row per answer"
    elif facts.loss.by_sequence:
        what = f"loss.kind = {facts.loss.kind!r} has one ratio per answer"
    elif facts.train.kl and facts.normalise is Normalise.SEQUENCE_MEAN:
        what = "train.kl with loss.normalise = 'sequence-mean' averages over each answer's tokens"
    else:
        return None
    return Finding("packed_rows", f"loss.packed puts a group into one row, and {what}", "set loss.packed = false")


@rule
def greedy_samples(facts: Facts) -> Finding | None:
    who = "generate.sampling" if facts.sampling.temperature == 0 else next(iter(facts.having("greedy")), "")
    if not who:
        return None
    return Finding(
        "greedy_samples",
        f"{who} comes to temperature 0: a greedy law has no gradient, and the answers of a group are all the same",
        "sample at a temperature above 0 (evaluate.greedy measures greedy answers)",
    )
