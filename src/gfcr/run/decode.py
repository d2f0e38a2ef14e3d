"""The types that flow from rows and payload of a step (the inverse of run/encode.py).

Invariants: what comes back equals what was committed, shared nodes shared again; checksums are compared on the way, so
damaged data raise Tampered naming step, row and both values instead of becoming a wrong rollout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gfcr.run.encode import Row, node_checksum, rollout_digest
from gfcr.run.exact_json import loads
from gfcr.run.failures import Tampered
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
    Verdict,
)

_RESTORE = "restore the run directory from a copy, or start again in another one"


@lru_cache(maxsize=1024)
def law(body: str) -> Sampling:
    """A sampling law from its text (`encode.law_body`); equal laws are one object."""
    key, *numbers, banned = loads(body)
    return Sampling(*[*numbers, tuple(banned), key])


Form = tuple[str, list[str], dict[str, Any]]
"""(text that checksums cover, layout, arguments of Segment)."""


def form(row: Row) -> Form:
    """A form from its row (`ROWS["forms"]`) without the key."""
    kind, turn, author, version, law_text, role, source, template, layout = row
    return (
        ascii(row),
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


def node(step: int, row: Row, form: Form, raw: bytes) -> Node:
    """A node from its row (`ROWS["nodes"]`) and its arrays' bytes."""
    _, node_id, parent, _, offset, count, checksum = row
    text, layout, arguments = form
    if (found := node_checksum(node_id, parent, text, raw)) != checksum:
        raise Tampered(
            f"segments/{step}.bin, bytes {offset} to {offset + len(raw)} (node {node_id}): checksum {found.hex()}, "
            f"its row says {checksum.hex()}",
            _RESTORE,
        )
    tracks, logprobs = {}, None
    for i, name in enumerate(layout[1:], 1):
        values = np.frombuffer(raw, np.float32, count, i * count * 4)
        if name == "float32 logprobs" and i == 1:
            logprobs = values
        else:
            tracks[name.removeprefix("float32 tracks.")] = values
    ids = np.frombuffer(raw, np.int32, count)
    return Node(node_id, parent, Segment(ids=ids, logprobs=logprobs, tracks=tracks, **arguments))


def rollout(step: int, row: Row, nodes: Mapping[int, Node], checksums: Mapping[int, bytes]) -> Rollout:
    """A rollout from its row (`ROWS["rollouts"]`) and its step's nodes and their checksums, by key."""
    _, rollout_id, task_id, stop, body, path_text, train_text, digest = row
    path = [int(key) for key in path_text.split()]
    train = None if train_text is None else [int(key) for key in train_text.split()]
    found = rollout_digest(
        [checksums[key] for key in path],
        None if train is None else [checksums[key] for key in train],
        (rollout_id, task_id, stop, body),
    )
    if found != digest:
        raise Tampered(
            f"run.sqlite, step {step}, rollout {rollout_id}: digest {found.hex()}, its row says {digest.hex()}", _RESTORE
        )
    seed, cost, times, *rest = loads(body)
    state_keys, meta = rest or ((), {})
    return Rollout(
        rollout_id,
        task_id,
        tuple(nodes[key] for key in path),
        StopReason(stop),
        None if train is None else tuple(nodes[key] for key in train),
        tuple(state_keys),
        seed,
        Cost(**cost),
        Times(**times),
        meta,
    )


def task(body: str) -> Task:
    """A task from its text (`encode.task_body`)."""
    data = loads(body)
    prompt = data.pop("prompt")
    if not isinstance(prompt, str):
        prompt = tuple(
            Message(role, tuple(Part(PartKind(kind), text, uri, sha) for kind, text, uri, sha in parts), name)
            for role, parts, name in prompt
        )
    kind, source, version, parents = data.pop("origin")
    tools, origin = tuple(data.pop("tools")), Origin(kind, source, version, tuple(parents))
    return Task(prompt=prompt, tools=tools, origin=origin, **data)


def signals(data: Sequence[Any]) -> Signals:
    """Signals from their JSON data (`encode.signals_data`)."""
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


def group(row: Row, of: Task) -> Group:
    """A group from its row (`ROWS["groups"]`), without members."""
    _, group_id, _, _, round_, version, planned, stage, state, body = row
    reason, comparisons, preferences = loads(body) if body else ("", [], [])
    judged = [Comparison(tuple(map(tuple, ranking)), tuple(shown), *rest) for ranking, shown, *rest in comparisons]
    return Group(
        group_id,
        of,
        round_,
        version,
        planned,
        stage,
        GroupState(state),
        reason,
        comparisons=judged,
        preferences=[Preference(*p) for p in preferences],
    )


def member(row: Row, of: Rollout, payload: bytes | memoryview) -> tuple[str, Member]:
    """(its name in the group, the member) from its row (`ROWS["members"]`)."""
    _, _, _, _, role, in_baseline, in_loss, cohort, dropped, source, _, _, _, body = row
    measured, credit, *name = loads(body)
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
        bool(in_baseline),
        bool(in_loss),
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
