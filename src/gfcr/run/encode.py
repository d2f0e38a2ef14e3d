"""Rows and payload of one step from the types that flow (the inverse is run/decode.py).

Invariants: lossless, down to None against 0, NaN, -0.0 and empty arrays; within a step a shared node, and a rollout met
twice, is stored once; across steps a rollout met again (replay, injection) is stored again only when its content differs.

A group is one row. Its arrays lie together in the payload, at `start`, `length` bytes; its `body` is JSON data, all positional,
so that a field that a later version adds goes to an end; `sum` is a checksum over both, so that a single rollout can be read
and trusted:

    [reason, comparisons, preferences, members, rollouts, nodes]
    member   [at, role, in_baseline, in_loss, cohort, drop, source, correct, signals, credit, (name)]
    rollout  [key, id, task_id, stop, seed, cost, times, path, train_path, (state_keys, meta)]   those stored with this group
    node     [key, id, parent, form, offset, count]                                              those stored with this group

`at` is a rollout's key, or [step, key] of an earlier step's; an entry of a path is a node's key, or [group, key] of another
group's. A node's arrays lie at `offset` in the order of its form's `layout`: int32 ids, then float32 log-probabilities and
tracks, each of `count` entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from gfcr.run.bodies import Row, batch_body, decision_rows, law_body, signals_data, task_body
from gfcr.run.columns import integer, text, text_or_none
from gfcr.run.exact_json import dumps
from gfcr.run.payload import Payload
from gfcr.types import COST_FIELDS, Batch, Credit, Decision, Group, Member, Path, Rollout, Segment, Task, Times

_costs, _times = attrgetter(*COST_FIELDS), attrgetter(*(f.name for f in fields(Times)))
_SUMMED = ("groups",)
"""Tables whose last two columns are a checksum of 16 bytes and the text it covers."""


class Directory(Protocol):
    """What the encoder asks of the run directory."""

    def stored(self, rollout_id: str) -> Sequence[tuple[int, int]]:
        """(step, key) of every stored content of a rollout, oldest first."""

    def rollout_at(self, step: int, key: int) -> Rollout: ...


class StepEncoder:
    """Collects one step. Objects passed in must live until the step is written (their identity saves encoding them twice)."""

    def __init__(self, step: int, directory: Directory) -> None:
        self.step, self._directory = step, directory
        self.payload = Payload()
        self.rows: dict[str, list[Row]] = {name: [] for name in ("forms", "rollouts", "groups", "batches", "decisions")}
        self.tasks: dict[bytes, Row] = {}
        """Digest -> (id, reference_rev, body)."""
        self._nodes: dict[int, tuple[int, int]] = {}
        """(group, key) of a node stored in this step, by identity."""
        self._count = 0
        self._forms: dict[tuple[Any, ...], int] = {}
        self._last: dict[tuple[str, int], tuple[Segment, int]] = {}
        """Segment last met of a kind and turn: nearly always of the same form, and cheaper to compare than to hash."""
        self._rollouts: dict[int, tuple[int, int]] = {}
        """(step, key) by identity."""
        self._named: dict[str, list[tuple[Rollout, tuple[int, int]]]] = {}
        """Rollouts stored in this step that may be met again under another identity."""
        self._tasks: dict[int, bytes] = {}
        self._group_rollouts: list[Any] = []
        self._group_nodes: list[Any] = []
        """Rollouts and nodes stored with the group at hand."""

    # ---- segments, nodes, rollouts -----------------------------------------------------------------------------

    def form(self, segment: Segment) -> int:
        """Everything of a segment but its arrays, stored once a step."""
        kind, law = segment.kind, segment.sampling
        last = self._last.get((kind, segment.turn))
        if (
            last is not None
            and (seen := last[0]).sampling is law
            and seen.version == segment.version
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
            key = self._forms[known] = len(self._forms)
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
            self.rows["forms"].append((self.step, key, *row))
        self._last[kind, segment.turn] = segment, key
        return key

    def _path(self, path: Path) -> list[Any]:
        """Store the nodes that are not yet; returns where they are, as a stored path says it."""
        group, out = len(self.rows["groups"]), list[Any]()
        for node in path:
            at = self._nodes.get(id(node))
            if at is None:
                segment = node.segment
                raw = segment.ids.tobytes()
                if segment.logprobs is not None:
                    raw += segment.logprobs.tobytes()
                if segment.tracks:
                    raw += b"".join([track.tobytes() for track in segment.tracks.values()])
                key = self._count
                self._count += 1
                self._nodes[id(node)] = group, key
                self._group_nodes.append(
                    (
                        key,
                        text(node.id),
                        text_or_none(node.parent),
                        self.form(segment),
                        self.payload.add(raw),
                        len(segment.ids),
                    )
                )
                out.append(key)
            else:
                out.append(at[1] if at[0] == group else at)
        return out

    def rollout(self, rollout: Rollout, fresh: bool = False) -> tuple[int, int]:
        """(step, key) of the rollout, stored now unless it is already; `fresh` spares the search for an equal one."""
        at = self._rollouts.get(id(rollout)) or (None if fresh else self.find(rollout))
        if at is None:
            rows = self.rows["rollouts"]
            at = self.step, len(rows)
            rows.append((self.step, at[1], text(rollout.id), len(self.rows["groups"])))
            path = self._path(rollout.path)
            train = None if rollout.train_path is None else self._path(rollout.train_path)
            self._group_rollouts.append([at[1], *_rest(rollout, path, train)])
            self._named.setdefault(rollout.id, []).append((rollout, at))
        self._rollouts[id(rollout)] = at
        return at

    def known(self, rollout: Rollout) -> tuple[int, int] | None:
        """Where this very object went in this step; None when it did not."""
        return self._rollouts.get(id(rollout))

    def find(self, rollout: Rollout) -> tuple[int, int] | None:
        """Where an equal rollout is stored, this step included; None when nowhere."""
        own = self._named.get(rollout.id, ())
        earlier = self._directory.stored(rollout.id)
        if not own and not earlier:
            return None
        wanted = content(rollout)
        for at in earlier:
            if content(self._directory.rollout_at(*at)) == wanted:
                return at
        return next((at for other, at in own if content(other) == wanted), None)

    # ---- groups ------------------------------------------------------------------------------------------------

    def task(self, task: Task) -> bytes:
        """Digest of the stored task; the same task twice is stored once."""
        digest = self._tasks.get(id(task))
        if digest is None:
            body = task_body(task)
            digest = blake2b(body.encode(), digest_size=16).digest()
            self._tasks[id(task)] = digest
            self.tasks[digest] = text(task.id), text(task.reference_rev), body
        return digest

    def group(self, group: Group) -> int:
        key = len(self.rows["groups"])
        self._group_rollouts, self._group_nodes = [], []
        start, first = self.payload.size, len(self.payload.chunks)
        data = [
            group.reason,
            [
                [[list(tie) for tie in c.ranking], list(c.order_shown), c.judge, c.version, c.evidence]
                for c in group.comparisons
            ],
            [[p.chosen, p.rejected, p.weight] for p in group.preferences],
            [self._member(name, member) for name, member in group.members.items()],
            self._group_rollouts,
            self._group_nodes,
        ]
        body = dumps(data)
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
                start,
                self.payload.size - start,
                group_sum(body, b"".join(self.payload.chunks[first:])),
                body,
            )
        )
        return key

    def _member(self, name: str, member: Member) -> list[Any]:
        rollout, signals, credit, role = member.rollout, member.signals, member.credit, member.role
        at = self.rollout(rollout, fresh=role == "fresh")
        out = [
            at[1] if at[0] == self.step else list(at),
            role,
            member.in_baseline,
            member.in_loss,
            text(member.cohort),
            member.drop,
            text_or_none(member.source),
            signals.correct,
            signals_data(signals),
            None if credit is None else self._credit(credit, rollout.id),
        ]
        if name != rollout.id:
            out.append(name)
        return out

    def _credit(self, credit: Credit, rollout: str) -> list[Any]:
        advantage: Any = credit.advantage
        if isinstance(advantage, np.ndarray):
            advantage = self.payload.array(advantage, f"credit.advantage of rollout {rollout}")
        elif advantage is not None:
            advantage = float(advantage)
        if credit.rewards is None:
            return [advantage, credit.weight, credit.ce_weight]
        rewards = self.payload.array(credit.rewards, f"credit.rewards of rollout {rollout}")
        return [advantage, credit.weight, credit.ce_weight, rewards]

    # ---- batch, decisions --------------------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        self.rows["batches"].append((self.step, batch_body(batch, self.payload)))

    def decisions(self, decisions: Sequence[Decision]) -> None:
        self.rows["decisions"] += decision_rows(self.step, decisions)


def _rest(rollout: Rollout, path: Any, train: Any) -> list[Any]:
    """A rollout as its group's body has it, without its key."""
    data = [
        rollout.id,
        text(rollout.task_id),
        rollout.stop,
        rollout.seed,
        _costs(rollout.cost),
        _times(rollout.times),
        path,
        train,
    ]
    if rollout.state_keys or rollout.meta:
        data += [list(rollout.state_keys), dict(rollout.meta)]
    return data


def content(rollout: Rollout) -> bytes:
    """A digest of everything a rollout holds, wherever it is stored."""
    digest = blake2b(dumps(_rest(rollout, None, None)).encode(), digest_size=16)
    for path in (rollout.path, rollout.train_path):
        digest.update(b"no path" if path is None else f"{len(path)} nodes".encode())
        for node in path or ():
            segment = node.segment
            form = (segment.kind, segment.turn, segment.author, segment.version, segment.role, segment.source, segment.template)
            law = segment.sampling and law_body(segment.sampling)
            head = ascii((node.id, node.parent, [x and str(x) for x in form], law, len(segment), list(segment.tracks)))
            digest.update(head.encode() + segment.ids.tobytes())
            for values in (segment.logprobs, *segment.tracks.values()):
                digest.update(b"none" if values is None else values.tobytes())
    return digest.digest()


def group_sum(body: str, arrays: bytes | memoryview) -> bytes:
    """16 bytes over a group's body and arrays."""
    digest = blake2b(body.encode(), digest_size=16)
    digest.update(arrays)
    return digest.digest()


def rows_hash(rows: dict[str, list[Row]]) -> str:
    """Digest of a step's rows, table by table; a row's first entry, the step, is left out."""
    digest = blake2b(digest_size=32)
    for table, found in rows.items():
        digest.update(f"{table} {len(found)}\n".encode())
        end = None
        if table in _SUMMED:
            end = -2
            digest.update(b"".join([row[-2] for row in found]))
        for start in range(0, len(found), 256):  # the text of a large step is never whole in memory
            digest.update(ascii([row[1:end] for row in found[start : start + 256]]).encode())
    return digest.hexdigest()
