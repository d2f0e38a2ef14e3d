"""Tasks and verdicts in TRL's shapes: a dataset of prompts, a reward function. Invariants: a prompt leads back to its task by its
content; what nobody could judge is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from gfcr.errors import ConfigError
from gfcr.filter.cascade import Cascade
from gfcr.types import Node, PartKind, Rollout, Segment, SegmentKind, StopReason, Task, derive_id

Prompt = str | list[dict[str, str]]


def trl_prompt(task: Task) -> Prompt:
    """The task's prompt as TRL has it: text, or messages. Raises ConfigError for images and video."""
    if isinstance(task.prompt, str):
        return task.prompt
    if any(part.kind is not PartKind.TEXT for message in task.prompt for part in message.parts):
        raise ConfigError(
            f"task {task.id}: its prompt has images or video, which these exporters do not carry", "use text tasks"
        )
    return [{"role": m.role, "content": "".join(part.text or "" for part in m.parts)} for m in task.prompt]


def task_dataset(tasks: Sequence[Task]) -> Dataset:
    """The tasks as TRL's training data: columns `prompt` and `task_id`."""
    return Dataset.from_dict({"prompt": [trl_prompt(task) for task in tasks], "task_id": [task.id for task in tasks]})


class TaskIndex:
    """Finds a task by its prompt."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {key(trl_prompt(task)): task for task in tasks}

    def __getitem__(self, prompt: Any) -> Task:
        found = self._tasks.get(key(prompt))
        if found is None:
            raise ConfigError(
                f"the prompt {str(prompt)[:80]!r} belongs to no task of the recipe",
                "train on the dataset that gfcr makes of its tasks (`task_dataset`, or the object's own `dataset`)",
            )
        return found


def key(prompt: Any) -> str:
    """A prompt's content; keys of messages that TRL or datasets add with None are left out."""
    if isinstance(prompt, str):
        return prompt
    return json.dumps([{k: v for k, v in sorted(message.items()) if v is not None} for message in prompt])


def reward_function(cascade: Cascade, tasks: Sequence[Task], eos: Sequence[int]) -> Callable[..., list[float | None]]:
    """TRL's reward function out of a cascade: the reward of each completion, None where nobody could judge it. `eos`: the ids that
    end an answer, so that a truncated one is known as such."""
    index = TaskIndex(tasks)

    def gfcr_reward(
        prompts: list[Any], completion_ids: list[list[int]], gfcr_reward: list[float | None] | None = None, **_: Any
    ) -> list[float | None]:
        if gfcr_reward is not None:  # judged already, by `GfcrRolloutFunc`
            return gfcr_reward
        rollouts = [(index[p], _rollout(index[p], ids, eos)) for p, ids in zip(prompts, completion_ids)]
        return [signals.credit_reward for signals in cascade.judge_all(rollouts, training=False)]

    return gfcr_reward


def _rollout(task: Task, ids: list[int], eos: Sequence[int]) -> Rollout:
    """A completion as a rollout."""
    segment = Segment(SegmentKind.ACTION, np.asarray(ids, np.int32))
    stop = StopReason.EOS if ids and ids[-1] in eos else StopReason.MAX_TOKENS
    name = derive_id("completion", task.id, repr(ids))
    return Rollout(name, task.id, (Node(name, None, segment),), stop)
