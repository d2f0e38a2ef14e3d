"""The scripted engine: the engine contract without a model, on a virtual clock.

For golden vectors (exact answers given by name) and for measuring everything else at ten thousand rollouts. Invariants: a
stream is a pure function of its key and offsets, so batch order, cancelling and resuming change nothing; `score` gives the
log-probabilities the stream came with; time is virtual and moves only with decoding, prefilling and `advance`.
The log-probabilities are a hash of (version, previous token, token), not a law: they do not sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import numpy as np

from gfcr.engine import features_of
from gfcr.engine.contract import Capabilities, Chunk, Prefilled, Request, Score, ScoreItem, Usage, WeightsRef
from gfcr.engine.requests import Contexts, check_fork, checked_context, limit, said
from gfcr.engine.stops import Decode, Watch
from gfcr.run.seeds import uniforms
from gfcr.types import StopReason

Answer = tuple[Sequence[int], StopReason]
"""Exact token ids (the end token included) and why the stream ends."""
Script = Mapping[str | tuple[str, int], Answer] | Callable[[Request], Answer | None]
"""By request id, or by (prompt text, member index): the n-th request with that context gets index n; or a function."""

PREPARED = 256
"""Streams drawn at once."""
_NO_IDS, _NO_NUMBERS = np.empty(0, np.int32), np.empty(0, np.float32)
_LENGTH = 1 << 62
"""Flat offsets from here on hold the draws of a stream's length."""


@dataclass(frozen=True, slots=True)
class ScriptedSettings:
    """Lengths are log-normal unless a script says otherwise; times are virtual seconds."""

    slots: int = 128
    max_length: int = 1 << 20
    vocabulary: int = 37
    mean_length: float = 52.0
    """Tokens, the end token included."""
    sigma: float = 0.7
    """Of the logarithm of the length."""
    seconds_per_step: float = 0.01
    seconds_per_token: float = 1e-4
    seconds_per_prefill: float = 1e-5
    """Per context token computed."""


@dataclass(slots=True, eq=False)
class _Stream:
    request: Request
    context: np.ndarray
    end: int
    end_reason: StopReason
    index: int
    """How many requests had the same context since the last load."""
    order: int
    """Of submission."""
    ids: np.ndarray = field(default_factory=lambda: _NO_IDS)
    logprobs: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)
    entropy: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)
    stop: StopReason | None = None
    """None until prepared."""
    started: int = -1
    """Decode step of its first token; -1 while queued."""
    sent: int = 0


class ScriptedEngine:
    """See gfcr.engine.contract.Engine."""

    def __init__(
        self,
        script: Script | None = None,
        settings: ScriptedSettings | None = None,
        decode: Decode | None = None,
        version: int = 0,
    ) -> None:
        """`decode`: token ids to text, needed by stop strings and by scripts keyed by prompt text."""
        self.settings = settings or ScriptedSettings()
        self._script, self._decode, self._version = script or {}, decode, version
        self._contexts = Contexts(self.settings.vocabulary)
        self._queue: list[tuple[int, int, _Stream]] = []
        self._ready: list[_Stream] = []
        """The head of the queue, drawn already, next one last."""
        self._live: dict[str, _Stream] = {}
        self._ends: list[tuple[int, int, _Stream]] = []
        """Running streams by the step of their last token."""
        self._running = 0
        self._ended: dict[str, np.ndarray] = {}
        """Tokens of retained requests."""
        self._seen: dict[bytes, int] = {}
        self._prefilled: list[Prefilled] = []
        self._count = self._step = self._held = 0
        self._now = 0.0
        self._usage = {"prefilled": 0, "decoded": 0, "scored": 0, "cached": 0, "kv_peak": 0, "live_peak": 0}

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let virtual time pass for work outside the engine."""
        self._now += seconds

    def capabilities(self) -> Capabilities:
        return Capabilities("scripted", features_of("scripted"), self.settings.max_length, self.settings.vocabulary)

    def submit(self, request: Request) -> None:
        if request.id in self._live:
            raise ValueError(f"request {request.id!r} is live already; ids must be unique among live requests")
        context = checked_context(request, self.settings.max_length, self._contexts, self._decode)
        if request.fork_of is not None:
            check_fork(request, context, self._tokens(request.fork_of))
        end, reason = limit(request, context, self.settings.max_length)
        key = blake2b(
            context.tobytes(), digest_size=16
        ).digest()  # contexts of turns grow: kept whole they would add up to a square
        index = self._seen.get(key, 0)
        self._seen[key] = index + 1
        self._count += 1
        stream = _Stream(request, context, end, reason, index, self._count)
        self._live[request.id] = stream
        if self._ready and request.priority < self._ready[-1].request.priority:
            for early in self._ready:  # it overtakes streams that are drawn; they keep their place among their equals
                heappush(self._queue, (early.request.priority, early.order, early))
            self._ready = []
        heappush(self._queue, (request.priority, self._count, stream))

    def _tokens(self, name: str) -> np.ndarray | None:
        stream = self._live.get(name)
        if stream is None:
            return self._ended.get(name)
        return np.concatenate([stream.context, stream.ids[: self._produced(stream)]])

    def _produced(self, stream: _Stream) -> int:
        return 0 if stream.started < 0 else min(len(stream.ids), self._step - stream.started + 1)

    def step(self, tokens: int | None = None) -> list[Chunk]:
        if tokens is not None and tokens < 1:
            raise ValueError(f"step(tokens={tokens}): ask for at least 1, or None to run until a request finishes")
        chunks: list[Chunk] = []
        target = None if tokens is None else self._step + tokens
        while self._live and (target is None or self._step < target):
            waiting = len(self._live) > self._running and self._running < self.settings.slots
            jump = self._step + 1
            if not waiting and self._ends:
                jump = self._ends[0][0] if target is None else min(self._ends[0][0], target)
            self._pass(jump)
            self._finish(chunks)
            self._admit()
            self._finish(chunks)
            if target is None and chunks:
                return chunks
        if target is not None:
            for _, _, stream in sorted(self._ends, key=lambda e: e[2].started):
                if self._live.get(stream.request.id) is stream and self._produced(stream) > stream.sent:
                    chunks.append(self._chunk(stream, self._produced(stream), None))
        return chunks

    def _pass(self, step: int) -> None:
        """Decode up to `step`."""
        steps = step - self._step
        if self._running:
            settings = self.settings
            self._now += steps * (settings.seconds_per_step + self._running * settings.seconds_per_token)
            self._usage["decoded"] += steps * self._running
            self._held += steps * self._running
        self._step = step
        self._peak()

    def _finish(self, chunks: list[Chunk]) -> None:
        while self._ends and self._ends[0][0] <= self._step:
            stream = heappop(self._ends)[2]
            if self._live.get(stream.request.id) is stream:
                self._end(stream)
                chunks.append(self._chunk(stream, len(stream.ids), stream.stop))

    def _end(self, stream: _Stream) -> None:
        if stream.request.retain:
            tokens = self._tokens(stream.request.id)
            assert tokens is not None
            self._ended[stream.request.id] = tokens
        del self._live[stream.request.id]
        if stream.started >= 0:
            self._running -= 1
            self._held -= len(stream.context) + self._produced(stream)

    def _chunk(self, stream: _Stream, end: int, stop: StopReason | None) -> Chunk:
        part = slice(stream.sent, end)
        stream.sent = end
        tracks = {"entropy": stream.entropy[part]}
        if any(law.truncated for law in stream.request.laws):
            tracks["kept_mass"] = np.ones(part.stop - part.start, np.float32)
        return Chunk(stream.request.id, stream.ids[part], stream.logprobs[part], self._version, tracks, stop)

    def _admit(self) -> None:
        """Fill free slots; admitted streams have their first token at once."""
        shared: set[bytes] = set()
        while self._running < self.settings.slots and (self._ready or self._queue):
            if not self._ready:
                self._prepare()
                continue
            stream = self._ready.pop()
            if self._live.get(stream.request.id) is not stream:
                continue  # cancelled
            request, n = stream.request, len(stream.context)
            key = stream.context.tobytes()
            cached = n if key in shared else request.fork_at if request.fork_of is not None else 0
            shared.add(key)
            self._prefilled.append(Prefilled(request.id, n - cached, cached))
            self._usage["prefilled"] += n - cached
            self._usage["cached"] += cached
            self._usage["decoded"] += 1
            self._now += (n - cached) * self.settings.seconds_per_prefill
            self._running += 1
            self._held += n + 1
            stream.started = self._step
            self._count += 1
            heappush(self._ends, (self._step + len(stream.ids) - 1, self._count, stream))
        self._peak()

    def _peak(self) -> None:
        self._usage["kv_peak"] = self._usage["live_peak"] = max(self._usage["live_peak"], self._held)

    def _prepare(self) -> None:
        """Draw the tokens of the next streams in the queue, all at once."""
        streams = [heappop(self._queue)[2] for _ in range(min(PREPARED, len(self._queue)))]
        self._ready = streams[::-1]
        fresh = [s for s in streams if s.stop is None and not self._scripted(s)]
        if not fresh:
            return
        keys = np.array([s.request.key for s in fresh], np.uint64)
        u = uniforms(keys[:, None], np.arange(_LENGTH, _LENGTH + 2))
        normal = np.sqrt(-2 * np.log1p(-u[:, 0])) * np.cos(2 * np.pi * u[:, 1])  # Box and Muller 1958
        sigma = self.settings.sigma
        drawn = np.rint(self.settings.mean_length * np.exp(sigma * normal - sigma**2 / 2)).astype(np.int64)
        ends = np.array([s.end for s in fresh])
        # A resumed stream goes on to the length it had drawn; without an end token it runs to its limit.
        done = np.array([len(said(s.request.path)) for s in fresh])
        length = np.where([bool(s.request.stop.eos) for s in fresh], np.maximum(1, drawn - done), ends + 1)
        counts = np.minimum(length, ends)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - [len(s.context) for s in fresh], counts)
        ids = (uniforms(np.repeat(keys, counts), at) * self.settings.vocabulary).astype(np.int32)
        eos = {s.request.stop.eos for s in fresh}
        for ends_ in eos - {()}:
            same = np.array([s.request.stop.eos == ends_ for s in fresh])
            mask = True if len(eos) == 1 else np.repeat(same, counts)
            other = next((t for t in range(self.settings.vocabulary) if t not in ends_), ends_[0])
            ids[np.isin(ids, ends_) & mask] = other
            last = same & (length <= ends)
            ids[offsets[1:][last] - 1] = ends_[0]
        previous = np.empty_like(ids)
        previous[1:] = ids[:-1]
        previous[offsets[:-1]] = [s.context[-1] for s in fresh]
        logprobs, entropy = self._pseudo(previous, ids)
        for values in (ids, logprobs, entropy):
            values.flags.writeable = False  # so are the streams' slices, which segments then take as they are
        for i, stream in enumerate(fresh):
            part = slice(offsets[i], offsets[i + 1])
            stream.ids, stream.logprobs, stream.entropy = ids[part], logprobs[part], entropy[part]
            stream.stop = StopReason.EOS if length[i] <= ends[i] else stream.end_reason
            if stream.request.stop.strings:
                self._cut(stream)

    def _scripted(self, stream: _Stream) -> bool:
        """Give the stream its script's answer, if it has one."""
        script = self._script
        if callable(script):
            answer = script(stream.request)
        elif not script:
            return False
        else:
            answer = script.get(stream.request.id)
            if answer is None and self._decode is not None:
                answer = script.get((self._decode(stream.context.tolist()), stream.index))
        if answer is None:
            return False
        ids = np.asarray(answer[0], np.int32)
        if not len(ids) or ids.min() < 0 or ids.max() >= self.settings.vocabulary:
            raise ValueError(
                f"the scripted answer to request {stream.request.id!r} must hold tokens of the vocabulary of "
                f"{self.settings.vocabulary}, at least one; it holds {ids.tolist()[:8]}"
            )
        stream.ids = ids[: stream.end]
        stream.stop = answer[1] if len(ids) <= stream.end else stream.end_reason
        previous = np.concatenate([stream.context[-1:], stream.ids[:-1]])
        stream.logprobs, stream.entropy = self._pseudo(previous, stream.ids)
        return True

    def _cut(self, stream: _Stream) -> None:
        assert self._decode is not None
        watch = Watch(stream.request.stop.strings, self._decode, said(stream.request.path))
        for n in range(1, len(stream.ids) + 1):
            if watch.hit(stream.ids[:n]):
                ended = n == len(stream.ids) and stream.stop is StopReason.EOS
                stream.stop = StopReason.EOS if ended else StopReason.STOP_STRING
                stream.ids, stream.logprobs, stream.entropy = stream.ids[:n], stream.logprobs[:n], stream.entropy[:n]
                return

    def _pseudo(self, previous: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities in [-2.1, -.05] and entropies in [.5, 1.5]; a version moves the former by at most .1."""
        pair = previous.astype(np.uint32) * np.uint32(2654435761) + ids.astype(np.uint32) * np.uint32(2246822519)
        low = ((pair ^ (pair >> np.uint32(15))) & np.uint32(1023)).astype(np.float32) / np.float32(1024)
        shift = np.float32(0.05 * ((self._version * 7) % 20) / 20)
        return -(np.float32(0.1) + np.float32(1.95) * low) + shift, np.float32(0.5) + low

    def prefilled(self) -> list[Prefilled]:
        out, self._prefilled = self._prefilled, []
        return out

    def cancel(self, request: str) -> Chunk | None:
        stream = self._live.get(request)
        if stream is None:
            self._ended.pop(request, None)
            return None
        produced = self._produced(stream)
        self._end(stream)
        return self._chunk(stream, produced, StopReason.CANCELLED)

    def live(self) -> int:
        return len(self._live)

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        scores = []
        for item in items:
            out = Score(item.id, np.full(len(item.ids), np.nan, np.float32), np.full(len(item.ids), np.nan, np.float32))
            for start, end, _ in item.spans:
                if not 1 <= start < end <= len(item.ids):
                    raise ValueError(
                        f"score item {item.id!r}: span ({start}, {end}) must lie in [1, {len(item.ids)}]; "
                        "token 0 has no context"
                    )
                scored = self._pseudo(item.ids[start - 1 : end - 1], item.ids[start:end])
                out.logprobs[start:end], out.entropy[start:end] = scored
            self._usage["scored"] += max((end for _, end, _ in item.spans), default=1) - 1
            scores.append(out)
        return scores

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        if self._live:
            raise RuntimeError(
                f"load of version {ref.version} refused: {len(self._live)} requests are live under version "
                f"{self._version}; let them finish or cancel them"
            )
        self._ended.clear()
        self._seen.clear()
        self._version = ref.version

    def fingerprint(self) -> str:
        return blake2b(f"scripted {self.settings.vocabulary} {self._version}".encode(), digest_size=16).hexdigest()

    def usage(self) -> Usage:
        return Usage(**self._usage)

    def close(self) -> None:
        self._live.clear()
        self._queue, self._ready, self._ends = [], [], []
