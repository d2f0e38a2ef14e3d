"""What a recipe asks of the trainer it feeds, and what an exporter can carry there.

Invariants: an exporter names what it carries, everything else is refused in one sentence before the first token; what a recipe
cannot be seen to need (a method that declares nothing) is found in the first batch, and refused there instead of being dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from gfcr.doors import recipe_from
from gfcr.errors import ConfigError, leave_out
from gfcr.recipe import Recipe
from gfcr.registry import Slot
from gfcr.types import Batch, Normalise


class Need(StrEnum):
    """Something a batch may hold that a foreign trainer may have no place for."""

    SELECTION = "its own choice of tasks"
    UNEVEN = "groups of different sizes"
    DROPPED = "members that leave the loss and its denominator"
    INJECTED = "members that the current policy did not sample"
    OFF_POLICY = "off-policy weights"
    PER_TOKEN = "advantages by token"
    CREDIT = "advantages of its own making"
    CROSS_ENTROPY = "cross-entropy weights"
    PREFERENCES = "preference pairs"
    MEDIA = "images or video"
    TEMPERATURES = "answers of several temperatures"


@dataclass(frozen=True)
class Exporter:
    """A way into a foreign trainer."""

    name: str
    carries: frozenset[Need]
    normalise: frozenset[Normalise]
    """Ways of averaging the loss that the trainer has."""
    instead: str
    """What to do with a recipe that needs more."""


def foreign_recipe(recipe: str | Path | Recipe, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by name, file or itself. Raises ConfigError for one that asks gfcr's own trainer for an adapter."""
    found = recipe_from(recipe, overrides)
    if found.train.lora is not None:
        raise ConfigError(
            "train.lora is an adapter of gfcr's own trainer, and here another one trains the model",
            f"give that trainer a peft adapter (TRL: peft_config), and {leave_out('train.lora')}",
        )
    return found


def needs(recipe: Recipe) -> dict[Need, str]:
    """What the recipe's parts need of the trainer: need -> the part that asks for it, in words."""
    out: dict[Need, str] = {}
    for need, trait in _TRAITS:
        if found := [f"{m.slot} = {m.name!r}" for m, settings in recipe.methods() if trait in m.traits | settings.traits()]:
            out.setdefault(need, found[0])
    control, filters = recipe.control, recipe.filter
    if control.select.name != "uniform":  # any other order than the foreign data loader's own
        out.setdefault(Need.SELECTION, f"control.select = {control.select.name!r}")
    if control.allocate.name != "uniform":
        out.setdefault(Need.UNEVEN, f"control.allocate = {control.allocate.name!r}")
    if control.stop is not None:
        out.setdefault(Need.DROPPED, f"control.stop = {control.stop.name!r}")
    if control.mix is not None:
        out.setdefault(Need.INJECTED, f"control.mix = {control.mix.name!r}")
    if control.off_policy is not None:
        out.setdefault(Need.OFF_POLICY, f"control.off_policy = {control.off_policy.name!r}")
    if filters.admission.drop_zero_variance:
        out.setdefault(Need.DROPPED, "filter.admission.drop_zero_variance = true")
    if filters.admission.overlong == "mask":
        out.setdefault(Need.DROPPED, "filter.admission.overlong = 'mask'")
    if not trl_credit(recipe):
        out.setdefault(Need.CREDIT, f"filter.credit = {filters.credit.name!r} with {filters.credit.values() or 'its defaults'}")
    for ref in recipe.slots()[Slot.CREDIT_BATCH]:
        out.setdefault(Need.CREDIT, f"filter.credit_batch = {ref.name!r}")
    return out


_TRAITS: tuple[tuple[Need, str], ...] = (
    (Need.UNEVEN, "uneven groups"),
    (Need.UNEVEN, "breaks: iid group"),
    (Need.UNEVEN, "refills"),
    (Need.UNEVEN, "group of one"),
    (Need.INJECTED, "injects"),
    (Need.INJECTED, "guides"),
    (Need.OFF_POLICY, "weighs off-policy"),
    (Need.PER_TOKEN, "per-token advantages"),
    (Need.PER_TOKEN, "needs: value head"),
    (Need.CROSS_ENTROPY, "cross-entropy weights"),
    (Need.PREFERENCES, "preference pairs"),
    (Need.TEMPERATURES, "changes temperature"),
)
"""Traits that tell of a need; without them it shows in the batch (`refuse_batch`)."""


def trl_credit(recipe: Recipe) -> str | None:
    """TRL's `scale_rewards` that gives this recipe's advantages: `group` or `none`; None when TRL has no such advantages."""
    credit = recipe.filter.credit
    found = {m.name: settings for m, settings in recipe.methods() if m.slot == "filter.credit"}[credit.name]
    if credit.name == "dr-grpo":
        return "none"
    same = credit.name == "grpo" and getattr(found, "std", "") == "sample" and getattr(found, "eps", 0.0) == 1e-4
    return "group" if same else None


def refuse(recipe: Recipe, exporter: Exporter) -> None:
    """Raise ConfigError when the recipe needs what the exporter does not carry."""
    lacking = [f"{what} ({part})" for what, part in needs(recipe).items() if what not in exporter.carries]
    if lacking:
        raise ConfigError(
            f"{exporter.name} cannot carry {' nor '.join(lacking)}, which the recipe {recipe.name!r} asks for",
            exporter.instead,
        )
    own = {
        "loss.kind": (recipe.loss.kind, "ppo"),
        "train.value": (recipe.train.value, None),
        "train.dual_clip": (recipe.train.dual_clip, None),
    }
    for name, (given, usual) in own.items():
        if given != usual:
            raise ConfigError(
                f"{exporter.name} cannot carry {name}{f' = {given!r}' if isinstance(given, str) else ''}: that is a part of gfcr's own trainer, and the loss is TRL's",
                f"{leave_out(name, usual)}; TRL has a loss_type of its own; or train with gfcr's own trainer (`gfcr run`)",
            )
    if recipe.loss.packed:
        raise ConfigError(f"{exporter.name} cannot carry packed rows (loss.packed = true)", "set loss.packed = false")
    if (how := recipe.loss.normalise) not in exporter.normalise:
        raise ConfigError(
            f"{exporter.name} cannot average the loss as loss.normalise = {str(how)!r} says",
            f"set loss.normalise to one of: {', '.join(sorted(exporter.normalise))}; or {exporter.instead}",
        )


def refuse_batch(batch: Batch, exporter: Exporter) -> None:
    """Raise ConfigError when a batch holds what the exporter does not carry."""
    for need, holds in _IN_BATCH.items():
        if need not in exporter.carries and holds(batch):
            raise ConfigError(f"{exporter.name} cannot carry {need}, and round {batch.round} has them", exporter.instead)
    if batch.parents is not None:
        raise ConfigError(f"{exporter.name} cannot carry packed trees", "hand over one row per member (packed = False)")


def _varies(batch: Batch) -> bool:
    """Whether a row's tokens have different weighted advantages."""
    values, rows = batch.advantages * batch.rl_weights, batch.row_of_token()
    return any(np.ptp(values[(rows == i) & batch.rl_mask]) > 0 for i in range(len(batch)) if batch.rl_mask[rows == i].any())


_IN_BATCH: dict[Need, Callable[[Batch], bool]] = {
    Need.PER_TOKEN: _varies,
    Need.CROSS_ENTROPY: lambda batch: bool(batch.ce_weights.any()),
    Need.PREFERENCES: lambda batch: bool(batch.preferences),
    Need.MEDIA: lambda batch: bool(batch.media),
    Need.TEMPERATURES: lambda batch: len(np.unique(batch.temperature[batch.rl_mask & ~np.isnan(batch.temperature)])) > 1,
}
