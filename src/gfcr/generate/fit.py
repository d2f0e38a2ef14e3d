"""Do the prompts fit the model? Asked before the first token, so that a run of hours does not meet a prompt it cannot read.

Invariants: a refusal names how many prompts, the first ones, and what to do; a task is left out only where the recipe says so;
beyond CHECKED tasks a prompt is checked when its task is opened, and a group that cannot be rendered is abandoned with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import chain

from gfcr.errors import ConfigError, DataError
from gfcr.types import Segment, Task

CHECKED = 20_000
"""Tasks of a set whose prompts are rendered at the start (about 2 s on the lab)."""
Render = Callable[[Task], Segment]


def fitting(
    what: str, tasks: Sequence[Task], render: Render, max_context: int, max_tokens: int, vocabulary: int, drop: bool = False
) -> Sequence[Task]:
    """The tasks; with `drop`, those among the first CHECKED whose prompts leave room for an answer of `max_tokens`, and all
    later ones. Raises DataError for prompts that the tokenizer cannot encode, that hold tokens the model lacks, or (without
    `drop`, or when none is left) that are too long; ConfigError when no prompt could fit. `what` names the set."""
    room = max_context - max_tokens
    if room < 1:
        raise ConfigError(
            f"generate.max_tokens = {max_tokens} leaves no room for a prompt: the model takes {max_context} tokens",
            f"set generate.max_tokens to {max(1, max_context // 2)} or less, or use a model with a longer context",
        )
    unreadable: list[str] = []
    long: list[tuple[int, Task]] = []
    out: set[str] = set()
    for task in tasks[:CHECKED]:
        try:
            ids = render(task).ids
        except DataError as error:
            unreadable.append(error.what)
            remedy = error.remedy
            continue
        if len(ids) > room:
            long.append((len(ids), task))
            out.add(task.id)
        elif int(ids.max()) >= vocabulary:
            raise ConfigError(
                f"{what}: the prompt {_short(task)} has the token {int(ids.max())}, the model's vocabulary is {vocabulary}",
                "use the tokenizer that belongs to the model: both are read from model.path",
            )
    if unreadable:
        raise DataError(f"{len(unreadable)} of {len(tasks)} {what} cannot be rendered, the first: {unreadable[0]}", remedy)
    if drop and len(out) < len(tasks):
        return [task for task in tasks if task.id not in out] if out else tasks
    if long:
        length, task = max(long, key=lambda found: found[0])
        raise DataError(
            f"{len(long)} of {len(tasks)} {what} have prompts longer than {room} tokens (the model takes {max_context}, answers "
            f"up to {max_tokens}); the longest has {length}: {_short(task)}",
            "take these tasks out, lower generate.max_tokens, use a model with a longer context, or set "
            'generate.prompt.overflow to "drop" or "truncate"',
        )
    return tasks


def digest(tasks: Sequence[Task], heldout: Sequence[Task], render: Render) -> str:
    """Of what a run is about: its tasks with their references, as the model reads them."""
    out = blake2b(digest_size=16)
    for task in chain(tasks[:CHECKED], [None], heldout[:CHECKED]):
        if task is not None:
            out.update(f"{task.id} {json.dumps(task.reference, sort_keys=True, default=str)}".encode())
            out.update(render(task).ids.tobytes())
        out.update(b"\n")
    return out.hexdigest()


def _short(task: Task) -> str:
    text = str(task.prompt)
    return repr(text if len(text) <= 60 else text[:57] + "...")
