"""Rules of the composition check about sampling: laws that change, and what reads them."""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule
from gfcr.errors import leave_out
from gfcr.registry import Slot


@rule
def laws_laid_out_last(facts: Facts) -> Finding | None:
    methods = [f"{m.slot} {m.name!r}" for m, _ in facts.methods if m.slot is Slot.CONFIGURE]
    laying = set(facts.having("lays out laws"))
    early = next((i for i, name in enumerate(methods[:-1]) if name in laying), None)
    if early is None:
        return None
    first, after = methods[early], methods[early + 1]
    if after in laying:
        return Finding(
            "laws_laid_out_last",
            f"{first} and {after} both lay out several laws for a rollout, and the second would write over the first",
            "keep one of them",
        )
    return Finding(
        "laws_laid_out_last",
        f"{first} lays out several laws for a rollout, and {after} after it would change the first of them only",
        f"put {first} last in control.configure",
    )


@rule
def turns_of_one(facts: Facts) -> Finding | None:
    found = facts.having("needs: turns")
    if not found or facts.having("interactive"):
        return None
    return Finding(
        "turns_of_one",
        f"{found[0]} gives turns their laws, and no topology of the recipe takes turns",
        "use an interactive topology, or " + leave_out(facts.slot_of(found[0])),
    )


@rule
def stages_of_one(facts: Facts) -> Finding | None:
    found = facts.having("needs: stages")
    stages = facts.having("allocates in stages") or any(
        m.slot is Slot.SEED for m, _ in facts.methods
    )  # guidance may ask for more
    if not found or stages:
        return None
    return Finding(
        "stages_of_one",
        f"{found[0]} reads the answers of a group's earlier stages, and the allocator asks for all of them at once",
        'use control.allocate = {name = "staged"}, or ask the posterior: by = "posterior"',
    )


@rule
def one_plain_law(facts: Facts) -> Finding | None:
    found, several = facts.having("needs: one plain law"), facts.having("lays out laws")
    if not found or not (facts.truncated or facts.penalised or several):
        return None
    what = (
        f"{several[0]} changes it within an answer"
        if several
        else "it truncates"
        if facts.truncated
        else "it penalises what was said"
    )
    return Finding(
        "one_plain_law",
        f"{found[0]} proposes at another temperature of the recipe's law, and {what}: some answers could never be proposed, or not "
        "from every place",
        "sample with top_p = 1, top_k = 0, min_p = 0, no bans and no penalties, and one law for the whole answer",
    )


@rule
def importance_of_another_law(facts: Facts) -> Finding | None:
    found = facts.having("samples another law")
    if not found or facts.loss.wants != "advantages" or not (facts.tis or facts.ratio_base == "behaviour"):
        return None
    knob = "train.tis_cap" if facts.tis else "train.ratio_base = behaviour"
    return Finding(
        "importance_of_another_law",
        f"{knob} divides by the law that sampled the answers, and {found[0]} gives answers of a law that nobody can write down "
        "token by token",
        'leave the correction out (train.ratio_base = "proximal"), or train the right answers by cross-entropy: recipe power_rft',
    )


@rule
def picked_answers(facts: Facts) -> Finding | None:
    picking, needing = facts.having("picks answers"), facts.having("assumes: iid group")
    if not picking or not needing:
        return None
    return Finding(
        "picked_answers",
        f"{needing[0]} assumes that a group's answers are independent draws, and {picking[0]} keeps those that score highest",
        "leave one of the two out",
    )


def _divides(facts: Facts) -> str:
    """What compares the trainer's law with the one that sampled; empty = nothing."""
    pairs = facts.loss.wants == "pairs" and facts.loss.pair_reference == "behaviour"
    found = (
        ("train.tis_cap", facts.tis),
        ("train.ratio_base = 'behaviour'", facts.ratio_base == "behaviour"),
        ("loss.pair_reference = 'behaviour'", pairs),
    )
    return next((knob for knob, set_ in found if set_), "")


@rule
def truncated_without_mass(facts: Facts) -> Finding | None:
    knob = _divides(facts)
    if not knob or not facts.truncated or "kept_mass" in facts.engine_features:
        return None
    return Finding(
        "truncated_without_mass",
        f"{knob} compares the trainer's full softmax with log-probabilities renormalised over a truncated set, and the engine "
        f"{facts.engine!r} does not tell the kept mass that lies between: every weight would be off by it",
        "sample with top_p = 1, top_k = 0, min_p = 0 and no bans, or leave the correction out",
    )


@rule
def penalised_with_importance(facts: Facts) -> Finding | None:
    knob = _divides(facts)
    if not knob or not facts.penalised:
        return None
    return Finding(
        "penalised_with_importance",
        f"{knob} compares the trainer's law with the one that sampled, and penalties count the tokens before, which the trainer does "
        "not: there is no log-probability to compare",
        "sample without repetition, presence and frequency penalties, or leave the correction out",
    )


@rule
def rescored_under_another_law(facts: Facts) -> Finding | None:
    scored = [f"{m.slot} {m.name!r}" for m, _ in facts.methods if {"injects", "handles: off-policy"} <= m.traits]
    if not scored or not (facts.truncated or facts.penalised):
        return None
    what = "truncated (top-p, top-k, min-p or bans)" if facts.truncated else "penalised"
    return Finding(
        "rescored_under_another_law",
        f"{scored[0]} has old answers scored again under the law of sampling, which is {what}: the trainer's ratio would divide by "
        "it and be off by the kept mass or the penalty, or by nothing where a token fell out of the kept set",
        "sample with top_p = 1, top_k = 0, min_p = 0, no bans and no penalties, or " + leave_out(facts.slot_of(scored[0])),
    )
