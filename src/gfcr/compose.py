"""The composition check: which methods do not go together, why, and what to do instead.

Invariant: rules read declared traits, settings and engine features, never names, so a third party's method is checked like
a built-in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gfcr.errors import leave_out
from gfcr.generate.settings import PartialSettings
from gfcr.registry import FrozenModel, Method, Slot
from gfcr.train.settings import LossSettings, TrainSettings
from gfcr.types import Normalise, Sampling


@dataclass(frozen=True)
class Facts:
    """What the rules read."""

    methods: Sequence[tuple[Method, FrozenModel]]
    k: int
    sampling: Sampling = Sampling()
    tis: bool = False
    """The trainer multiplies by a truncated importance weight."""
    ratio_base: str = "proximal"
    engine_features: frozenset[str] = frozenset()
    engine: str = ""
    admission_zero_variance: bool = True
    invalid_reward: float = 0.0
    loss: LossSettings = LossSettings()
    train: TrainSettings = TrainSettings()
    normalise: Normalise = Normalise.TOKEN_MEAN
    constant: float | None = None
    """Denominator that the recipe gives; None = it gives none."""
    packed: bool = False
    """One row per group, its prompt once."""
    partial: PartialSettings | None = None
    stop_strings: tuple[str, ...] = ()
    trains: bool = True
    """False where answers are looked at and nothing learns from them (`gfcr sample`)."""

    def having(self, trait: str) -> list[str]:
        """Methods with this trait, always or under their settings."""
        return [f"{m.slot} {m.name!r}" for m, settings in self.methods if trait in m.traits or trait in settings.traits()]

    @staticmethod
    def slot_of(found: str) -> str:
        """The slot of what `having` names."""
        return found.partition(" ")[0]

    @property
    def truncating(self) -> str:
        """What gives tokens probability 0 under some law that may be sampled: the recipe's own or a method; empty = nothing."""
        return "generate.sampling" if self.sampling.truncated else next(iter(self.having("truncates")), "")

    @property
    def penalising(self) -> str:
        """What makes some law that may be sampled depend on the tokens before, beyond the model; empty = nothing."""
        return "generate.sampling" if self.sampling.penalised else next(iter(self.having("penalises")), "")

    @property
    def truncated(self) -> bool:
        """Some law that may be sampled gives tokens probability 0."""
        return bool(self.truncating)

    @property
    def penalised(self) -> bool:
        """Some law that may be sampled depends on the tokens before, beyond the model."""
        return bool(self.penalising)

    @property
    def single(self) -> bool:
        """Groups have one rollout."""
        return self.k < 2 or bool(self.having("group of one"))


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a recipe."""

    rule: str
    why: str
    remedy: str


Rule = Callable[[Facts], Finding | None]
RULES: list[Rule] = []


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check


def check(facts: Facts) -> list[Finding]:
    """All findings; empty = the recipe composes."""
    return [finding for r in RULES if (finding := r(facts)) is not None]


def pair_of(facts: Facts, first: str, second: str) -> tuple[str, str] | None:
    a, b = facts.having(first), facts.having(second)
    return (a[0], b[0]) if a and b else None


@rule
def two_difficulty_selectors(facts: Facts) -> Finding | None:
    found = facts.having("selects by difficulty")
    if len(found) < 2:
        return None
    return Finding(
        "two_difficulty_selectors",
        f"{found[0]} and {found[1]} both choose by difficulty: the second sees only what "
        "the first let through, and both starve the tails",
        "keep one; an allocator may share its posterior",
    )


@rule
def damping_against_seeking(facts: Facts) -> Finding | None:
    if not (pair := pair_of(facts, "damps uncertainty", "seeks uncertainty")):
        return None
    return Finding(
        "damping_against_seeking",
        f"{pair[0]} shrinks the update where answers disagree, and {pair[1]} spends the budget exactly there",
        "keep one of the two",
    )


@rule
def injection_without_off_policy(facts: Facts) -> Finding | None:
    unhandled = [
        f"{m.slot} {m.name!r}" for m, _ in facts.methods if "injects" in m.traits and "handles: off-policy" not in m.traits
    ]
    if not unhandled or facts.having("weighs off-policy"):
        return None
    return Finding(
        "injection_without_off_policy",
        f"{unhandled[0]} puts answers of other policies into the loss, and nothing corrects for that",
        "fill control.off_policy, or use an injector that recomputes log-probabilities",
    )


@rule
def injection_without_store(facts: Facts) -> Finding | None:
    needing = facts.having("needs: stored answers")
    if not needing or facts.having("stores: verified answers"):
        return None
    return Finding(
        "injection_without_store",
        f"{needing[0]} draws on stored answers, and no rule stores any",
        'set replay.store = [{name = "correct"}]',
    )


@rule
def truncated_without_processed(facts: Facts) -> Finding | None:
    if not facts.truncated or facts.engine_features & {"processed_logprobs", "text_only"}:
        return None  # answers that are text have none at all
    return Finding(
        "truncated_without_processed",
        f"{facts.truncating} truncates sampling (top-p, top-k, min-p or bans), and the engine "
        f"{facts.engine!r} reports log-probabilities of the full distribution: every ratio would be off by the kept mass",
        "sample with top_p = 1, top_k = 0, min_p = 0, or use an engine with processed log-probabilities",
    )


@rule
def group_of_one(facts: Facts) -> Finding | None:
    if not facts.single:
        return None
    if needing := facts.having("needs: group baseline"):
        return Finding(
            "group_of_one",
            f"{needing[0]} subtracts the group's mean, and groups have one rollout: every advantage would be 0",
            'use generate.topology = {name = "group", k = 8}, or a baseline over the batch: filter.credit = "reinforce-pp" with '
            'filter.credit_batch = "whiten"',
        )
    if comparing := facts.having("compares within group"):
        return Finding(
            "group_of_one",
            f"{comparing[0]} compares a group's answers with each other, and groups have one rollout: it would do nothing",
            'use generate.topology = {name = "group", k = 8}, or ' + leave_out(facts.slot_of(comparing[0])),
        )
    return None


@rule
def unbounded_refill(facts: Facts) -> Finding | None:
    for found, settings in facts.methods:
        bound = getattr(settings, "max_waves", None)
        if "refills" in found.traits and (bound is None or bound < 1):
            return Finding(
                "unbounded_refill",
                f"{found.slot} {found.name!r} refills without a bound: tasks that are always right "
                "or always wrong would keep it going for ever",
                "give it max_waves >= 1",
            )
    return None


@rule
def importance_twice(facts: Facts) -> Finding | None:
    weighing = facts.having("weighs off-policy")
    base = facts.ratio_base == "behaviour"
    if sum((facts.tis, base, bool(weighing))) < 2:
        return None
    parts = [*(["train.tis_cap"] if facts.tis else []), *(["train.ratio_base = behaviour"] if base else []), *weighing]
    return Finding(
        "importance_twice",
        f"{' and '.join(parts)} all multiply by policy / behaviour: the correction would count twice",
        "keep one of them",
    )


@rule
def long_tail_dropped(facts: Facts) -> Finding | None:
    found = facts.having("drops long tail")
    if not found:
        return None
    return Finding(
        "long_tail_dropped",
        f"{found[0]} drops what finishes last, so training sees short answers only",
        "park and resume unfinished rollouts instead of dropping them",
    )


@rule
def unverified_training(facts: Facts) -> Finding | None:
    for found, settings in facts.methods:
        if "trains on unverified" in found.traits and not getattr(settings, "accept_unverified", False):
            return Finding(
                "unverified_training",
                f"{found.slot} {found.name!r} trains on data that no program verified",
                "verify it, or set accept_unverified = true on it to opt in",
            )
    return None


@rule
def iid_broken(facts: Facts) -> Finding | None:
    breaking, injecting = facts.having("breaks: iid group"), facts.having("injects")
    needing = facts.having("assumes: iid group")
    if not needing or not (breaking or injecting):
        return None
    sharing = facts.having("shares prefixes")
    if sharing:
        what, remedy = f"{sharing[0]} grows them from shared beginnings", 'use generate.topology = {name = "group", k = 8}'
    elif breaking:
        what, remedy = f"{breaking[0]} stops on outcomes", "use uniform or greedy allocation with it"
    else:
        what, remedy = f"{injecting[0]} adds answers of a known outcome", "leave one of the two out"
    return Finding("iid_broken", f"{needing[0]} assumes that a group's answers are independent draws, and {what}", remedy)


@rule
def engine_lacks(facts: Facts) -> Finding | None:
    for found, _ in facts.methods:
        if missing := found.needs - facts.engine_features:
            return Finding(
                "engine_lacks",
                f"{found.slot} {found.name!r} needs {', '.join(sorted(missing))}, which the engine "
                f"{facts.engine!r} does not offer",
                "use another engine or leave the method out",
            )
    return None


@rule
def one_allocator_for_staged(facts: Facts) -> Finding | None:
    refills = facts.having("refills")
    stages = [found for found in facts.having("breaks: iid group") if facts.slot_of(found) == Slot.ALLOCATE]
    if not refills or not stages:
        return None
    return Finding(
        "refill_with_early_stop",
        f"{stages[0]} stops a group at its first right answer, so {refills[0]} finds groups that are all right by construction",
        "use dynamic sampling with uniform allocation",
    )


@rule
def refill_against_injection(facts: Facts) -> Finding | None:
    refills, injects = facts.having("refills"), facts.having("injects")
    if not refills or not injects:
        return None
    return Finding(
        "refill_against_injection",
        f"{injects[0]} puts a known answer into groups without a right one, and {refills[0]} drops exactly those groups",
        "use one of the two; injection makes further draws unnecessary",
    )


from gfcr import (  # noqa: E402  (their rules register themselves)
    compose_engine,  # noqa: F401
    compose_environment,  # noqa: F401
    compose_guidance,  # noqa: F401
    compose_loss,  # noqa: F401
    compose_partial,  # noqa: F401
    compose_reward,  # noqa: F401
    compose_sampling,  # noqa: F401
    compose_trees,  # noqa: F401
)
