"""What every engine demands of a request, said once. Raises ValueError that names the request, the value and the remedy."""

from __future__ import annotations

import numpy as np

from gfcr.engine.contract import Request
from gfcr.engine.stops import Decode
from gfcr.types import Path, SegmentKind, StopReason, path_ids


class Contexts:
    """Paths to checked contexts; remembers the last one, since a group's members come one after another from one path."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self._path: Path | None = None
        self._context = np.empty(0, np.int32)

    def of(self, request: Request) -> np.ndarray:
        """int32[n]: the tokens of the request's path. Raises ValueError for one outside the vocabulary."""
        if request.path is not self._path:
            context = np.ascontiguousarray(path_ids(request.path), np.int32)
            if len(context) and context.view(np.uint32).max() >= self.vocabulary:  # a negative id is a huge one
                raise ValueError(f"request {request.id!r}: the path holds a token outside the vocabulary of {self.vocabulary}")
            context.flags.writeable = False  # streams share it
            self._path, self._context = request.path, context
        return self._context


def checked_context(request: Request, max_length: int, contexts: Contexts, decode: Decode | None) -> np.ndarray:
    """int32[n >= 1]: the request's context."""
    context, vocabulary = contexts.of(request), contexts.vocabulary
    n = len(context)
    if not n:
        raise ValueError(f"request {request.id!r}: the path has no tokens; give at least one, such as a begin token")
    if n >= max_length:
        raise ValueError(f"request {request.id!r}: context of {n} tokens leaves no room; the model takes {max_length}")
    if request.max_new_tokens < 1:
        raise ValueError(f"request {request.id!r}: max_new_tokens = {request.max_new_tokens}; ask for at least 1")
    starts = [0, *[start for start, _ in request.later]]
    if starts != sorted(set(starts)):
        raise ValueError(
            f"request {request.id!r}: later laws start at {starts[1:]} new tokens; give rising numbers of 1 or more, and the first "
            "law as sampling"
        )
    for token in request.stop.eos:
        if not 0 <= token < vocabulary:
            raise ValueError(f"request {request.id!r}: stop.eos holds {token}; the vocabulary has {vocabulary} tokens")
    if request.stop.strings:
        if decode is None:
            raise ValueError(f"request {request.id!r}: stop strings need a tokenizer; start the engine with decode=")
        if "" in request.stop.strings:
            raise ValueError(f"request {request.id!r}: an empty stop string would end every stream at once; remove it")
    return context


def said(path: Path) -> np.ndarray:
    """int32[n]: the tokens at the path's end that the policy wrote: the beginning of the answer that goes on after it."""
    own: list[np.ndarray] = []
    for node in reversed(path):
        if node.segment.kind is not SegmentKind.ACTION:
            break
        own.append(node.segment.ids)
    return np.concatenate(own[::-1]) if own else np.empty(0, np.int32)


def limit(request: Request, context: np.ndarray, max_length: int, kv_tokens: int | None = None) -> tuple[int, StopReason]:
    """Most tokens the request may get, and the stop reason when it gets them. `kv_tokens`: positions the engine has room for."""
    room = max_length - len(context)
    full = request.max_new_tokens > room
    end = room if full else request.max_new_tokens
    if kv_tokens is not None and len(context) + end > kv_tokens:
        raise ValueError(f"request {request.id!r}: may need {len(context) + end} positions, kv_tokens allows {kv_tokens}")
    return end, StopReason.CONTEXT_FULL if full else StopReason.MAX_TOKENS


def check_fork(request: Request, context: np.ndarray, parent: np.ndarray | None) -> None:
    """`parent`: the tokens of `request.fork_of` so far; None when it is neither live nor retained."""
    if request.fork_of is None:
        return
    if parent is None:
        raise ValueError(
            f"request {request.id!r}: fork_of {request.fork_of!r} is neither live nor retained; "
            "submit the parent with retain=True, or submit without fork_of"
        )
    most = min(len(parent), len(context))
    if not 1 <= request.fork_at <= most:
        raise ValueError(
            f"request {request.id!r}: fork_at = {request.fork_at} must lie in [1, {most}]: "
            f"the parent has {len(parent)} tokens, the path {len(context)}"
        )
    if not np.array_equal(parent[: request.fork_at], context[: request.fork_at]):
        raise ValueError(
            f"request {request.id!r}: the path differs from its parent {request.fork_of!r} before fork_at = {request.fork_at}"
        )
