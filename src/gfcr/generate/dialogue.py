"""What turns of a policy and an environment have in common, through a chat template or as plain text.

Invariants: what the policy wrote is kept as sampled and never encoded again; a token stands in exactly one segment; dialogues are
frozen, so that branches share their past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from gfcr.generate.codec import Codec
from gfcr.types import Message, Node, Path, Rollout, Segment, SegmentKind, StopReason, ToolCall, derive_id, path_ids

_TAIL = 8
"""Tokens before an answer that may decide how its first ones decode."""


class Dialogue(Protocol):
    """Turns as token ids. `Conversation` (a chat template) and `Transcript` (plain text) are dialogues."""

    @property
    def path(self) -> Path: ...

    @property
    def stop(self) -> StopReason | None:
        """How the last answer ended; None before the first."""

    @property
    def turn(self) -> int:
        """Answers so far."""

    @property
    def said_last(self) -> str:
        """Text of the last answer, without the control token that ended it; empty before the first."""

    def said(self, rollout: Rollout, calls: Sequence[ToolCall] = ()) -> Dialogue:
        """After an answer. Raises ValueError for a rollout that does not go on from `path`."""

    def grown(self, path: Path, stop: StopReason, calls: Sequence[ToolCall] = ()) -> Dialogue:
        """`said` for a path that is not a rollout yet."""

    def calling(self, calls: Sequence[ToolCall]) -> Dialogue:
        """The same after an answer, with the calls that were read from `said_last`."""

    def heard(self, new: Sequence[Message], author: str = "environment", id: str = "") -> Dialogue:
        """After the environment's messages, as one OBSERVATION."""

    def ids(self) -> np.ndarray:
        """int32[n]: all tokens."""

    def tally(self) -> dict[SegmentKind, int]:
        """Tokens by kind; they sum to the length."""


def continued(known: Path, path: Path, turn: int) -> tuple[Path, tuple[Node, ...]]:
    """`path` with its nodes after `known` in their turn, and those nodes. Raises ValueError when it begins otherwise."""
    n = len(known)
    same = bool(n) and len(path) >= n and path[n - 1] is known[-1]  # the usual case; a node names the one before it
    if not same and [node.id for node in path[:n]] != [node.id for node in known]:
        raise ValueError(f"{path[-1].id if path else 'the path'} does not continue this dialogue: its path begins otherwise")
    new = path[n:]
    if any(node.segment.turn != turn for node in new):
        new = tuple(replace(node, segment=replace(node.segment, turn=turn)) for node in new)
    elif same:
        return path, new
    return known + new, new


def answer_text(codec: Codec, known: Path, new: Path) -> str:
    """Text of an answer's nodes after `known`, without the control token that ended it."""
    ids = path_ids(new).tolist()
    if ids and ids[-1] in codec.control_ids:
        ids.pop()
    return codec.cleaned(codec.text_after(_last_ids(known), ids)) if ids else ""


def observation(path: Path, ids: Sequence[int], turn: int, author: str, template: str | None, id: str) -> Node:
    """A node of what was fed; `id` derived when empty."""
    segment = Segment(SegmentKind.OBSERVATION, np.asarray(ids, np.int32), turn=turn, author=author, template=template)
    return Node(id or derive_id("observation", path[-1].id, segment.ids.tobytes()), path[-1].id, segment)


def tally(path: Path) -> dict[SegmentKind, int]:
    out = Counter[SegmentKind]()
    for node in path:
        out[node.segment.kind] += len(node.segment)
    return dict(out)


def _last_ids(path: Path) -> list[int]:
    """The last few tokens, found without joining the whole path."""
    found: list[int] = []
    for node in reversed(path):
        found = node.segment.ids[len(found) - _TAIL :].tolist() + found
        if len(found) >= _TAIL:
            break
    return found
