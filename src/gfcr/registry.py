"""Finds methods by slot and name.

Invariants: a method's metadata stands beside its class (`@method`); built-in methods are listed in a static index, so that
nothing is imported before it is named; third parties add theirs through the entry-point group `gfcr.methods` under the
name `SLOT.METHOD`; a built-in name cannot be taken over; a name with a colon is a place in code, `module:name` or
`file.py:name`: a method's class, or a plain function in the slots of FUNCTIONS.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pydantic import ValidationError

from gfcr.errors import ConfigError
from gfcr.functions import is_place, load_place
from gfcr.settings import FrozenModel as FrozenModel
from gfcr.settings import config_error


class Settings(FrozenModel):
    """Settings of a method that has none."""


class Slot(StrEnum):
    """Places of the lifecycle a method can fill; values are `room.slot` as written in recipes."""

    TOPOLOGY = "generate.topology"
    SEED = "generate.seed"
    ENVIRONMENT = "generate.environment"
    GATE = "filter.gates"
    VERIFIER = "filter.verifiers"
    STEPS = "filter.steps"
    JUDGE = "filter.judge"
    VALUE = "filter.value"
    SHAPE = "filter.shape"
    CREDIT = "filter.credit"
    CREDIT_BATCH = "filter.credit_batch"
    SELECT = "control.select"
    ALLOCATE = "control.allocate"
    CONFIGURE = "control.configure"
    STOP = "control.stop"
    REFILL = "control.refill"
    OFF_POLICY = "control.off_policy"
    MIX = "control.mix"
    FAILURES = "control.failures"
    STORE = "replay.store"
    AUGMENT = "replay.augment"


class Faithfulness(StrEnum):
    CONFIRMED = "confirmed"
    """Formulas and constants as published or in the official code."""
    PARTLY = "partly"
    """Some constants or formulas are our best understanding; the settings say which."""
    OURS = "ours"


@dataclass(frozen=True)
class Method:
    """What is known about a method besides its code."""

    name: str
    slot: Slot
    title: str
    """Published name."""
    criterion: str
    """Survey criterion it serves: `reliability`, `coverage` or `cost`."""
    faithfulness: Faithfulness
    arxiv: str | None = None
    """arXiv id; None where there is no paper."""
    needs: frozenset[str] = frozenset()
    """Engine features it needs (engine/contract.py, `Capabilities.features`)."""
    traits: frozenset[str] = frozenset()
    """Declared properties the composition check works on (compose.py)."""
    settings: type[FrozenModel] = Settings
    cls: type | None = field(default=None, compare=False)


C = TypeVar("C", bound=type)


def method(
    name: str,
    slot: Slot,
    *,
    title: str,
    criterion: str,
    faithfulness: Faithfulness,
    arxiv: str | None = None,
    needs: Iterable[str] = (),
    traits: Iterable[str] = (),
) -> Callable[[C], C]:
    """Attach metadata to a method's class. The class may have a nested `Settings` and is built as
    `cls(settings, context)`."""

    def attach(cls: C) -> C:
        settings = getattr(cls, "Settings", Settings)
        found = Method(name, slot, title, criterion, faithfulness, arxiv, frozenset(needs), frozenset(traits), settings, cls)
        cls.method = found  # type: ignore[attr-defined]
        return cls

    return attach


# One line per built-in method: slot -> name -> module:class.
INDEX: dict[Slot, dict[str, str]] = {
    Slot.TOPOLOGY: {
        "linear": "gfcr.generate.topology:Linear",
        "group": "gfcr.generate.topology:GroupTopology",
        "treepo": "gfcr.generate.trees.treepo:TreePOTopology",
        "treerl": "gfcr.generate.trees.treerl:TreeRLTopology",
        "treerpo": "gfcr.generate.trees.treerpo:TreeRPOTopology",
        "best-first": "gfcr.generate.trees.best_first:BestFirst",
        "tree-grpo": "gfcr.generate.trees.agents:TreeGRPO",
        "interactive": "gfcr.generate.interactive.topology:Interactive",
        "n-best": "gfcr.generate.sampling.nbest:NBest",
        "power": "gfcr.generate.sampling.power:PowerSampling",
        "plan": "gfcr.generate.guidance.plan:Plan",
        "reflect": "gfcr.generate.guidance.reflect:Reflect",
    },
    Slot.SEED: {
        "hint": "gfcr.generate.guidance.hint:Hint",
        "examples": "gfcr.generate.guidance.examples:Examples",
        "mode": "gfcr.generate.guidance.mode:Mode",
    },
    Slot.ENVIRONMENT: {
        "calculator": "gfcr.environments.calculator:Calculator",
        "python": "gfcr.environments.python:Python",
        "registers": "gfcr.environments.registers:Registers",
        "repair": "gfcr.environments.repair:Repair",
        "sqlite": "gfcr.environments.sqlite:SQLite",
    },
    Slot.GATE: {
        "format": "gfcr.filter.verifiers.exact:Format",
        "answer-tags": "gfcr.filter.verifiers.gym:AnswerTags",
        "parse": "gfcr.filter.gates.parse:Parse",
        "sections": "gfcr.filter.gates.parse:Sections",
        "json-schema": "gfcr.filter.gates.schema:JsonSchema",
        "code-compiles": "gfcr.filter.gates.code:CodeCompiles",
        "sql-parses": "gfcr.filter.gates.code:SqlParses",
        "tool-call": "gfcr.filter.gates.tools:ToolCall",
        "repetition": "gfcr.filter.gates.loops:Repetition",
        "language": "gfcr.filter.gates.language:Language",
        "length": "gfcr.filter.gates.length:Length",
    },
    Slot.VERIFIER: {
        "exact": "gfcr.filter.verifiers.exact:Exact",
        "answer": "gfcr.filter.verifiers.answer:Answer",
        "math": "gfcr.filter.verifiers.math.verifier:Math",
        "choice": "gfcr.filter.verifiers.choice.verifier:Choice",
        "structured": "gfcr.filter.verifiers.structured.verifier:Structured",
        "vision": "gfcr.filter.verifiers.vision.verifier:Vision",
        "code": "gfcr.filter.verifiers.code.verifier:Code",
        "reasoning-gym": "gfcr.filter.verifiers.gym:GymVerifier",
        "sql": "gfcr.filter.verifiers.sql.verifier:Sql",
        "environment": "gfcr.filter.verifiers.environment:EnvironmentVerdict",
        "http": "gfcr.filter.verifiers.http:Http",
        "model": "gfcr.filter.verifiers.model.verifier:ModelVerifier",
        "noisy": "gfcr.filter.verifiers.noisy:Noisy",
    },
    Slot.STEPS: {"program-steps": "gfcr.filter.verifiers.exact:ProgramSteps"},
    Slot.JUDGE: {},
    Slot.VALUE: {},
    Slot.SHAPE: {
        "soft-overlong": "gfcr.filter.shape.length:SoftOverlong",
        "kimi-length": "gfcr.filter.shape.length:KimiLength",
        "cosine-length": "gfcr.filter.shape.length:CosineLength",
        "step-score": "gfcr.filter.shape.steps:StepScoreShape",
        "turn-rewards": "gfcr.filter.shape.steps:TurnRewards",
        "noise-correction": "gfcr.filter.shape.noise:NoiseCorrection",
    },
    Slot.CREDIT: {
        "grpo": "gfcr.filter.credit.group:GRPO",
        "dr-grpo": "gfcr.filter.credit.group:DrGRPO",
        "rloo": "gfcr.filter.credit.group:RLOO",
        "reinforce-pp": "gfcr.filter.credit.reinforce:ReinforcePlusPlus",
        "reinforce-pp-baseline": "gfcr.filter.credit.reinforce:ReinforcePlusPlusBaseline",
        "maxrl": "gfcr.filter.credit.success:MaxRL",
        "pass-at-k": "gfcr.filter.credit.success:PassAtK",
        "gdpo": "gfcr.filter.credit.gdpo:GDPO",
        "treerl": "gfcr.filter.credit.tree:TreeRL",
        "treerpo": "gfcr.filter.credit.tree:TreeRPO",
        "treepo": "gfcr.filter.credit.tree:TreePO",
        "tree-grpo": "gfcr.filter.credit.tree:TreeGRPO",
        "grpo-process": "gfcr.filter.credit.process:ProcessGRPO",
        "gigpo": "gfcr.filter.credit.gigpo:GiGPO",
        "seed-grpo": "gfcr.filter.credit.seed:SeedGRPO",
        "gae": "gfcr.filter.credit.gae:GAE",
        "pairs": "gfcr.filter.credit.pairs:PreferencePairs",
        "rejection": "gfcr.filter.credit.supervised:Rejection",
        "awr": "gfcr.filter.credit.supervised:AdvantageWeighted",
    },
    Slot.CREDIT_BATCH: {
        "whiten": "gfcr.filter.credit.batch:Whiten",
        "xrpo-sharpening": "gfcr.filter.credit.adjust:Sharpening",
        "evidence": "gfcr.filter.credit.adjust:Evidence",
        "imitation": "gfcr.filter.credit.imitation:Imitation",
        "withhold-wrong-steps": "gfcr.filter.credit.adjust:Withhold",
    },
    Slot.SELECT: {
        "uniform": "gfcr.control.select.uniform:Uniform",
        "informative": "gfcr.control.select.informative:Informative",
        "mopps": "gfcr.control.select.mopps:MoPPS",
        "oracle": "gfcr.control.select.oracle:Oracle",
    },
    Slot.ALLOCATE: {
        "uniform": "gfcr.control.allocate:UniformAllocation",
        "greedy": "gfcr.control.greedy:GreedyAllocation",
        "staged": "gfcr.control.allocate:StagedAllocation",
    },
    Slot.CONFIGURE: {
        "schedule": "gfcr.control.configure.schedule:Schedule",
        "within": "gfcr.control.configure.places:Within",
        "by-turn": "gfcr.control.configure.places:ByTurn",
        "by-category": "gfcr.control.configure.tasks:ByCategory",
        "uncertain": "gfcr.control.configure.tasks:Uncertain",
    },
    Slot.STOP: {},
    Slot.REFILL: {
        "dynamic-sampling": "gfcr.control.refill:DynamicSampling",
        "reward-spread": "gfcr.control.spread:RewardSpread",
    },
    Slot.OFF_POLICY: {},
    Slot.MIX: {},
    Slot.FAILURES: {
        "retry": "gfcr.control.failures:Retry",
        "minimum-group": "gfcr.control.failures:MinimumGroup",
        "fail-fast": "gfcr.control.failures:FailFast",
    },
    Slot.STORE: {"correct": "gfcr.replay.store_rules:CorrectAnswers"},
    Slot.AUGMENT: {"ar3po": "gfcr.replay.ar3po:AR3PO", "reference": "gfcr.replay.reference:Reference"},
}

FUNCTIONS: dict[Slot, str] = {
    Slot.GATE: "gfcr.filter.verifiers.function:gate",
    Slot.VERIFIER: "gfcr.filter.verifiers.function:verifier",
    Slot.SELECT: "gfcr.control.select.function:selector",
}
"""Slots that a plain function can fill, and what makes a method of it: place -> Method."""


@cache
def _plugins() -> dict[tuple[Slot, str], EntryPoint]:
    """Third-party methods by slot and name."""
    found: dict[tuple[Slot, str], EntryPoint] = {}
    for entry in entry_points(group="gfcr.methods"):
        slot, _, name = entry.name.rpartition(".")
        if slot not in set(Slot):
            raise ConfigError(
                f"entry point {entry.name!r} (from {entry.value}) names no slot",
                f"name it SLOT.METHOD with SLOT one of: {', '.join(Slot)}",
            )
        if name in INDEX[Slot(slot)]:
            raise ConfigError(
                f"entry point {entry.name!r} (from {entry.value}) takes the name of a built-in method",
                "give the method another name",
            )
        found[Slot(slot), name] = entry
    return found


def names(slot: Slot) -> list[str]:
    """All method names of a slot."""
    return sorted([*INDEX[slot], *(name for s, name in _plugins() if s is slot)])


def find(slot: Slot, name: str) -> Method:
    """The method; raises ConfigError with the nearest names for an unknown one."""
    if is_place(name):
        return _placed(slot, name)
    if target := INDEX[slot].get(name):
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute).method
    if entry := _plugins().get((slot, name)):
        return _loaded(entry, slot, name)
    near = difflib.get_close_matches(name, names(slot), 1)
    known = ", ".join(names(slot)) or "none is built in; add one through the entry-point group gfcr.methods"
    raise ConfigError(f"{slot}: there is no method {name!r}", f"did you mean {near[0]!r}?" if near else f"known: {known}")


@cache
def _placed(slot: Slot, place: str) -> Method:
    """The method that stands at a place in code: a decorated class, or a function that the slot takes."""
    found = load_place(place)
    own = getattr(found, "method", None)
    if isinstance(own, Method):
        if own.slot is not slot:
            raise ConfigError(f"{place} is a method of {own.slot}, named in {slot}", f"name it in {own.slot}")
        return replace(own, name=place)
    if isinstance(found, type) or slot not in FUNCTIONS:
        takes = f"; plain functions go into {', '.join(FUNCTIONS)}" if slot not in FUNCTIONS else ""
        raise ConfigError(
            f"{slot}: {place} is {found!r}, which is no method", f"decorate a class with gfcr.registry.method{takes}"
        )
    module, _, attribute = FUNCTIONS[slot].partition(":")
    made: Method = getattr(importlib.import_module(module), attribute)(place)
    return made


def _loaded(entry: EntryPoint, slot: Slot, name: str) -> Method:
    """A third party's method; raises ConfigError that names the entry point when it is none."""
    where = f"entry point {entry.name!r} ({entry.value}, of {entry.dist.name if entry.dist else 'an unknown package'})"
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise ConfigError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}", "correct or uninstall that package"
        ) from error
    found = getattr(loaded, "method", None)
    if not isinstance(found, Method):
        raise ConfigError(f"{where} is {loaded!r}, which is no method", "decorate the class with gfcr.registry.method")
    if (found.slot, found.name) != (slot, name):
        raise ConfigError(
            f"{where} gives the method {found.name!r} of {found.slot}", f"name the entry point {found.slot}.{found.name}"
        )
    return found


def settings_of(found: Method, values: dict[str, Any]) -> FrozenModel:
    """A method's settings from a recipe's values; raises ConfigError that names the key."""
    try:
        return found.settings.model_validate(values)
    except ValidationError as error:
        hint = f"`gfcr methods --slot {found.slot}` lists the settings"
        raise config_error(error, f"{found.slot} {found.name!r}", found.settings, hint) from None


def all_methods() -> list[Method]:
    return [find(slot, name) for slot in Slot for name in names(slot)]
