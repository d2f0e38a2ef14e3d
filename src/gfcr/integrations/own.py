"""Rounds for a trainer of one's own, from a recipe and a model.

    rounds = gfcr.rounds("grpo", "runs/rounds", model)

Invariants: the recipe is refused before a model is copied or a directory made; importing this loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfcr.build import refuse, rollout_parts
from gfcr.generate.render import TokenizerRenderer
from gfcr.integrations.carry import foreign_recipe
from gfcr.integrations.rounds import Rounds
from gfcr.recipe import Recipe
from gfcr.task_sets import load_tasks


def rounds(
    recipe: str | Path | Recipe,
    path: str | Path | None,
    model: Any,
    *,
    tokenizer: Any = None,
    seed: int = 0,
    set: Sequence[str] = (),
    any_environment: bool = False,
    any_weights: bool = False,
) -> Rounds:
    """Rounds for a trainer of one's own: `publish` the weights, take the `next` batch, train, until `next` gives None.

    recipe, seed, set: as for `session`. path: the rounds' run directory, made or continued (`resume_at`); None = nothing is kept.
    model: a transformers model, with a peft adapter or without; the engine serves a copy of its shape, on its device, and learns its
    weights from `publish`. tokenizer: by default the one of `model.path` in the recipe.
    any_environment, any_weights: see Rounds. What the loss must read is in the batch (types/batch.py); `train.*` of the recipe is yours to heed.
    An adapter is the model's (peft), not the recipe's.
    Raises ConfigError, DataError or RunDirectoryError with a remedy.
    """
    from gfcr.engine.models import load_tokenizer, model_path
    from gfcr.integrations.weights import twin_engine

    made = foreign_recipe(recipe, set)
    refuse(made)
    if tokenizer is None:
        tokenizer = load_tokenizer(model_path(made.model.path))
    engine = twin_engine(made, model, TokenizerRenderer(tokenizer).decoder())
    return Rounds(
        rollout_parts(made, seed, load_tasks(made.tasks), tokenizer, engine, model), path, any_environment, any_weights
    )
