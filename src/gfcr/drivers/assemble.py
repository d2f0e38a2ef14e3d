"""Chunks to a rollout. Invariants: tokens, log-probabilities and tracks stay aligned; a weight update or a change of the law in the
middle of a stream starts a new segment, so that every segment has one version and one law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from gfcr.asks import GenerateAsk
from gfcr.context import Configuration
from gfcr.engine.contract import Chunk, Prefilled, Request
from gfcr.generate.growth import part
from gfcr.types import Cost, LossRole, Node, Path, Rollout, Segment, SegmentKind, StopReason, Times, TokenSource

_VERSION = attrgetter("version")


@dataclass(slots=True, eq=False)
class Growing:
    """A rollout while it grows."""

    ask: GenerateAsk
    queued: float = 0.0
    """When it was submitted, in the driver's clock."""
    chunks: list[Chunk] = field(default_factory=list)
    stop: StopReason | None = None
    prefilled: int = 0
    cached: int = 0
    lost: int = 0
    """Tokens sampled for it that the engine could not give back."""
    error: str = ""
    """Why the engine failed it, where the engine knows."""

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.stop is not None:
            self.stop, self.error, self.lost = chunk.stop, chunk.error, chunk.lost

    def prefill(self, cost: Prefilled) -> None:
        self.prefilled += cost.computed
        self.cached += cost.cached

    @property
    def generated(self) -> int:
        return sum([len(c.ids) for c in self.chunks])

    def context(self) -> Cost:
        """What its context cost."""
        return Cost(prefilled=self.prefilled, cached=self.cached)

    def answer(self) -> tuple[np.ndarray, np.ndarray]:
        """int32[n], float32[n]: the answer so far and its log-probabilities, with what earlier requests gave of it (NaN where nobody
        sampled)."""
        ids, logprobs = [c.ids for c in self.chunks], [c.logprobs for c in self.chunks]
        for node in reversed(self.ask.request.path):
            segment = node.segment
            if segment.kind is not SegmentKind.ACTION:
                break
            ids.insert(0, segment.ids)
            logprobs.insert(0, np.full(len(segment), np.nan, np.float32) if segment.logprobs is None else segment.logprobs)
        return np.concatenate(ids), np.concatenate(logprobs)

    def rest(self) -> Request:
        """What is left of the request, from the end of what was sampled on."""
        request, done = self.ask.request, self.generated
        if not done:
            return request
        law, later = Configuration(request.sampling, 0, request.later).at(done)
        left = request.max_new_tokens - done
        return replace(request, path=self.path(), sampling=law, later=later, max_new_tokens=left, fork_of=None, fork_at=0)

    def rollout(self, finished: float = 0.0) -> Rollout:
        """The finished rollout; `stop` must be set."""
        ask = self.ask
        assert self.stop is not None
        cost = Cost(generated=self.generated, prefilled=self.prefilled, cached=self.cached)
        times = Times(self.queued, finished)
        return Rollout(ask.id, ask.task_id, self.path(), self.stop, seed=ask.request.key, cost=cost, times=times)

    def path(self) -> Path:
        """The asked path and what was sampled after it: a node per version of the weights and law. A resumed rollout's nodes are
        numbered on from those it has."""
        ask, chunks = self.ask, self.chunks
        path = ask.request.path
        before = _nodes_of(ask.id, path) if path[-1].segment.kind is SegmentKind.ACTION else 0
        if len(chunks) == 1 and not before and len(chunks[0].ids) and not ask.request.later:
            return (*path, Node(ask.id, path[-1].id, self._segment(chunks, chunks[0].version)))
        for i, segment in enumerate(self._segments(), before):
            path = (*path, Node(ask.id if i == 0 else f"{ask.id}.{i}", path[-1].id, segment))
        return path

    def _segments(self) -> Iterator[Segment]:
        """One per run of equal version and law."""
        start = 0
        for version, run in groupby([c for c in self.chunks if len(c.ids)], key=_VERSION):
            whole = self._segment(list(run), version)
            for first, end, law in self.ask.request.spans(start, start + len(whole)):
                cut = part(whole, first - start, end - start)
                tracks = {name: track for name, track in cut.tracks.items() if law.truncated or name != "kept_mass"}
                yield replace(cut, sampling=law, tracks=tracks)
            start += len(whole)

    def _segment(self, chunks: list[Chunk], version: int) -> Segment:
        request = self.ask.request
        if len(chunks) == 1:
            ids, logprobs, tracks = chunks[0].ids, chunks[0].logprobs, chunks[0].tracks
        else:
            ids = np.concatenate([c.ids for c in chunks])
            logprobs = np.concatenate([c.logprobs for c in chunks])
            tracks = {name: np.concatenate([c.tracks[name] for c in chunks]) for name in chunks[0].tracks}
        return Segment(
            SegmentKind.ACTION,
            ids,
            logprobs,
            turn=request.turn,
            author=request.author,
            version=version,
            sampling=self.ask.request.sampling,
            role=LossRole.RL if request.trained else LossRole.NONE,
            source=TokenSource.SAMPLED,
            tracks=tracks,
        )


def _nodes_of(request: str, path: Path) -> int:
    """Nodes of a path that earlier requests of this id sampled."""
    return sum(node.id == request or node.id.startswith(f"{request}.") for node in path)
