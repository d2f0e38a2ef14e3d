"""A recipe's words in TRL's: the configurations that make TRL's trainers do what the recipe says.

Invariants: what TRL has no word for is refused, never dropped; whatever the caller passes wins, and is checked against the recipe
where a difference would change what is trained on (`check_args`).
"""

from __future__ import annotations

from typing import Any

from trl import GRPOConfig
from trl.experimental.async_grpo import AsyncGRPOConfig

from gfcr.errors import ConfigError
from gfcr.integrations.carry import foreign_recipe, trl_credit
from gfcr.recipe import Recipe
from gfcr.types import Normalise

LOSS_TYPES = {Normalise.TOKEN_MEAN: "dapo", Normalise.SEQUENCE_MEAN: "grpo", Normalise.CONSTANT: "dr_grpo"}
"""TRL's `loss_type` that averages alike: `dapo` over all loss tokens of the generation batch, `grpo` over a sequence and then over
sequences, `dr_grpo` by rows times `max_completion_length`."""
AVERAGES = {
    **{name: how for how, name in LOSS_TYPES.items()},
    "bnpo": Normalise.TOKEN_MEAN,
    "cispo": Normalise.TOKEN_MEAN,
    "vespo": Normalise.TOKEN_MEAN,
    "sapo": Normalise.SEQUENCE_MEAN,
}
"""How each `loss_type` averages; `luspo` sums over tokens and has no counterpart here."""
ENDLESS = 10**9
"""Optimiser steps of a run that a token budget ends."""


def grpo_config(recipe: str | Recipe, output_dir: str, **overrides: Any) -> GRPOConfig:
    """The GRPOConfig of a recipe: its optimiser, clipping, KL, minibatches, lengths and sampling.

    One generation batch is one round: `train.minibatches` becomes `steps_per_generation`, `train.epochs` `num_iterations`. The
    machine's affairs (`use_cpu`, `bf16`, `report_to`, `save_steps`, ...) are yours: pass them as `overrides`, which win. Raises
    ConfigError for a schedule by budget, which TRL does not know.
    """
    recipe = foreign_recipe(recipe)
    train = recipe.train
    k, rounds = max(2, recipe.k), recipe.budget.steps
    rows = -(-recipe.control.groups * recipe.k // train.minibatches)
    while rows * train.minibatches % k:  # TRL wants whole groups of one size, also where the rounds have others
        rows += 1
    values: dict[str, Any] = {
        **_optimiser(recipe, overrides),
        "output_dir": output_dir,
        "per_device_train_batch_size": rows,
        "steps_per_generation": train.minibatches,
        "num_iterations": train.epochs,
        "num_generations": k,
        "max_completion_length": recipe.generate.max_tokens,
        "max_steps": ENDLESS if rounds is None else rounds * train.updates_per_step,
        "temperature": recipe.generate.sampling.temperature,
        "loss_type": LOSS_TYPES[recipe.loss.normalise],
        "epsilon": train.clip_low,
        "epsilon_high": train.clip_high,
        "beta": train.kl,
        "use_bias_correction_kl": False,
        "scale_rewards": trl_credit(recipe) or "group",
        "seed": 0,
    }
    return GRPOConfig(**(values | overrides))


def async_grpo_config(recipe: str | Recipe, output_dir: str, **overrides: Any) -> AsyncGRPOConfig:
    """The AsyncGRPOConfig of a recipe, without a vLLM server: a fixed number of samples in a batch (`token_budget` 0).

    `per_device_train_batch_size` is a round's rows divided by `train.minibatches`. Raises ConfigError for what AsyncGRPO lacks.
    """
    recipe = foreign_recipe(recipe)
    train = recipe.train
    for key, given, wanted in (("epochs", train.epochs, 1), ("kl", train.kl, 0), ("tis_cap", train.tis_cap, None)):
        if given != wanted:
            raise ConfigError(
                f"TRL's AsyncGRPOTrainer has no counterpart of train.{key} = {given}",
                f"set train.{key} = {'none' if wanted is None else wanted}, or use GfcrGRPOTrainer",
            )
    values: dict[str, Any] = {
        **_optimiser(recipe, overrides),
        "output_dir": output_dir,
        "per_device_train_batch_size": -(-recipe.control.groups * recipe.k // train.minibatches),
        "num_generations": max(2, recipe.k),
        "max_completion_length": recipe.generate.max_tokens,
        "max_steps": ENDLESS if recipe.budget.steps is None else recipe.budget.steps * train.updates_per_step,
        "temperature": recipe.generate.sampling.temperature,
        "epsilon": train.clip_low,
        "epsilon_high": train.clip_high,
        "token_budget": 0,
        "seed": 0,
    }
    return AsyncGRPOConfig(**(values | overrides))


def _optimiser(recipe: Recipe, overrides: dict[str, Any]) -> dict[str, Any]:
    """AdamW, its schedule and its clipping."""
    train = recipe.train
    if train.schedule != "constant" and "lr_scheduler_type" not in overrides:
        raise ConfigError(
            f"train.schedule = {train.schedule!r} runs over the token budget, which TRL's schedules do not know",
            "set train.schedule = 'constant', or pass lr_scheduler_type (and max_steps) of TRL's own",
        )
    return {
        "learning_rate": train.lr,
        "lr_scheduler_type": "constant_with_warmup" if train.warmup_steps else "constant",
        "warmup_steps": train.warmup_steps,
        "adam_beta1": train.betas[0],
        "adam_beta2": train.betas[1],
        "adam_epsilon": train.eps,
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.grad_clip or 0.0,
        "gradient_checkpointing": train.checkpoint_layers,
    }


def check_args(recipe: Recipe, args: GRPOConfig) -> None:
    """Raise ConfigError where these arguments would train on something else than the recipe's batches mean."""
    sampling, longest = recipe.generate.sampling, recipe.generate.max_tokens
    if args.temperature != sampling.temperature:
        raise ConfigError(
            f"args.temperature = {args.temperature}, generate.sampling.temperature = {sampling.temperature}: TRL would "
            "compute the log-probabilities of another law than the one sampled",
            "set both to the same value",
        )
    if AVERAGES.get(args.loss_type) is not recipe.loss.normalise:
        raise ConfigError(
            f"args.loss_type = {args.loss_type!r} does not average as loss.normalise = {str(recipe.loss.normalise)!r} says",
            f"set loss_type={LOSS_TYPES[recipe.loss.normalise]!r}, or change the recipe's loss.normalise",
        )
    if args.loss_type == "dr_grpo" and args.max_completion_length != (recipe.loss.constant or longest):
        raise ConfigError(
            f"args.max_completion_length = {args.max_completion_length} is dr_grpo's denominator, the recipe's is "
            f"{recipe.loss.constant or longest:g} tokens",
            "set max_completion_length to it, or loss.constant to max_completion_length",
        )
    if args.use_vllm or args.use_transformers_continuous_batching:
        raise ConfigError("args name an engine of TRL's, and the rounds bring their own", "leave use_vllm and the others False")
    every = args.steps_per_generation * args.num_iterations
    if every % args.gradient_accumulation_steps:
        raise ConfigError(
            f"args.gradient_accumulation_steps = {args.gradient_accumulation_steps} does not divide a round's {every} "
            "micro-batches (steps_per_generation * num_iterations): an update would mix two rounds",
            "choose gradient_accumulation_steps so that it divides them",
        )
    if args.world_size > 1:
        raise ConfigError(
            f"{args.world_size} processes: the rounds run in one process, and the others would train on nothing",
            "train in one process (one device)",
        )
    if args.mask_truncated_completions:
        raise ConfigError(
            "args.mask_truncated_completions = True is not read here: which answers reach the loss is the recipe's decision",
            "set filter.admission.overlong = 'mask' in the recipe instead",
        )
