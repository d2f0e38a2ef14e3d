"""gfcr's generation and verdicts as TRL's `rollout_func`, for scripts that cannot subclass the trainer.

    rollouts = GfcrRolloutFunc("trl_grpo")
    trainer = GRPOTrainer(rollouts.model_path, rollouts.reward, args=grpo_config("trl_grpo", "out"), train_dataset=rollouts.dataset,
                          rollout_func=rollouts, processing_class=rollouts.tokenizer)

Invariants: one completion for each entry, in the order of the entries (TRL has repeated the prompts already); what nobody could judge is
None, and a rollout that failed is an unjudged entry without a loss; what this door cannot carry is refused, not dropped.
TRL chooses the tasks, forms the advantages and resumes as TRL does: a kill inside a generation batch trains some prompts twice.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from datasets import Dataset

from gfcr.build import RolloutParts, model_path, refuse, rollout_parts
from gfcr.context import View
from gfcr.control.failures import Lenient
from gfcr.control.slots import Pick
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import WeightsRef
from gfcr.engine.models import load_tokenizer
from gfcr.errors import ConfigError, DataError
from gfcr.filter.columns import trainers
from gfcr.generate.render import TokenizerRenderer
from gfcr.integrations.carry import foreign_recipe, trl_credit
from gfcr.integrations.carry import refuse as refuse_needs
from gfcr.integrations.trl.exporters import ROLLOUT_FUNC
from gfcr.integrations.trl.tasks import TaskIndex, key, task_dataset
from gfcr.integrations.weights import full_weights, twin_engine
from gfcr.recipe import Recipe
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.task_sets import load_tasks
from gfcr.types import Group, Member, Rollout, SegmentKind, Task


class GfcrRolloutFunc:
    """A `rollout_func`: prompts in, completions and rewards out."""

    __name__ = "gfcr_rollouts"

    def __init__(self, recipe: str | Recipe, seed: int = 0, tokenizer: Any = None) -> None:
        """Raises ConfigError for a recipe that needs what this door does not carry."""
        self.recipe, self.seed = foreign_recipe(recipe), seed
        refuse(self.recipe)
        refuse_needs(self.recipe, ROLLOUT_FUNC)
        self._loaded = load_tasks(self.recipe.tasks)
        self.model_path = str(model_path(self.recipe.model.path))
        """For the trainer's `model`."""
        self.tokenizer = tokenizer or load_tokenizer(self.model_path)
        """For the trainer's `processing_class`."""
        self.dataset: Dataset = task_dataset(self._loaded.tasks)
        """For the trainer's `train_dataset`."""
        self._index = TaskIndex([*self._loaded.tasks, *self._loaded.heldout])
        self.parts: RolloutParts | None = None
        """The recipe's parts; None before the first call, which brings the model."""
        self.calls = 0
        self.fingerprint = ""
        """Of the weights published last, as the engine answered."""
        self.tokens = 0
        """Tokens generated so far."""
        self._version = -1

    def reward(self, prompts: Sequence[Any], gfcr_reward: Sequence[float | None], **_: Any) -> list[float | None]:
        """TRL's reward function: the verdicts this object gave with the completions."""
        return list(gfcr_reward)

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        k = self._check(prompts, trainer)
        tasks = [self._index[prompt] for prompt in prompts[::k]]
        for at, prompt in enumerate(prompts):
            if key(prompt) != key(prompts[at - at % k]):
                raise DataError(
                    f"rollout_func: entry {at} is another prompt than its group's first; TRL repeats each prompt {k} times",
                    "leave the trainer's sampler as it is",
                )
        parts = self._publish(trainer)
        slots = replace(parts.slots, select=_Given(tasks), failures=Lenient(parts.slots.failures))
        if not trainer.model.training:
            slots = replace(slots, posterior=deepcopy(slots.posterior))  # an evaluation teaches nothing
        steps = max(1, int(trainer.state.max_steps))
        over = min(1.0, int(trainer.state.global_step) / steps)
        view = View(self.calls, self._version, self.seed, slots.posterior, slots.memory, over)
        settings = parts.round_settings.model_copy(update={"groups": len(tasks), "min_groups": 1})
        round_ = Round(self.calls, slots, settings, view, Budget(None), parts.renderer, parts.stop)
        WaveDriver(parts.engine, parts.cascade, slots.judge, parts.host).drive(round_)
        self.calls += 1
        out: dict[str, list[Any]] = {
            name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "gfcr_reward")
        }
        for group in round_.groups.values():
            for member in _entries(group, k):
                _add(out, group.task, member, parts)
        if len(out["completion_ids"]) != len(prompts):
            raise DataError(
                f"rollout_func: {len(out['completion_ids'])} completions for {len(prompts)} entries ({round_.causes()})",
                "see the causes; a recipe that leaves out groups cannot be carried here",
            )
        self.tokens += sum(map(len, out["completion_ids"]))
        return out

    def _check(self, prompts: list[Any], trainer: Any) -> int:
        """Completions per prompt. Raises ConfigError where TRL's settings contradict the recipe's."""
        k = int(trainer.num_generations if trainer.model.training else trainer.num_generations_eval)
        wanted: dict[str, tuple[Any, Any]] = {
            "num_generations": (k, self.recipe.k),
            "scale_rewards": (trainer.scale_rewards, trl_credit(self.recipe)),
            "temperature": (trainer.temperature, self.recipe.generate.sampling.temperature),
        }
        for name, (given, own) in wanted.items():
            if given != own:
                raise ConfigError(
                    f"the trainer has {name} = {given!r}, the recipe {self.recipe.name!r} says {own!r}",
                    "make the arguments with grpo_config(recipe, ...)",
                )
        if len(prompts) % k:
            raise DataError(f"rollout_func: {len(prompts)} entries are no multiple of {k}", "use whole generation batches")
        return k

    def _publish(self, trainer: Any) -> RolloutParts:
        """The parts, serving the trainer's weights."""
        policy = trainer.accelerator.unwrap_model(trainer.model)
        if self.parts is None:
            decode = TokenizerRenderer(self.tokenizer).decoder()
            engine = twin_engine(self.recipe, policy, decode)
            self.parts = rollout_parts(self.recipe, self.seed, self._loaded, self.tokenizer, engine, policy)
        if trainer.state.global_step != self._version:
            self._version = int(trainer.state.global_step)
            with full_weights(policy) as tensors:
                self.parts.engine.load(WeightsRef(self._version, "memory:"), tensors)
            self.fingerprint = self.parts.engine.fingerprint()
        return self.parts


class _Given:
    """A selector that was told what to choose."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        picks, self.tasks = [Pick(task, "TRL's sampler") for task in self.tasks[:n]], self.tasks[n:]
        return picks

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """Learns nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Has none."""


def _entries(group: Group, k: int) -> list[Member | None]:
    """The group's rollouts; None for each that failed for good."""
    found: list[Member | None] = list(group.fresh())
    return found + [None] * (k - len(found))


def _add(out: dict[str, list[Any]], task: Task, member: Member | None, parts: RolloutParts) -> None:
    ids: list[int] = [parts.stop.eos[0]]
    logprobs: list[float | None] = [None]
    prompt, mask, reward = parts.renderer(task).ids, [0], None
    if member is not None:
        prompt, ids, logprobs, mask = _spread(member.rollout)
        reward = member.signals.credit_reward
    out["prompt_ids"].append([int(i) for i in prompt])
    out["completion_ids"].append(ids)
    out["logprobs"].append(logprobs)
    out["env_mask"].append(mask)
    out["gfcr_reward"].append(reward)


def _spread(rollout: Rollout) -> tuple[np.ndarray, list[int], list[float | None], list[int]]:
    """(prompt ids, then from the first action on: ids, log-probabilities, 1 for the policy's own tokens)."""
    prompt: list[np.ndarray] = []
    ids: list[int] = []
    logprobs: list[float | None] = []
    mask: list[int] = []
    for node in rollout.trained_path:
        segment = node.segment
        own = segment.kind is SegmentKind.ACTION
        if not own and not ids:
            prompt.append(segment.ids)
            continue
        ids += segment.ids.tolist()
        mask += [int(own)] * len(segment)
        known = trainers(segment) if own else None
        logprobs += [None] * len(segment) if known is None else known.tolist()
    return np.concatenate(prompt), ids, logprobs, mask
