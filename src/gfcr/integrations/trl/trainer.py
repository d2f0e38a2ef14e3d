"""TRL's GRPOTrainer, fed by gfcr's rounds.

    trainer = GfcrGRPOTrainer("four_modules", args=grpo_config("four_modules", "out"))
    trainer.train(resume_from_checkpoint=True)

TRL keeps what is TRL's: the model, the optimiser, the loss and its options, callbacks, logging, checkpoints. gfcr decides which
tasks, how many answers, what they are worth and what else is in the batch. One generation batch is one round.

Invariants: the engine answers with the trainer's own weights, published before each round and proven by fingerprint; uneven
groups, advantages by token, injected members and off-policy weights reach the loss; a round is durable before it is trained on, and
TRL's checkpoint is a cursor into them, so that nothing is trained 1.5 times and nothing skipped after a kill at any moment.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor
from torch.nn.functional import pad as pad_columns
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from transformers.trainer_utils import TrainOutput
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from gfcr.build import model_path, refuse, rollout_parts
from gfcr.engine.models import load_model, load_tokenizer
from gfcr.errors import ConfigError, DataError
from gfcr.generate.render import TokenizerRenderer
from gfcr.integrations.carry import foreign_recipe, refuse_batch
from gfcr.integrations.carry import refuse as refuse_needs
from gfcr.integrations.rounds import Fed, Rounds
from gfcr.integrations.trl.collate import gather, inputs_of, like_lengths, loss_tokens, spread, trainable
from gfcr.integrations.trl.configs import ENDLESS, check_args, grpo_config
from gfcr.integrations.trl.exporters import TRAINER
from gfcr.integrations.trl.flat import Flats
from gfcr.integrations.trl.logs import log_round
from gfcr.integrations.trl.tasks import reward_function, task_dataset
from gfcr.integrations.weights import full_weights, twin_engine
from gfcr.recipe import Recipe
from gfcr.run.seeds import generator
from gfcr.task_sets import load_tasks
from gfcr.types import Batch


class GfcrGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose batches come from a recipe's rounds."""

    def __init__(
        self,
        recipe: str | Recipe,
        model: Any = None,
        args: GRPOConfig | None = None,
        seed: int = 0,
        run_dir: str | Path | None = None,
        any_environment: bool = False,
        any_weights: bool = False,
        **trl: Any,
    ) -> None:
        """`model`: a path or a loaded model, by default the recipe's; `args`: by default `grpo_config(recipe, "gfcr-trl")`; `run_dir`:
        where the rounds are kept, by default `args.output_dir/gfcr`; `trl`: GRPOTrainer's other arguments (callbacks, optimizers,
        peft_config, processing_class, eval_dataset, ...). Raises ConfigError for a recipe that does not compose, or that needs
        what TRL's loss has no term for, and for arguments that contradict the recipe.
        """
        self.recipe = foreign_recipe(recipe)
        refuse(self.recipe)
        refuse_needs(self.recipe, TRAINER)
        _refuse_foreign(trl)
        args = grpo_config(self.recipe, "gfcr-trl") if args is None else args
        check_args(self.recipe, args)
        if args.max_steps <= 0:
            args.max_steps = ENDLESS  # the recipe's budget ends the run
        loaded = load_tasks(self.recipe.tasks)
        place = model_path(self.recipe.model.path)
        model = load_model(place, "cpu", "float32") if model is None else model
        tokenizer = trl.pop("processing_class", None) or load_tokenizer(place)
        self._rewards = _Rewards()
        super().__init__(
            model=model,
            reward_funcs=self._rewards,
            args=args,
            train_dataset=task_dataset(loaded.tasks),
            processing_class=tokenizer,
            **trl,
        )
        policy = self.accelerator.unwrap_model(self.model)
        engine = twin_engine(self.recipe, policy, TokenizerRenderer(tokenizer).decoder())
        parts = rollout_parts(self.recipe, seed, loaded, tokenizer, engine, policy)
        self._rewards.judge = reward_function(parts.cascade, [*parts.tasks, *parts.heldout], parts.stop.eos)
        self.rounds = Rounds(parts, run_dir or Path(args.output_dir) / "gfcr", any_environment, any_weights)
        """The rounds, their run directory, budget and ledger."""
        self._every = args.steps_per_generation * args.num_iterations
        self._slices: list[np.ndarray] = []
        """Rows of each micro-batch of the round in training."""
        self._flats = Flats(self.temperature)
        self._fed: Fed | None = None
        self._old: np.ndarray | None = None
        """float32[N]: log-probabilities under the weights at the round's start, NaN for rows of the first update; None where TRL takes
        the current ones for all."""
        self._factors: np.ndarray | None = None
        """float32[N]: further factors of the advantages (truncated importance sampling); None = 1."""
        self._reference: np.ndarray | None = None
        """float32[N]: log-probabilities of the reference model; None without a KL term."""
        self._checkpoint: Path | None = None
        """What the run resumes from."""
        self.add_callback(_Feed(self))

    def train(self, resume_from_checkpoint: str | bool | None = None, **others: Any) -> TrainOutput:
        """As TRL's. `resume_from_checkpoint=True` takes the newest complete checkpoint; without one the stored rounds are trained
        from the start again, not sampled again. A run that is over returns at once."""
        checkpoint = _checkpoint(resume_from_checkpoint, Path(self.args.output_dir))
        self._checkpoint = checkpoint
        step = 0 if checkpoint is None else int(json.loads((checkpoint / "trainer_state.json").read_text())["global_step"])
        index, inside = divmod(step * self.args.gradient_accumulation_steps, self._every)
        self.rounds.resume_at(index + (inside > 0))
        if not inside and self.rounds.over():
            return TrainOutput(step, 0.0, {})
        return super().train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint), **others)

    # ---- where TRL asks for data -------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader:
        """Placeholders, one for each micro-batch: rounds are made when the weights they need exist, not when a loader prefetches."""
        steps = self.args.max_steps * self.args.gradient_accumulation_steps
        return DataLoader(range(steps), batch_size=1, collate_fn=lambda rows: {})  # type: ignore[arg-type]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if self._fed is not None and len(self._slices[self._step % self.args.steps_per_generation]):
            return super().training_step(model, inputs, num_items_in_batch)
        self._step += 1  # a round with fewer rows than micro-batches: no gradient, so the optimiser leaves the weights alone
        return torch.zeros((), device=self.accelerator.device)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        assert self._fed is not None
        batch = self._fed.batch
        rows = self._slices[self._step % self.args.steps_per_generation]
        out = inputs_of(batch, rows, self._tokenizer.pad_token_id, self.pad_to_multiple_of)
        if self._factors is not None:
            out["advantages"] *= spread(batch, rows, self._factors, out["advantages"])
        if self._old is not None and self._known(self._step % self._every):
            out["old_per_token_logps"] = spread(batch, rows, self._old, out["advantages"])
        if self._reference is not None:
            out["ref_per_token_logps"] = spread(batch, rows, self._reference, out["advantages"])
        out = {name: tensor.to(self.accelerator.device) for name, tensor in out.items()}
        out["num_items_in_batch"] = torch.tensor(loss_tokens(batch), device=self.accelerator.device)
        return out

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **media: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's, over the distinct tokens of a model known part by part, else in passes over rows of like length instead of one padded
        to the longest: the same numbers for less arithmetic."""
        inner = super()._get_per_token_logps_and_entropies
        if compute_aux_loss or any(value is not None for value in media.values()):
            return inner(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss, **media
            )
        if self.accelerator.mixed_precision == "no" and (flat := self._flats.of(model)) is not None:
            found = self._flats.logps(flat, input_ids, attention_mask, logits_to_keep, compute_entropy)
            if found is not None:
                return *found, None
        prompts = attention_mask.size(1) - logits_to_keep
        before, after = attention_mask[:, :prompts].sum(1).cpu().numpy(), attention_mask[:, prompts:].sum(1).cpu().numpy()
        parts = like_lengths(before + after, batch_size or len(input_ids))
        logps, entropies = [], []
        for part in parts:
            wide, long = max(1, int(before[part].max())), max(1, int(after[part].max()))
            rows, span = torch.from_numpy(part).to(input_ids.device), slice(prompts - wide, prompts + long)
            found, entropy, _ = inner(
                model, input_ids[rows, span], attention_mask[rows, span], long, compute_entropy=compute_entropy
            )
            logps.append(pad_columns(found, (0, logits_to_keep - long)))
            if entropy is not None:
                entropies.append(pad_columns(entropy, (0, logits_to_keep - long)))
        back = torch.from_numpy(np.argsort(np.concatenate(parts))).to(input_ids.device)
        return torch.cat(logps)[back], torch.cat(entropies)[back] if entropies else None, None

    # ---- rounds ------------------------------------------------------------------------------------------------

    def _begin(self, global_step: int) -> None:
        """Go on where `global_step` optimiser steps lead: at a round's border, or in the middle of one."""
        self._step = global_step * self.args.gradient_accumulation_steps
        index, inside = divmod(self._step, self._every)
        self.rounds.resume_at(index + (inside > 0))
        if inside:
            assert self._checkpoint is not None
            kept = load_file(self._checkpoint / IN_FLIGHT)
            self._cut(self.rounds.current(index))
            self._old, self._reference, self._factors = (kept.get(name) for name in KEPT)

    def _feed(self, global_step: int) -> bool:
        """Have a round to train on; False when there are no more."""
        if self._step % self._every:
            return True
        with full_weights(self.accelerator.unwrap_model(self.model)) as tensors:
            self.rounds.publish(global_step, tensors)
        fed = self.rounds.next()
        if fed is None:
            self._fed = None
            return False
        refuse_batch(fed.batch, TRAINER)
        self._cut(fed)
        self._prepare_round(fed.batch)
        log_round(self, fed)
        return True

    def _cut(self, fed: Fed) -> None:
        """Into micro-batches of rows; which, is a matter of the seed and the round."""
        rows = trainable(fed.batch)
        draw = generator(self.rounds.parts.seed, "trl", fed.round)
        self._slices = [np.sort(part) for part in np.array_split(draw.permutation(rows), self.args.steps_per_generation)]
        self._fed = fed

    def _prepare_round(self, batch: Batch) -> None:
        """What the loss needs of the weights before the round's first update.

        As in TRL, nothing where one update takes the whole round. `train.ratio_base = "behaviour"` takes the log-probabilities
        the engine gave with the tokens (one forward pass less); else they are computed by the trainer's own model.
        """
        one_update = self._every == self.args.gradient_accumulation_steps
        base, cap = self.recipe.train.ratio_base, self.recipe.train.tis_cap
        self._old = self._reference = self._factors = None
        missing = batch.rl_mask & np.isnan(batch.behaviour)
        if base == "behaviour":
            self._old = np.where(missing, self._logps(self.model, batch, missing), batch.behaviour)
        elif not one_update or cap is not None:
            needed = batch.rl_mask.copy()
            for step, rows in enumerate(self._slices):
                if not self._known(step):
                    needed[np.isin(batch.row_of_token(), rows)] = False
            self._old = self._logps(self.model, batch, needed)
        if cap is not None:
            assert self._old is not None
            ratio = np.exp(np.clip(self._old - batch.behaviour, -20.0, 20.0))
            self._factors = np.where(np.isnan(ratio), 1.0, np.minimum(ratio, cap)).astype(np.float32)
        if self.beta != 0.0:
            self._reference = self._reference_logps(batch)

    def _known(self, step: int) -> bool:
        """Whether the old log-probabilities of this micro-batch of the round are computed beforehand. In the first update the weights
        are still the old ones, and TRL's loss takes the current ones, unless the rows come again or the weights of truncated
        importance sampling need them."""
        recipe = self.recipe.train
        again = self.args.num_iterations > 1 or recipe.tis_cap is not None or recipe.ratio_base == "behaviour"
        return again or step >= self.args.gradient_accumulation_steps

    def _logps(self, model: Any, batch: Batch, needed: np.ndarray) -> np.ndarray:
        """float32[N] log-probabilities of the rows with a token where `needed`; NaN elsewhere."""
        out = np.full(len(batch.input_ids), np.nan, np.float32)
        rows = np.flatnonzero(np.bincount(batch.row_of_token()[needed], minlength=len(batch)))
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            most = self.args.per_device_train_batch_size
            flat = self._flats.of(model) is not None  # takes siblings together, whatever their lengths
            parts = [np.arange(i, min(i + most, len(rows))) for i in range(0, len(rows), most)]
            for part in (rows[at] for at in (parts if flat else like_lengths(batch.lengths[rows], most))):
                inputs = inputs_of(batch, part, self._tokenizer.pad_token_id, self.pad_to_multiple_of)
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1).to(self.accelerator.device)
                mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1).to(self.accelerator.device)
                found, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
                gather(batch, part, found, out)
        return out

    def _reference_logps(self, batch: Batch) -> np.ndarray:
        """TRL's reference: its frozen copy, or the model without its adapter."""
        if self.ref_model is not None:
            return self._logps(self.ref_model, batch, batch.rl_mask)
        policy = self.accelerator.unwrap_model(self.model)
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            return self._logps(self.model, batch, batch.rl_mask)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's checkpoint, and last of all what is in flight of the round: its presence says that the checkpoint is complete."""
        super()._save_checkpoint(model, trial)
        kept = {name: a for name in KEPT if (a := getattr(self, f"_{name}")) is not None}
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if folder.is_dir():
            save_file(kept, folder / f"{IN_FLIGHT}.part")
            (folder / f"{IN_FLIGHT}.part").replace(folder / IN_FLIGHT)


IN_FLIGHT = "gfcr_round.safetensors"
KEPT = ("old", "reference", "factors")
"""What of a round depends on the weights at its start, and is kept in the checkpoint."""


def _checkpoint(asked: str | bool | None, output_dir: Path) -> Path | None:
    """The checkpoint to resume from; a kill during saving leaves one without its last file, which does not count."""
    if isinstance(asked, str):
        if not (Path(asked) / IN_FLIGHT).is_file():
            raise DataError(
                f"{asked} is no complete checkpoint of a GfcrGRPOTrainer: it has no {IN_FLIGHT}",
                "give another one, or resume_from_checkpoint=True for the newest complete one",
            )
        return Path(asked)
    if not asked:
        return None
    found = [p for p in output_dir.glob("checkpoint-*") if (p / IN_FLIGHT).is_file() and p.name.partition("-")[2].isdigit()]
    return max(found, key=lambda p: int(p.name.partition("-")[2]), default=None)


def _refuse_foreign(trl: dict[str, Any]) -> None:
    """Arguments of GRPOTrainer whose part the recipe plays."""
    for name, where in _FOREIGN.items():
        if trl.pop(name, None) is not None:
            raise ConfigError(f"{name} = ... was passed, but that is the recipe's part: {where}", "change the recipe instead")


_FOREIGN = {
    "reward_funcs": "filter.verifiers",
    "reward_processing_classes": "filter.verifiers",
    "train_dataset": "tasks",
    "rollout_func": "generate",
    "tools": "generate",
    "environment_factory": "generate",
}


class _Rewards:
    """The reward function TRL's constructor wants before there is a cascade; evaluation calls it."""

    __name__ = "gfcr"

    def __init__(self) -> None:
        self.judge: Any = None

    def __call__(self, **columns: Any) -> list[float | None]:
        out: list[float | None] = self.judge(**columns)
        return out


class _Feed(TrainerCallback):  # type: ignore[misc]
    """Feeds the trainer between updates, when the weights a round needs exist."""

    def __init__(self, trainer: GfcrGRPOTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer._begin(state.global_step)
        self.trainer._feed(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= state.max_steps or control.should_training_stop:
            return
        if not self.trainer._feed(state.global_step):
            control.should_training_stop = True
