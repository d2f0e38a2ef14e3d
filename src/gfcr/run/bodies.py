"""Rows of a step that stand for themselves: laws, signals, tasks, batches, decisions (the inverse is run/decode.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gfcr.run.columns import text
from gfcr.run.exact_json import compact, dumps, dumps_exact, tag
from gfcr.run.payload import Payload
from gfcr.types import Batch, Decision, Message, Sampling, Signals, Task
from gfcr.types.batch import TOKEN_FIELDS

BATCH_ARRAYS = ("offsets", "groups", *TOKEN_FIELDS)
Row = tuple[Any, ...]


def law_body(law: Sampling) -> str:
    """A sampling law as JSON text."""
    return dumps(
        [
            law.id,
            law.temperature,
            law.top_p,
            law.top_k,
            law.min_p,
            law.repetition_penalty,
            law.presence_penalty,
            law.frequency_penalty,
            list(law.banned),
        ]
    )


def signals_data(signals: Signals) -> list[Any]:
    """JSON data of signals, positional."""
    verdicts = {}
    for name, v in signals.verdicts.items():
        data: list[Any] = [v.verifier, v.version, v.status, v.score, v.correct, v.evidence, v.seconds]
        if v.answer is not None or v.spans or v.tokens:
            data += [v.answer, [[s.start, s.end, s.kind, s.value] for s in v.spans]]
        if v.tokens:
            data.append(v.tokens)
        verdicts[name] = data
    return [
        verdicts,
        signals.primary,
        signals.rewards if signals.rewards.__class__ is dict else dict(signals.rewards),
        signals.reward,
        signals.shaped,
        [[s.start, s.end, s.kind, s.value, s.n, s.source] for s in signals.steps] if signals.steps else [],
        signals.uncertainty,
        signals.novelty,
    ]


def task_body(task: Task) -> str:
    """A task as JSON text, all fields; types of the reference, environment and meta are kept (tuples, NaN, bytes)."""
    prompt, where = task.prompt, f"task {task.id}"  # type: Any, str
    if not isinstance(prompt, str):
        prompt = [_message(m, where) for m in prompt]
    origin = task.origin
    return compact(
        {
            "id": task.id,
            "domain": task.domain,
            "prompt": prompt,
            "reference": tag(task.reference, f"{where}.reference"),
            "reference_rev": task.reference_rev,
            "tools": list(task.tools),
            "environment": tag(task.environment, f"{where}.environment"),
            "category": task.category,
            "meta": tag(task.meta, f"{where}.meta"),
            "origin": [origin.kind, origin.source, origin.version, list(origin.parents)],
        }
    )


def _message(message: Message, where: str) -> list[Any]:
    """[role, parts, name], and [calls, call id] where there are any."""
    data: list[Any] = [message.role, [[str(p.kind), p.text, p.uri, p.sha256] for p in message.parts], message.name]
    if message.calls or message.call_id is not None:
        calls = [[c.name, tag(c.arguments, f"{where}.prompt: arguments of {c.name}"), c.id] for c in message.calls]
        data += [calls, message.call_id]
    return data


def batch_body(batch: Batch, payload: Payload) -> str:
    """A batch as JSON text; its arrays go to `payload`."""
    arrays = {
        name: payload.array(getattr(batch, name), f"batch.{name}") for name in BATCH_ARRAYS if getattr(batch, name) is not None
    }
    rewards = {name: payload.array(values, f"batch.rewards[{name!r}]") for name, values in batch.rewards.items()}
    return dumps(
        {
            "arrays": arrays,
            "rewards": rewards,
            "group_ids": list(batch.group_ids),
            "rollout_ids": list(batch.rollout_ids),
            "normalise": batch.normalise,
            "constant": batch.constant,
            "preferences": [[p.chosen, p.rejected, p.weight] for p in batch.preferences],
            "media": [[int(row), list(found)] for row, found in batch.media.items()],
            "round": batch.round,
            "version": batch.version,
        }
    )


def decision_row(decision: Decision) -> Row:
    """`ROWS["decisions"]` without the key."""
    body = (
        dumps_exact([decision.reason, dict(decision.data)], f"data of decision {decision.slot}:{decision.action}")
        if decision.data
        else dumps([decision.reason])
    )
    return text(decision.slot), text(decision.subject), text(decision.action), text(decision.task), body


def decision_rows(step: int, decisions: Sequence[Decision]) -> list[Row]:
    """`ROWS["decisions"]` with the step."""
    return [(step, key, *decision_row(decision)) for key, decision in enumerate(decisions)]
