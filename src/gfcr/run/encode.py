"""Rows and payload of one step from the types that flow (the inverse is run/decode.py).

Invariants: lossless, down to None against 0, NaN, -0.0 and empty arrays; within a step a shared node, and a rollout met
twice, is stored once; across steps a rollout met again (replay, injection) is stored again only when its content differs.
Columns that a query may want (`reward`, `correct`, `advantage`) repeat what `body` says exactly; decoding reads `body`.

Arrays of a node lie at `offset` in the order of its form's `layout`: int32 ids, then float32 log-probabilities and tracks,
each of `count` entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import numpy as np

from gfcr.run.columns import integer, named, real, text, text_or_none
from gfcr.run.exact_json import dumps, dumps_exact
from gfcr.run.payload import Payload
from gfcr.types import COST_FIELDS, Batch, Decision, Group, Member, Node, Rollout, Sampling, Segment, Task, Times
from gfcr.types.batch import TOKEN_FIELDS
from gfcr.types.signals import Signals, Span, Verdict

_TIMES = tuple(f.name for f in fields(Times))
_costs, _times = attrgetter(*COST_FIELDS), attrgetter(*_TIMES)
BATCH_ARRAYS = ("offsets", "groups", *TOKEN_FIELDS)
_SUMMED = ("nodes", "rollouts")
"""Tables whose last column is a checksum of 16 bytes."""
Row = tuple[Any, ...]
Stored = Callable[[str], Sequence[tuple[int, int, bytes]]]
"""Rollout id -> (step, key, digest) of every stored content of it, oldest first."""


class StepEncoder:
    """Collects one step. Objects passed in must live until the step is written (their identity saves encoding them twice)."""

    def __init__(self, step: int, stored: Stored) -> None:
        self.step, self._stored = step, stored
        self.payload = Payload()
        self.rows: dict[str, list[Row]] = {
            name: [] for name in ("forms", "nodes", "rollouts", "groups", "members", "batches", "decisions")
        }
        self.tasks: dict[bytes, Row] = {}
        """Digest -> (id, reference_rev, body)."""
        self._prepared: dict[int, bytes] = {}
        self._pending: dict[bytes, tuple[str, str | None, int, int, bytes]] = {}
        """Nodes that no stored rollout has needed so far: (id, parent, form, count, arrays)."""
        self._nodes: dict[bytes, int] = {}
        self._forms: dict[tuple[Any, ...], int] = {}
        self._form_text: list[str] = []
        self._last: dict[str, tuple[Segment, int]] = {}
        """Segment last met of a kind: nearly always of the same form, and cheaper to compare than to hash."""
        self._rollouts: dict[int, tuple[int, int]] = {}
        self._contents: dict[tuple[str, bytes], tuple[int, int]] = {}
        self._tasks: dict[int, bytes] = {}

    # ---- segments, nodes, rollouts -----------------------------------------------------------------------------

    def form(self, segment: Segment) -> int:
        """Everything of a segment but its arrays, stored once a step."""
        kind, law = segment.kind, segment.sampling
        last = self._last.get(kind)
        if (
            last is not None
            and (seen := last[0]).sampling is law
            and seen.version == segment.version
            and seen.turn == segment.turn
            and seen.author == segment.author
            and seen.role is segment.role
            and seen.source is segment.source
            and seen.template == segment.template
            and (seen.logprobs is None) == (segment.logprobs is None)
            and list(seen.tracks) == list(segment.tracks)
        ):
            return last[1]
        known = (
            kind,
            segment.turn,
            segment.author,
            segment.version,
            law,
            segment.role,
            segment.source,
            segment.template,
            segment.logprobs is None,
            tuple(segment.tracks) if segment.tracks else (),
        )
        key = self._forms.get(known)
        if key is None:
            key = self._forms[known] = len(self._form_text)
            layout = ["int32 ids"] + ["float32 logprobs"] * (segment.logprobs is not None)
            layout += [f"float32 tracks.{name}" for name in segment.tracks]
            row = (
                str(segment.kind),
                int(segment.turn),
                text(segment.author),
                integer(segment.version),
                law and law_body(law),
                str(segment.role),
                segment.source and str(segment.source),
                text_or_none(segment.template),
                dumps(layout),
            )
            self._form_text.append(ascii(row))
            self.rows["forms"].append((self.step, key, *row))
        self._last[kind] = segment, key
        return key

    def node(self, node: Node) -> bytes:
        """Checksum of a node, which `_place` turns into its key; nothing is stored yet."""
        found = self._prepared.get(id(node))
        if found is None:
            segment = node.segment
            raw = segment.ids.tobytes()
            if segment.logprobs is not None:
                raw += segment.logprobs.tobytes()
            if segment.tracks:
                raw += b"".join([track.tobytes() for track in segment.tracks.values()])
            form = self.form(segment)
            name, parent = text(node.id), text_or_none(node.parent)
            found = self._prepared[id(node)] = node_checksum(name, parent, self._form_text[form], raw)
            self._pending[found] = (name, parent, form, len(segment.ids), raw)
        return found

    def _place(self, checksums: list[bytes]) -> str:
        """Store the nodes that are not yet; returns their keys, as the text of a path."""
        keys = []
        for checksum in checksums:
            key = self._nodes.get(checksum)
            if key is None:
                name, parent, form, count, raw = self._pending.pop(checksum)
                key = self._nodes[checksum] = len(self.rows["nodes"])
                self.rows["nodes"].append((self.step, key, name, parent, form, self.payload.add(raw), count, checksum))
            keys.append(key)
        return " ".join(map(str, keys))

    def rollout(self, rollout: Rollout, fresh: bool = False) -> tuple[int, int]:
        """(step, key) of the rollout; `fresh` spares the search for an equal one of an earlier step."""
        at = self._rollouts.get(id(rollout))
        if at is not None:
            return at
        path, train, row = self._content(rollout)
        digest = rollout_digest(path, train, row)
        content = rollout.id, digest
        at = self._contents.get(content)
        if at is None and not fresh:
            at = self._earlier(rollout.id, digest)
        if at is None:
            at = (self.step, len(self.rows["rollouts"]))
            paths = self._place(path), None if train is None else self._place(train)
            self.rows["rollouts"].append((*at, *row, *paths, digest))
        self._contents[content] = self._rollouts[id(rollout)] = at
        return at

    def _content(self, rollout: Rollout) -> tuple[list[bytes], list[bytes] | None, Row]:
        """(checksums of path and of train path, the rest as a row)."""
        path = [self.node(node) for node in rollout.path]
        train = None if rollout.train_path is None else [self.node(node) for node in rollout.train_path]
        rest: list[Any] = [rollout.seed, named(COST_FIELDS, _costs(rollout.cost)), named(_TIMES, _times(rollout.times))]
        if rollout.state_keys or rollout.meta:
            rest += [list(rollout.state_keys), dict(rollout.meta)]
        return path, train, (text(rollout.id), text(rollout.task_id), str(rollout.stop), dumps(rest))

    def known(self, rollout: Rollout) -> tuple[int, int] | None:
        """Where this very object went in this step; None when it did not."""
        return self._rollouts.get(id(rollout))

    def find(self, rollout: Rollout, scratch: StepEncoder) -> tuple[int, int] | None:
        """Where an equal rollout is stored, this step included; None when nowhere. `scratch` does the encoding, so that
        nothing is added here."""
        key = rollout.id, rollout_digest(*scratch._content(rollout))
        return self._contents.get(key) or self._earlier(*key)

    def _earlier(self, rollout_id: str, digest: bytes) -> tuple[int, int] | None:
        return next(((step, key) for step, key, other in self._stored(rollout_id) if other == digest), None)

    # ---- groups ------------------------------------------------------------------------------------------------

    def task(self, task: Task) -> bytes:
        """Digest of the stored task; the same task twice is stored once."""
        digest = self._tasks.get(id(task))
        if digest is None:
            body = task_body(task)
            digest = blake2b(body.encode(), digest_size=16).digest()
            self._tasks[id(task)] = digest
            self.tasks[digest] = (text(task.id), text(task.reference_rev), body)
        return digest

    def group(self, group: Group) -> int:
        key = len(self.rows["groups"])
        comparisons = [
            [[list(tie) for tie in c.ranking], list(c.order_shown), c.judge, c.version, c.evidence] for c in group.comparisons
        ]
        preferences = [[p.chosen, p.rejected, p.weight] for p in group.preferences]
        body = dumps([group.reason, comparisons, preferences]) if group.reason or comparisons or preferences else None
        self.rows["groups"].append(
            (
                self.step,
                key,
                text(group.id),
                self.task(group.task),
                text(group.task.id),
                int(group.round),
                int(group.version),
                int(group.planned),
                int(group.stage),
                str(group.state),
                body,
            )
        )
        for number, (name, member) in enumerate(group.members.items()):
            self._member(key, number, name, member)
        return key

    def _member(self, group: int, number: int, name: str, member: Member) -> None:
        rollout, signals, credit = member.rollout, member.signals, member.credit
        role = str(member.role)
        at = self.rollout(rollout, fresh=role == "fresh")
        body: list[Any] = [signals_data(signals), None]
        advantage: Any = None
        if credit is not None:
            if isinstance(credit.advantage, np.ndarray):
                body[1] = [
                    self.payload.array(credit.advantage, f"credit.advantage of rollout {rollout.id}"),
                    credit.weight,
                    credit.ce_weight,
                ]
            else:
                advantage = None if credit.advantage is None else float(credit.advantage)
                body[1] = [advantage, credit.weight, credit.ce_weight]
            if credit.rewards is not None:
                body[1].append(self.payload.array(credit.rewards, f"credit.rewards of rollout {rollout.id}"))
        if name != rollout.id:
            body.append(name)
        correct = signals.correct
        self.rows["members"].append(
            (
                self.step,
                group,
                number,
                *at,
                role,
                int(member.in_baseline),
                int(member.in_loss),
                text(member.cohort),
                None if member.drop is None else str(member.drop),
                text_or_none(member.source),
                real(signals.reward),
                None if correct is None else int(correct),
                real(advantage),
                dumps(body),
            )
        )

    # ---- batch, decisions --------------------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        arrays = {
            name: self.payload.array(getattr(batch, name), f"batch.{name}")
            for name in BATCH_ARRAYS
            if getattr(batch, name) is not None
        }
        rewards = {name: self.payload.array(values, f"batch.rewards[{name!r}]") for name, values in batch.rewards.items()}
        pairs = [[p.chosen, p.rejected, p.weight] for p in batch.preferences]
        media = [[int(row), list(found)] for row, found in batch.media.items()]
        self.rows["batches"].append(
            (
                self.step,
                dumps(
                    {
                        "arrays": arrays,
                        "rewards": rewards,
                        "group_ids": list(batch.group_ids),
                        "rollout_ids": list(batch.rollout_ids),
                        "normalise": batch.normalise,
                        "constant": batch.constant,
                        "preferences": pairs,
                        "media": media,
                        "round": batch.round,
                        "version": batch.version,
                    }
                ),
            )
        )

    def decisions(self, decisions: Sequence[Decision]) -> None:
        rows = self.rows["decisions"]
        for decision in decisions:
            body = (
                dumps_exact([decision.reason, dict(decision.data)], f"data of decision {decision.slot}:{decision.action}")
                if decision.data
                else dumps([decision.reason])
            )
            rows.append(
                (self.step, len(rows), *map(text, (decision.slot, decision.subject, decision.action, decision.task)), body)
            )


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
    verdicts = {name: verdict_data(v) for name, v in signals.verdicts.items()}
    steps = [[s.start, s.end, s.kind, s.value, s.n, s.source] for s in signals.steps] if signals.steps else []
    return [
        verdicts,
        signals.primary,
        dict(signals.rewards),
        signals.reward,
        signals.shaped,
        steps,
        signals.uncertainty,
        signals.novelty,
    ]


def verdict_data(v: Verdict) -> list[Any]:
    """JSON data of a verdict, positional; what it has nothing of at the end is left out."""
    data: list[Any] = [v.verifier, v.version, str(v.status), v.score, v.correct, v.evidence, v.seconds]
    if v.answer is not None or v.spans or v.tokens:
        data += [v.answer, spans_data(v.spans)]
    return [*data, v.tokens] if v.tokens else data


def spans_data(spans: Sequence[Span]) -> list[Any]:
    """JSON data of spans, positional."""
    return [[s.start, s.end, s.kind, s.value] for s in spans]


def task_body(task: Task) -> str:
    """A task as JSON text, all fields; types of the reference, environment and meta are kept (tuples, NaN, bytes)."""
    prompt: Any = task.prompt
    if not isinstance(prompt, str):
        prompt = [[m.role, [[str(p.kind), p.text, p.uri, p.sha256] for p in m.parts], m.name] for m in prompt]
    origin = task.origin
    return dumps_exact(
        {
            "id": task.id,
            "domain": task.domain,
            "prompt": prompt,
            "reference": task.reference,
            "reference_rev": task.reference_rev,
            "tools": list(task.tools),
            "environment": task.environment,
            "category": task.category,
            "meta": task.meta,
            "origin": [origin.kind, origin.source, origin.version, list(origin.parents)],
        },
        f"task {task.id}",
    )


def node_checksum(node_id: str, parent: str | None, form: str, raw: bytes) -> bytes:
    """16 bytes over a node's id, parent, form (its row as ASCII text) and arrays."""
    digest = blake2b(f"{node_id!a} {parent!a} {form} ".encode(), digest_size=16)
    digest.update(raw)
    return digest.digest()


def rollout_digest(path: list[bytes], train: list[bytes] | None, row: Row) -> bytes:
    """16 bytes over a rollout's whole content; `path` and `train` are its nodes' checksums, `row` the other columns."""
    digest = blake2b(f"{row!a} {len(path)} {train is None} ".encode(), digest_size=16)
    digest.update(b"".join(path if train is None else path + train))
    return digest.digest()


def rows_hash(rows: dict[str, list[Row]]) -> str:
    """Digest of a step's rows, table by table; a row's first entry, the step, is left out."""
    digest = blake2b(digest_size=32)
    for table, found in rows.items():
        digest.update(f"{table} {len(found)}\n".encode())
        if table in _SUMMED:  # 16 random bytes are dear as text
            digest.update(b"".join([row[-1] for row in found]))
        end = -1 if table in _SUMMED else None
        for start in range(0, len(found), 256):  # the text of a large step is never whole in memory
            digest.update(ascii([row[1:end] for row in found[start : start + 256]]).encode())
    return digest.hexdigest()
