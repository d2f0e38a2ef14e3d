"""What is compared: arms, variations, seeds, and where each run lies.

Invariants: all runs spend the same token budget and are measured on the same held-out tasks in the same way, else the plan is
refused; a directory belongs to one plan's recipes (more seeds and more variations may be added, a changed recipe is refused);
a cell's recipe is frozen to a file before it runs, so that editing the source later changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError, DataError
from gfcr.recipe import Recipe, load, parse

PLAN = "plan.json"
BASE = "base"
"""Label of the only variation when nothing is varied."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One setting of what is varied."""

    label: str
    recipe: Recipe
    file: Path
    """Where the frozen recipe lies."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One recipe with its variations."""

    name: str
    variations: tuple[Variation, ...]

    @property
    def privileged(self) -> bool:
        """Whether it reads labels that no method may have: a yardstick."""
        return any("uses privileged labels" in method.traits for method, _ in self.variations[0].recipe.methods())

    @property
    def solutions(self) -> bool:
        """Whether a method of it reads the tasks' solutions, which others do not have."""
        return any("reads solutions" in method.traits for method, _ in self.variations[0].recipe.methods())


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    arm: str
    variation: Variation
    seed: int
    directory: Path

    @property
    def name(self) -> str:
        label = "" if self.variation.label == BASE else f" {self.variation.label}"
        return f"{self.arm}{label} seed {self.seed}"

    @property
    def log(self) -> Path:
        """What the child printed."""
        return self.directory.with_name(f"{self.directory.name}.log")


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a comparison but its results."""

    out: Path
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    budget: int
    """Generated tokens of each run."""

    def cells(self) -> Iterator[Cell]:
        """Every run; seed by seed, so that an interrupted comparison has whole pairs."""
        for seed in self.seeds:
            for arm in self.arms:
                for variation in arm.variations:
                    yield Cell(arm.name, variation, seed, variation.file.with_name(f"seed-{seed}"))

    def write(self) -> None:
        """Freeze the recipes. Raises ConfigError when the directory holds another plan's recipes."""
        known = {}
        if (self.out / PLAN).exists():
            before = read_plan(self.out)
            known = {(a.name, v.label): v.recipe.hash() for a in before.arms for v in a.variations}
        elif self.out.exists() and any(self.out.iterdir()):
            raise ConfigError(f"{self.out} exists, is not empty and holds no comparison", "choose another --out")
        for arm in self.arms:
            for variation in arm.variations:
                if known.get((arm.name, variation.label), variation.recipe.hash()) != variation.recipe.hash():
                    raise ConfigError(
                        f"{variation.file.parent} holds runs of another recipe {arm.name!r} ({variation.label})",
                        "choose another --out, or undo the change to the recipe",
                    )
                variation.file.parent.mkdir(parents=True, exist_ok=True)
                variation.file.write_text(json.dumps(variation.recipe.frozen(), indent=2) + "\n", encoding="utf-8")
        data = {
            "schema": 1,
            "budget": self.budget,
            "seeds": self.seeds,
            "arms": [
                {
                    "name": arm.name,
                    "variations": [{"label": v.label, "recipe": str(v.file.relative_to(self.out))} for v in arm.variations],
                }
                for arm in self.arms
            ],
        }
        (self.out / PLAN).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def read_plan(out: Path) -> Plan:
    """The plan a directory was made for. Raises DataError when there is none."""
    try:
        data = json.loads((out / PLAN).read_text(encoding="utf-8"))
        arms = tuple(
            Arm(
                arm["name"],
                tuple(
                    Variation(
                        v["label"],
                        parse(json.loads((out / v["recipe"]).read_text(encoding="utf-8")), str(out / v["recipe"])),
                        out / v["recipe"],
                    )
                    for v in arm["variations"]
                ),
            )
            for arm in data["arms"]
        )
        return Plan(out, arms, tuple(data["seeds"]), data["budget"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{out / PLAN} is not the plan of a comparison: {type(error).__name__}: {error}",
            "give the directory that `gfcr compare --out` made",
        ) from None


def make_plan(
    recipes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    budget: int | None = None,
) -> Plan:
    """The plan of a comparison. Raises ConfigError for whatever would make it unfair or ambiguous."""
    if not recipes:
        raise ConfigError("nothing to compare", "name at least one recipe")
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ConfigError(
            f"--seeds {','.join(map(str, seeds))} is empty or names a seed twice", "give each seed once, e.g. --seeds 0,1,2"
        )
    common = [*overrides, *([] if budget is None else [f"budget.tokens={budget}"])]
    settings = variations(vary)
    arms: list[Arm] = []
    for recipe in recipes:
        varied = [(label, load(recipe, [*common, *chosen])) for label, chosen in settings]
        name = varied[0][1].name
        if name in (taken := [arm.name for arm in arms]):
            raise ConfigError(
                f"{recipes[taken.index(name)]} and {recipe} both have the name {name!r}",
                'give each its own: write `name = "..."` with another name into one of the files (--set name=... names them all alike); '
                "to compare settings of one recipe use --vary",
            )
        if slug(name) in [slug(arm.name) for arm in arms]:
            raise ConfigError(
                f"the recipe name {name!r} differs from another one only in characters a path cannot have", "rename one"
            )
        arms.append(
            Arm(name, tuple(Variation(label, each, out / slug(name) / slug(label) / "recipe.json") for label, each in varied))
        )
    return Plan(out, tuple(arms), tuple(seeds), _same_terms(arms))


def _same_terms(arms: Sequence[Arm]) -> int:
    """The budget all runs share; refuses arms that differ in budget, tasks or measurement."""
    first = arms[0].variations[0].recipe
    for arm in arms:
        for variation in arm.variations:
            recipe = variation.recipe
            if recipe.budget != first.budget:
                raise ConfigError(
                    f"unequal budgets: {arms[0].name!r} has {_budget(first)}, {arm.name!r} has {_budget(recipe)}",
                    "give all the same with --budget TOKENS",
                )
            for section in ("tasks", "evaluate"):
                ours, theirs = getattr(first, section).model_dump(), getattr(recipe, section).model_dump()
                if differ := [key for key in ours if ours[key] != theirs[key]]:
                    key = differ[0]
                    raise ConfigError(
                        f"{arms[0].name!r} and {arm.name!r} are not measured alike: {section}.{key} is {ours[key]!r} "
                        f"and {theirs[key]!r}",
                        f"set it for all, e.g. --set {section}.{key}={ours[key]}",
                    )
    if first.budget.tokens is None:
        raise ConfigError("a comparison needs a token budget, and the recipes have none", "give --budget TOKENS")
    return first.budget.tokens


def _budget(recipe: Recipe) -> str:
    parts = [f"{value} {name}" for name, value in recipe.budget.model_dump().items() if value is not None]
    return " and ".join(parts) or "none"


def variations(vary: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(label, overrides) of every combination; `["train.lr=3e-4,6e-4"]` gives two, nothing gives one."""
    axes: list[list[tuple[str, str]]] = []
    for text in vary:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not all(parts := split_values(values)):
            raise ConfigError(f"--vary {text!r} is not KEY=VALUE,VALUE,...", "write for example --vary train.lr=3e-4,6e-4,1e-3")
        if len(set(parts)) != len(parts):
            raise ConfigError(f"--vary {text!r} names a value twice", "give each value once")
        if key.strip().split(".")[0] in ("budget", "name", "schema"):
            raise ConfigError(
                f"--vary {key.strip()}: arms are compared at equal budgets and under their names", "vary another key"
            )
        axes.append([(key.strip(), value) for value in parts])
    if len({axis[0][0] for axis in axes}) != len(axes):
        raise ConfigError("--vary names a key twice", "give all its values in one --vary")
    out = []
    for combination in product(*axes):
        label = " ".join(f"{key}={value}" for key, value in combination) or BASE
        out.append((label, [f"{key}={value}" for key, value in combination]))
    return out


def split_values(text: str) -> list[str]:
    """Values at the commas outside brackets, braces and quotes."""
    out, depth, quote, current = [], 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and depth == 0:
            out.append(current.strip())
            current = ""
            continue
        current += char
    return [*out, current.strip()]


def parse_seeds(text: str) -> list[int]:
    """`0,1,2` and `0-4` in any mixture. Raises ConfigError."""
    out: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not found:
            raise ConfigError(f"--seeds {text!r}: {part!r} is no seed", "write for example --seeds 0,1,2 or --seeds 0-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > 10_000:
            raise ConfigError(f"--seeds {text!r}: the range {part!r} is empty or too long", "write the lower seed first")
        out += range(first, last + 1)
    return out


def slug(text: str) -> str:
    """A name as one path component."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "_", text).strip(".") or "_"


def describe(recipe: Recipe) -> list[dict[str, Any]]:
    """The methods of a recipe in words, for tables and pages."""
    return [
        {"slot": str(m.slot), "name": m.name, "title": m.title, "arxiv": m.arxiv, "settings": s.model_dump(mode="json")}
        for m, s in recipe.methods()
    ]
