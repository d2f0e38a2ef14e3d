"""Does a recipe compose? What the composition check reads of it, and what its own sections say that cannot be. Invariant: neither model
nor tasks are needed."""

from __future__ import annotations

from gfcr.build_engine import engine_findings
from gfcr.compose import Facts, Finding, check
from gfcr.engine import features_of
from gfcr.errors import ConfigError
from gfcr.recipe import Recipe
from gfcr.registry import Slot, find, settings_of
from gfcr.types import Sampling


def facts(recipe: Recipe, trains: bool = True) -> Facts:
    """What the composition check reads of a recipe. `trains`: something learns from what is sampled."""
    return Facts(
        recipe.methods(),
        recipe.k,
        sampling_of(recipe),
        recipe.train.tis_cap is not None,
        recipe.train.ratio_base,
        features_of(recipe.engine.name, recipe.engine.http is None or recipe.engine.http.token_ids),
        recipe.engine.name,
        recipe.filter.admission.drop_zero_variance,
        recipe.filter.admission.invalid_reward,
        recipe.loss,
        recipe.train,
        recipe.loss.normalise,
        recipe.loss.constant,
        recipe.loss.packed,
        recipe.generate.partial,
        recipe.generate.stop_strings,
        trains,
    )


def check_recipe(recipe: Recipe, trains: bool = True) -> list[Finding]:
    """All reasons why the recipe's parts do not go together; empty = it composes. Needs no model and no tasks. `trains`: as in `facts`."""
    findings = check(facts(recipe, trains))
    if recipe.budget.tokens is None and recipe.budget.steps is None:
        findings.append(Finding("no_budget", "neither budget.tokens nor budget.steps limits the run", "set budget.tokens"))
    if recipe.control.min_groups is not None and recipe.control.min_groups > recipe.control.groups:
        findings.append(
            Finding(
                "min_groups",
                f"control.min_groups = {recipe.control.min_groups} exceeds control.groups = "
                f"{recipe.control.groups}: no round could start",
                "lower control.min_groups",
            )
        )
    findings += engine_findings(recipe)
    if not recipe.filter.verifiers:
        findings.append(
            Finding(
                "nobody_judges",
                "filter.verifiers is empty: no answer would get a verdict, and the whole budget would be spent on none",
                'name a verifier, for example filter.verifiers = [{name = "math"}]; `gfcr methods --slot filter.verifiers` lists them',
            )
        )
    findings += _rates_of_strangers(recipe)
    asked = recipe.filter.cascade
    if (asked.appeal and len(recipe.filter.verifiers) < 2) or (
        asked.escalate > 0 and len(recipe.filter.verifiers) + bool(recipe.filter.gates) < 2
    ):
        findings.append(
            Finding(
                "nothing_dearer",
                f"filter.cascade.{'appeal' if asked.appeal else 'escalate'} with {len(recipe.filter.verifiers)} verifier: there is no "
                "dearer one to ask",
                "name a second, dearer verifier after the cheap one, or leave the setting out",
            )
        )
    if recipe.filter.cascade.escalate == 0 and any(getattr(settings, "measured", False) for _, settings in recipe.methods()):
        findings.append(
            Finding(
                "rates_of_nobody",
                "filter.shape has measured = true, and filter.cascade.escalate = 0: nobody would measure how often verifiers err",
                "set filter.cascade.escalate, for example to 0.1, or give the rates in by",
            )
        )
    worst = group_tokens(recipe)
    if recipe.budget.tokens is not None and recipe.budget.tokens < worst * (recipe.control.min_groups or 1):
        findings.append(
            Finding(
                "budget_too_small",
                f"budget.tokens = {recipe.budget.tokens} cannot carry one round's smallest batch "
                f"(K = {recipe.k} answers of up to {recipe.generate.max_tokens} tokens per group, {worst} in all)",
                "raise budget.tokens, or lower K, generate.max_tokens or control.min_groups",
            )
        )
    return findings


def _rates_of_strangers(recipe: Recipe) -> list[Finding]:
    """Error rates given for a verifier that the recipe does not have would correct nothing, and say nothing."""
    methods = list(recipe.methods())
    speakers = [(m, s) for m, s in methods if m.slot is Slot.VERIFIER]
    known = [getattr(s, "label", None) or getattr(m.cls, "name", None) for m, s in speakers]
    if not all(isinstance(name, str) for name in known):
        return []  # one of them speaks under a name that only its object knows
    return [
        Finding(
            "rates_of_strangers",
            f"filter.shape.by has {name!r}, and filter.verifiers has nothing of that name: {', '.join(map(str, known)) or 'it is empty'}",
            "give rates by the name of a verifier of the recipe",
        )
        for method, settings in methods
        if method.slot is Slot.SHAPE
        for name in getattr(settings, "by", ())
        if name not in known
    ]


def refuse(recipe: Recipe, trains: bool = True) -> None:
    """Raise ConfigError with every finding when the recipe does not compose. `trains`: as in `facts`."""
    findings = check_recipe(recipe, trains)
    if len(findings) == 1:
        raise ConfigError(f"the recipe {recipe.name!r} does not compose: {findings[0].why}", findings[0].remedy)
    if findings:
        lines = "".join(f"\n  {i}. {f.why}" for i, f in enumerate(findings, 1))
        remedies = "".join(f"\n  {i}. {f.remedy}" for i, f in enumerate(findings, 1))
        raise ConfigError(f"the recipe {recipe.name!r} does not compose:{lines}", remedies)


def sampling_of(recipe: Recipe) -> Sampling:
    try:
        return Sampling(**recipe.generate.sampling.model_dump())
    except ValueError as error:
        raise ConfigError(f"generate.{error}", "give a value in that range") from None


def group_tokens(recipe: Recipe) -> int:
    """Most tokens a group generates in one allocation: what the topology's settings say, else K answers."""
    topology = settings_of(find(Slot.TOPOLOGY, recipe.generate.topology.name), recipe.generate.topology.values())
    worst, longest = getattr(topology, "worst_tokens", None), recipe.generate.in_one_round
    return recipe.k * longest if worst is None else int(worst(longest))
