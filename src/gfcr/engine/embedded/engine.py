"""The embedded engine: the engine contract over a Hugging Face causal LM in this process, with continuous batching.

Invariants: a draw depends on the request's key, its flat offset and its logits only, never on slots, waves or neighbours;
requests are admitted in submission order within a priority, in waves; a stream's tokens leave with the version that
sampled them; nothing that depends on weights outlives a `load`; the same submissions give bit-equal chunks (on CPU, with
the same build and threads).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.engine import features_of
from gfcr.engine.contract import Capabilities, Chunk, Prefilled, Request, Score, ScoreItem, Usage, WeightsRef
from gfcr.engine.embedded.checks import SelfCheck, longest, refuse_architecture, start_check
from gfcr.engine.embedded.core import Core
from gfcr.engine.embedded.counts import Counts, count_contexts, count_drawn
from gfcr.engine.embedded.dtype import cast, choose_dtype
from gfcr.engine.embedded.law import LawRows, Laws, draw, log_law
from gfcr.engine.embedded.model import Model
from gfcr.engine.embedded.queue import Queue
from gfcr.engine.embedded.scoring import score
from gfcr.engine.embedded.settings import EmbeddedSettings
from gfcr.engine.embedded.streams import Stream, Streams
from gfcr.engine.embedded.weights import fingerprint, load_weights
from gfcr.engine.requests import Contexts, check_fork, checked_context, limit, said
from gfcr.engine.stops import Decode, EndTokens, Watch
from gfcr.run.seeds import uniforms
from gfcr.types import StopReason


class EmbeddedEngine:
    """See gfcr.engine.contract.Engine. Not thread-safe."""

    def __init__(
        self,
        module: Any,
        settings: EmbeddedSettings | None = None,
        decode: Decode | None = None,
        version: int = 0,
    ) -> None:
        """`module`: a Hugging Face causal LM; the engine owns it from here on (moved, set to eval, its attention replaced).
        `decode`: token ids to text, needed by stop strings only. `version`: of the weights it holds now.

        Raises ConfigError for an architecture it cannot serve, or when the start-up check fails.
        """
        self.settings = settings or EmbeddedSettings()
        refuse_architecture(module)
        self.max_length = longest(module.config, self.settings.max_length)
        parameters, device = sum(p.numel() for p in module.parameters()), self.settings.device
        self.dtype, self._why = choose_dtype(self.settings.dtype, parameters, self.settings.slots, device)
        self._model = Model(cast(module, getattr(torch, self.dtype), device), self.settings.few_operations)
        self._decode, self._version = decode, version
        self._core = Core(self._model, self.settings.block, self.settings.batch_tokens, self.settings.min_shared)
        self.check = SelfCheck(float("nan"), float("nan"), 0, False)
        """What the start-up check found."""
        if self.settings.check_tokens:
            self.check = start_check(self._model, self._core, self.settings.check_tokens)
        self._model.through = self._model.heads = 0
        self._core.kv_peak = self._core.live_peak = 0
        self._laws = Laws(self._model.vocabulary, self._model.device)
        self._ends = EndTokens(self._model.vocabulary)
        self._contexts = Contexts(self._model.vocabulary)
        self._state = Streams(self.settings.slots)
        self._running: dict[str, Stream] = {}
        self._order = np.empty(0, np.int64)
        """Slots in batch order."""
        self._by_slot: dict[int, Stream] = {}
        self._queue = Queue()
        self._retained: OrderedDict[str, Stream] = OrderedDict()
        self._prefilled: list[Prefilled] = []
        self._law_rows: LawRows | None = None
        self._counts: Counts | None = None
        """Token counts [slots, vocabulary] of paths and of sampled tokens, while a running law penalises."""
        self._usage = {"prefilled": 0, "decoded": 0, "scored": 0, "cached": 0}
        self._closed = False

    def capabilities(self) -> Capabilities:
        details = {
            "device": str(self._model.device),
            "dtype": self.dtype,
            "dtype_reason": self._why,
            "slots": self.settings.slots,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "self_check": asdict(self.check),
        }
        return Capabilities("embedded", features_of("embedded"), self.max_length, self._model.vocabulary, details)

    def submit(self, request: Request) -> None:
        self._open()
        if request.id in self._running or request.id in self._queue:
            raise ValueError(f"request {request.id!r} is live already; ids must be unique among live requests")
        stream = self.accept(request)
        parent = None if request.fork_of is None else self._find(request.fork_of)
        check_fork(request, stream.context, None if parent is None else self._state.tokens(parent))
        if request.fork_of != request.id:
            self._retire_retained(request.id)  # the name is taken anew
        self._queue.push(stream)

    def accept(self, request: Request) -> Stream:
        """The stream of a request, not queued. Raises ValueError for what no engine like this takes (forks apart)."""
        context = checked_context(request, self.max_length, self._contexts, self._decode)
        end = limit(request, context, self.max_length, self.settings.kv_tokens)
        watch = Watch(request.stop.strings, self._decode, said(request.path)) if request.stop.strings and self._decode else None
        laws, eos = tuple(map(self._laws.number, request.laws)), self._ends.number(request.stop.eos)
        return Stream(request, context, *end, laws, eos, watch=watch)

    def _find(self, name: str) -> Stream | None:
        return self._running.get(name) or self._queue.get(name) or self._retained.get(name)

    def step(self, tokens: int | None = None) -> list[Chunk]:
        self._open()
        if tokens is not None and tokens < 1:
            raise ValueError(f"step(tokens={tokens}): ask for at least 1, or None to run until a request finishes")
        chunks: list[Chunk] = []
        done = 0
        with torch.inference_mode():
            while self.live():
                chunks += self._advance()
                done += 1
                if chunks if tokens is None else done >= tokens:
                    break
        if tokens is not None:
            new = self._state.new > self._state.sent
            growing = [self._by_slot[slot] for slot in self._order.tolist() if new[slot]]
            chunks += [self._state.chunk(stream, self._version, None) for stream in growing]
        return chunks

    def _advance(self) -> list[Chunk]:
        """One token for every running stream, then a wave of admissions with its first tokens."""
        chunks: list[Chunk] = []
        state = self._state
        if len(self._order):
            slots = self._order
            positions = state.written[slots]
            # The bound counts the positions about to be written.
            hidden = self._core.decode(slots, positions, state.last[slots], self._allowed(len(slots)))
            state.written[slots] = positions + 1
            self._settle()
            if state.changing and state.change_laws(slots):
                self._law_rows = None
            chunks += self._draw(slots, self._model.head(hidden), self._rows(), self._counts)
        if len(self._queue):
            chunks += self._admit()
        return chunks

    def _admit(self) -> list[Chunk]:
        running = len(self._order)
        wave = self._queue.wave(self.settings.slots - running, running, self._fits(), self._ready)
        if not wave:
            if not running:  # what is kept takes the room
                self._retire_retained(*self._retained)
            return []
        state = self._state
        sources = [self._source(stream) for stream in wave]
        slots = np.array([state.take(stream) for stream in wave])
        total = sum(len(stream.context) for stream in wave)
        before = self._model.through
        hidden, computed = self._core.prefill(slots.tolist(), [s.context for s in wave], sources, self._allowed(total, wave))
        self._usage["prefilled"] += self._model.through - before
        self._usage["cached"] += total - sum(computed)
        for stream, n in zip(wave, computed):
            state.written[stream.slot] = len(stream.context)
            self._running[stream.request.id] = self._by_slot[stream.slot] = stream
            self._prefilled.append(Prefilled(stream.request.id, n, len(stream.context) - n))
        self._order = np.concatenate([self._order, slots])
        self._law_rows = None
        self._count_contexts(wave)
        for stream in wave:
            if self._retained:
                self._retire_retained(stream.request.id)
        self._trim_retained()
        self._settle()
        return self._draw(slots, self._model.head(hidden), self._laws.rows(state.law[slots]), self._counts)

    def _ready(self, stream: Stream) -> bool:
        """Whether the prefix a fork shares is stored, or never will be."""
        parent, at = stream.request.fork_of, stream.request.fork_at
        if parent is None or parent == stream.request.id:
            return True
        if parent in self._queue:
            return False
        return parent not in self._running or int(self._state.written[self._running[parent].slot]) >= at

    def _source(self, stream: Stream) -> tuple[int, int] | None:
        """(slot, tokens) of a stored prefix of the stream's context."""
        request, at = stream.request, stream.request.fork_at
        if request.fork_of is None:
            return None
        parent = self._running.get(request.fork_of) or self._retained.get(request.fork_of)
        # The parent may have ended and its name been given to another request since the fork was submitted.
        if parent is None or not np.array_equal(self._state.tokens(parent)[:at], stream.context[:at]):
            return None
        return parent.slot, min(at, int(self._state.written[parent.slot]))

    def _draw(self, slots: np.ndarray, logits: Tensor, rows: LawRows, counts: Counts | None) -> list[Chunk]:
        """Sample one token for each of `slots`, record it, and end the streams it ends."""
        state = self._state
        index = torch.from_numpy(slots).to(logits.device)
        path, sampled = (None, None) if counts is None else (counts[0][index], counts[1][index])
        law, mass = log_law(logits, rows, path, sampled)
        offsets = state.start[slots] + state.new[slots]
        tokens_, logprobs_, entropies_ = draw(law, uniforms(state.key[slots], offsets))
        if counts is not None:
            count_drawn(counts, index, tokens_)
        tokens, logprobs, entropies = tokens_.cpu().numpy(), logprobs_.cpu().numpy(), entropies_.cpu().numpy()
        masses = None if mass is None else mass.cpu().numpy()
        failed = ~np.isfinite(logprobs)
        self._usage["decoded"] += int(len(failed) - failed.sum())  # a draw from NaN logits gives no token
        if failed.any():
            good = ~failed
            state.record(slots[good], tokens[good], logprobs[good], entropies[good], None if masses is None else masses[good])
        else:
            state.record(slots, tokens, logprobs, entropies, masses)
        ended = self._ends.table[state.eos[slots], tokens] & ~failed
        over = failed | ended | (state.new[slots] >= state.end[slots])
        reasons: dict[int, StopReason] = {}
        for i in np.flatnonzero(state.watched[slots] & ~failed & ~ended).tolist():
            slot = int(slots[i])
            watch = self._by_slot[slot].watch
            if watch is not None and watch.hit(state.ids[slot, : state.new[slot]]):
                over[i] = True
                reasons[slot] = StopReason.STOP_STRING
        if not over.any():
            return []
        for i in np.flatnonzero(over).tolist():
            slot = int(slots[i])
            if failed[i] or ended[i]:
                reasons[slot] = StopReason.FAILED if failed[i] else StopReason.EOS
            else:
                reasons.setdefault(slot, self._by_slot[slot].end_reason)
        return self._end(reasons)

    def _end(self, reasons: dict[int, StopReason]) -> list[Chunk]:
        """Take streams out of the batch; their last chunks, in batch order."""
        chunks, drop, keep = [], [], []
        state = self._state
        for slot, reason in reasons.items():
            stream = self._by_slot.pop(slot)
            name = stream.request.id
            del self._running[name]
            chunks.append(state.chunk(stream, self._version, reason))
            if reason is StopReason.FAILED and self._core.pool is not None:
                self._core.pool.zero(slot)
            if (stream.request.retain or self._queue.wanted(name)) and reason is not StopReason.FAILED:
                stream.tokens = state.tokens(stream)
                self._retained[name] = stream
                keep.append(slot)
            else:
                drop.append(slot)
        if self._core.pool is not None:
            self._core.pool.retire(np.array(drop, np.int64), np.array(keep, np.int64))
        for slot in drop:
            state.release(slot)
        self._order = self._order[~np.isin(self._order, [*drop, *keep])]
        self._law_rows = None
        if not self._order.size:
            self._counts = None
        self._trim_retained()
        self._settle()
        return chunks

    def _trim_retained(self) -> None:
        """Drop what was kept only for forks that are admitted or gone, and the oldest beyond the room."""
        self._retire_retained(*[n for n, s in self._retained.items() if not s.request.retain and not self._queue.wanted(n)])
        while self._retained and self._kept() > self.settings.retain_tokens:
            self._retire_retained(next(iter(self._retained)))

    def _retire_retained(self, *names: str) -> None:
        for stream in [self._retained.pop(name) for name in names if name in self._retained]:
            if self._core.pool is not None:
                self._core.pool.drop_kept(stream.slot)
                self._state.release(stream.slot)

    def _kept(self) -> int:
        return sum(int(self._state.written[s.slot]) for s in self._retained.values())

    def _held(self) -> int:
        """Positions stored for running and retained streams."""
        return int(self._state.written[self._order].sum()) + (self._kept() if self._retained else 0)

    def _longest(self, wave: Sequence[Stream] = ()) -> int:
        slots = self._order
        running = int((self._state.start[slots] + self._state.end[slots]).max()) if len(slots) else 0
        return max([running, *(len(s.context) + s.end for s in wave)])

    def _allowed(self, more: int, wave: Sequence[Stream] = ()) -> int:
        """Positions the pool may have once `more` are written."""
        return 2 * (self._held() + more) + self._longest(wave)

    def _settle(self) -> None:
        self._core.settle(self._held(), self._longest())

    def _fits(self) -> int | None:
        """Positions left to promise to new streams; None = no limit."""
        if self.settings.kv_tokens is None:
            return None
        slots = self._order
        return self.settings.kv_tokens - int((self._state.start[slots] + self._state.end[slots]).sum()) - self._kept()

    def _rows(self) -> LawRows:
        if self._law_rows is None:
            self._law_rows = self._laws.rows(self._state.law[self._order])
        return self._law_rows

    def _count_contexts(self, wave: Sequence[Stream]) -> None:
        """Keep token counts as long as a running law penalises."""
        if self._counts is None:
            if not any(self._laws.penalised(law) for s in wave for law in s.laws):
                return
            wave = list(self._running.values())
        self._counts = count_contexts(self._model, self._state, wave, self._counts)

    def prefilled(self) -> list[Prefilled]:
        out, self._prefilled = self._prefilled, []
        return out

    def cancel(self, request: str) -> Chunk | None:
        if self._queue.remove(request) is not None:
            self._trim_retained()
            return Chunk(request, np.empty(0, np.int32), np.empty(0, np.float32), self._version, {}, StopReason.CANCELLED)
        if request in self._running:
            return self._end({self._running[request].slot: StopReason.CANCELLED})[0]
        if request in self._retained:
            self._retire_retained(request)
            self._settle()
        return None

    def live(self) -> int:
        return len(self._running) + len(self._queue)

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        self._open()
        before = self._model.through
        with torch.inference_mode():
            try:
                return score(self._model, self._laws, items, self.max_length, self.settings.batch_tokens)
            finally:
                self._usage["scored"] += self._model.through - before

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        self._open()
        if self.live():
            raise RuntimeError(
                f"load of version {ref.version} refused: {self.live()} requests are live under version "
                f"{self._version}; let them finish or cancel them"
            )
        load_weights(self._model.module, ref, tensors)
        self.renew(ref.version)

    def renew(self, version: int) -> None:
        """The module's weights were changed in place to `version`: drop all that depends on the old ones."""
        self._retire_retained(*self._retained)
        self._core.pool = None
        self._model.renew()
        self._version = version

    def fingerprint(self) -> str:
        self._open()
        before = self._model.through
        with torch.inference_mode():
            digest = fingerprint(self._model)
        self._usage["scored"] += self._model.through - before
        return digest

    def usage(self) -> Usage:
        return Usage(**self._usage, kv_peak=self._core.kv_peak, live_peak=self._core.live_peak)

    @property
    def progress(self) -> int:
        """Tokens through the model so far, probes included; grows while a call is at work."""
        return self._model.through

    def unsent(self) -> dict[str, int]:
        """Tokens of running requests that no chunk has returned yet."""
        more = self._state.new - self._state.sent
        return {name: int(more[s.slot]) for name, s in self._running.items() if more[s.slot]}

    @property
    def kv_ratio(self) -> float:
        """Largest (positions allocated - the longest slot) / positions held, over all moments so far; at most 2."""
        return self._core.worst

    def close(self) -> None:
        """Let the model and the pool go; queued and running requests are lost."""
        self._core.pool = None
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("the engine is closed; start a new one")
