"""The types that flow from rows and payload of a step (the inverse of run/encode.py).

Invariant: what comes back equals what was committed, shared nodes shared again. Checksums are compared by who reads (run/reading.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gfcr.run.bodies import Row
from gfcr.run.exact_json import loads
from gfcr.run.payload import read_array
from gfcr.types import (
    Batch,
    Comparison,
    Cost,
    Credit,
    Decision,
    Drop,
    Group,
    GroupState,
    LossRole,
    Member,
    Message,
    Node,
    Normalise,
    Origin,
    Part,
    PartKind,
    Preference,
    PreferencePair,
    Role,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    Signals,
    Span,
    Status,
    StepScore,
    StopReason,
    Task,
    Times,
    TokenSource,
    ToolCall,
    Verdict,
)


@lru_cache(maxsize=1024)
def law(body: str) -> Sampling:
    """A sampling law from its text (`bodies.law_body`); equal laws are one object."""
    key, *numbers, banned = loads(body)
    return Sampling(*[*numbers, tuple(banned), key])


Form = tuple[list[str], dict[str, Any]]
"""(layout, arguments of Segment)."""


def form(row: Row) -> Form:
    """A form from its row (`ROWS["forms"]`) without the key."""
    kind, turn, author, version, law_text, role, source, template, layout = row
    return (
        json.loads(layout),
        {
            "kind": SegmentKind(kind),
            "turn": turn,
            "author": author,
            "version": version,
            "sampling": None if law_text is None else law(law_text),
            "role": LossRole(role),
            "source": None if source is None else TokenSource(source),
            "template": template,
        },
    )


class StoredNode(NamedTuple):
    """A node as its group's body has it."""

    key: int
    id: str
    parent: str | None
    form: int
    offset: int
    length: int


class StoredRollout(NamedTuple):
    """A rollout as its group's body has it."""

    key: int
    id: str
    task_id: str
    stop: str
    seed: int
    cost: list[Any]
    times: list[Any]
    path: list[Any]
    train_path: list[Any] | None
    state_keys: Sequence[str] = ()
    meta: Mapping[str, str] = {}


class Body(NamedTuple):
    """A group's body (run/encode.py)."""

    reason: str
    comparisons: list[Any]
    preferences: list[Any]
    members: list[Any]
    rollouts: list[StoredRollout]
    nodes: list[StoredNode]


def body(text: str) -> Body:
    """A group's body from its text."""
    reason, comparisons, preferences, members, rollouts, nodes = loads(text)
    return Body(
        reason,
        comparisons,
        preferences,
        members,
        [StoredRollout(*found) for found in rollouts],
        [StoredNode(*found) for found in nodes],
    )


def places(path: list[Any], group: int) -> list[tuple[int, int]]:
    """(group, key) of each node of a stored path."""
    return [(group, at) if isinstance(at, int) else (at[0], at[1]) for at in path]


def node(stored: StoredNode, form: Form, raw: bytes | memoryview) -> Node:
    """A node from its arrays' bytes."""
    layout, arguments = form
    count = stored.length
    tracks, logprobs = {}, None
    for i, name in enumerate(layout[1:], 1):
        values = np.frombuffer(raw, np.float32, count, i * count * 4)
        if name == "float32 logprobs" and i == 1:
            logprobs = values
        else:
            tracks[name.removeprefix("float32 tracks.")] = values
    segment = Segment(ids=np.frombuffer(raw, np.int32, count), logprobs=logprobs, tracks=tracks, **arguments)
    return Node(stored.id, stored.parent, segment)


def rollout(stored: StoredRollout, path: Sequence[Node], train: Sequence[Node] | None) -> Rollout:
    """A rollout from what is stored and its nodes."""
    return Rollout(
        stored.id,
        stored.task_id,
        tuple(path),
        StopReason(stored.stop),
        None if train is None else tuple(train),
        tuple(stored.state_keys),
        stored.seed,
        Cost(*stored.cost),
        Times(*stored.times),
        stored.meta,
    )


def task(body: str) -> Task:
    """A task from its text (`bodies.task_body`)."""
    data = loads(body)
    prompt = data.pop("prompt")
    if not isinstance(prompt, str):
        prompt = tuple(message(*one) for one in prompt)
    kind, source, version, parents = data.pop("origin")
    tools, origin = tuple(data.pop("tools")), Origin(kind, source, version, tuple(parents))
    return Task(prompt=prompt, tools=tools, origin=origin, **data)


def message(
    role: str, parts: Sequence[Any], name: str | None, calls: Sequence[Any] = (), call_id: str | None = None
) -> Message:
    """A chat message from its JSON data."""
    made = tuple(Part(PartKind(kind), text, uri, sha) for kind, text, uri, sha in parts)
    return Message(role, made, name, tuple(ToolCall(*call) for call in calls), call_id)


def signals(data: Sequence[Any]) -> Signals:
    """Signals from their JSON data (`bodies.signals_data`)."""
    verdicts, primary, rewards, reward, shaped, steps, uncertainty, novelty = data
    return Signals(
        {name: verdict(*found) for name, found in verdicts.items()},
        primary,
        rewards,
        reward,
        shaped,
        tuple(StepScore(*s) for s in steps),
        uncertainty,
        novelty,
    )


def verdict(
    verifier: str,
    version: str,
    status: str,
    score: float | None,
    correct: bool | None,
    evidence: str,
    seconds: float,
    answer: str | None = None,
    spans: Sequence[Any] = (),
    tokens: int = 0,
) -> Verdict:
    """A verdict from its JSON data."""
    found = tuple(Span(*s) for s in spans)
    return Verdict(verifier, version, Status(status), score, correct, evidence, seconds, answer, found, tokens)


def group(row: Row, of: Task, parts: Body) -> Group:
    """A group from its row (`ROWS["groups"]`) and the body in it, without members."""
    _, group_id, _, _, round_, version, planned, stage, state, *_ = row
    judged = [Comparison(tuple(map(tuple, ranking)), tuple(shown), *rest) for ranking, shown, *rest in parts.comparisons]
    return Group(
        group_id,
        of,
        round_,
        version,
        planned,
        stage,
        GroupState(state),
        parts.reason,
        comparisons=judged,
        preferences=[Preference(*p) for p in parts.preferences],
    )


def member_at(stored: Sequence[Any], step: int) -> tuple[int, int]:
    """(step, key) of a stored member's rollout."""
    at = stored[0]
    return (step, at) if isinstance(at, int) else (at[0], at[1])


def member(stored: Sequence[Any], of: Rollout, payload: bytes | memoryview) -> tuple[str, Member]:
    """(its name in the group, the member) from its data in the group's body."""
    _, role, in_baseline, in_loss, cohort, dropped, source, _, measured, credit, *name = stored
    given: Credit | None = None
    if credit is not None:
        advantage, weight, ce_weight, *rewards = credit
        given = Credit(
            read_array(payload, advantage) if isinstance(advantage, list) else advantage,
            weight,
            ce_weight,
            read_array(payload, rewards[0]) if rewards else None,
        )
    return (name[0] if name else of.id), Member(
        of,
        Role(role),
        in_baseline,
        in_loss,
        cohort,
        signals(measured),
        given,
        None if dropped is None else Drop(dropped),
        source,
    )


def batch(body: str, payload: bytes | memoryview) -> Batch:
    """A batch from its row and the step's payload."""
    data = loads(body)
    arrays = {name: read_array(payload, reference) for name, reference in data["arrays"].items()}
    return Batch(
        **arrays,
        group_ids=tuple(data["group_ids"]),
        rollout_ids=tuple(data["rollout_ids"]),
        normalise=Normalise(data["normalise"]),
        constant=data["constant"],
        preferences=tuple(PreferencePair(*p) for p in data["preferences"]),
        rewards={name: read_array(payload, reference) for name, reference in data["rewards"].items()},
        media={row: tuple(found) for row, found in data["media"]},
        round=data["round"],
        version=data["version"],
    )


def decision(row: Row) -> Decision:
    """A decision from its row (`ROWS["decisions"]`)."""
    _, slot, subject, action, task_id, body = row
    reason, *data = loads(body)
    return Decision(slot, subject, action, reason, data[0] if data else {}, task_id)
