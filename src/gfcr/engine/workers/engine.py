"""The embedded engine in several processes: this one works too, the others are its workers.

Invariants: a request's worker is a pure function of its stream key (a fork's is its parent's), so the same calls give the
same batches and bit-equal chunks; with another number of workers the draws are the same (a uniform within rounding of a border
apart) and log-probabilities differ by rounding, as with any other batch composition. All processes read one copy of the weights, written only while none of them
computes; a publication is over when each has proved by its fingerprint that it answers with them. A worker that dies or hangs
ends its requests FAILED with the reason and is replaced a bounded number of times; nothing waits for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from gfcr.engine.contract import Capabilities, Chunk, Prefilled, Request, Score, ScoreItem, Usage, WeightsRef
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.embedded.checks import refuse_architecture
from gfcr.engine.embedded.dtype import cast, choose_dtype
from gfcr.engine.embedded.lean import lean
from gfcr.engine.stops import Decode
from gfcr.engine.workers.remote import START_SECONDS, Lost, Remote
from gfcr.engine.workers.serve import Parcel, advance
from gfcr.engine.workers.shared import SharedWeights
from gfcr.errors import ConfigError, GfcrError
from gfcr.types import StopReason

MAX_RESTARTS = 3
"""Processes that replace a lost worker between two publications."""
KIND = "worker_lost"
"""First word of the reason why a request failed with its worker."""


class WorkerLost(GfcrError):
    """A worker process died again and again, or answers with other weights than it was given."""


def home(name: int | str, workers: int) -> int:
    """Worker of a stream key or a score item's id; neighbouring keys part too."""
    return int.from_bytes(blake2b(str(name).encode(), digest_size=8).digest(), "little") % workers


class WorkerEngine:
    """See gfcr.engine.contract.Engine. Not thread-safe. `usage` adds the processes up: its peaks are the sum of each one's
    own, an upper bound of what was held at one moment; what a killed worker computed after its last answer is in no count."""

    def __init__(
        self,
        module: Any,
        settings: EmbeddedSettings | None = None,
        decode: Decode | None = None,
        version: int = 0,
        workers: int = 2,
        seconds: float = 600.0,
    ) -> None:
        """`module`, `decode`, `version`: as for EmbeddedEngine. `settings`: of each process. `workers`: processes, this one
        counted. `seconds`: longest time without a token through the model before a worker at work counts as hung.

        Raises ConfigError for what cannot be served, WorkerLost when a process does not come up."""
        self.settings = settings or EmbeddedSettings()
        if workers < 2:
            raise ConfigError(f"workers = {workers}: this engine is for two or more", "use EmbeddedEngine for one")
        if torch.device(self.settings.device).type != "cpu":
            raise ConfigError(
                f"engine.workers = {workers} with engine.device = {self.settings.device!r}: workers share memory of the CPU",
                'set engine.workers = 1, or engine.device = "cpu"',
            )
        refuse_architecture(module)
        parameters, slots = sum(p.numel() for p in module.parameters()), self.settings.slots * workers
        dtype, _ = choose_dtype(self.settings.dtype, parameters, slots, "cpu")
        self.settings = replace(self.settings, dtype=dtype)
        cast(module, getattr(torch, dtype), "cpu")
        self.workers, self._version, self._seconds, self._decode = workers, version, seconds, _portable(decode)
        self._few = self.settings.few_operations and lean(module)
        self._weights = SharedWeights(module)
        self._form = self._weights.dumps(module)
        numbers, fd = (self._weights.fd, self._weights.size, torch.get_num_threads()), self._weights.fd
        self._remotes = [Remote(i, numbers, fd, seconds) for i in range(1, workers)]
        self._live: dict[str, int] = {}
        """Requests whose end was not returned -> worker."""
        self._retained: dict[str, int] = {}
        """Ended requests that forks may follow -> worker."""
        self._dropped: list[Chunk] = []
        """Chunks not yet returned: ends of requests that went with a worker, and what was done beside one that raised."""
        self.failures: list[str] = []
        """Every loss of a worker, in words."""
        self._torn = self._closed = False
        try:
            for remote in self._remotes:
                remote.start(self._parcel())  # they import torch while the check below runs
            self._local = EmbeddedEngine(module, self.settings, decode, version)
            self.max_length, self.check = self._local.max_length, self._local.check
            proof = self._local.fingerprint()
            for remote in self._remotes:
                self._prove(remote.index, proof, remote.receive(START_SECONDS))
        except Lost as lost:
            self._abandon()
            raise WorkerLost(f"{lost} while it started", _REMEDY) from lost
        except BaseException:
            self._abandon()
            raise

    def _parcel(self) -> Parcel:
        # this process has checked, and the fingerprint says it is the same; what runs in few operations is small, and checks again
        settings = self.settings if self._few else replace(self.settings, check_tokens=0)
        return Parcel(self._form, settings, self._decode, self._version, min(2.0, self._seconds / 4))

    # ---- the contract ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        own = self._local.capabilities()
        return replace(own, details={**own.details, "slots": self.settings.slots * self.workers, "workers": self.workers})

    def submit(self, request: Request) -> None:
        self._open()
        if request.id in self._live:
            raise ValueError(f"request {request.id!r} is live already; ids must be unique among live requests")
        place = self._place(request)
        if place == 0:
            self._local.submit(request)
        elif request.fork_of is None:
            self._local.accept(request)
            self._remotes[place - 1].pending.append(request)
        else:  # only its worker knows what it retains
            remote = self._remotes[place - 1]
            try:
                self._ask(remote, "submit", request)
            except Lost as lost:
                raise ValueError(f"request {request.id!r}: fork_of {request.fork_of!r} is gone: {lost}") from lost
            remote.live[request.id] = 0
        old = self._retained.pop(request.id, place)
        if old != place:  # the name is taken anew, on another worker
            self._withdraw(old, request.id)
        self._live[request.id] = place
        if request.retain:
            self._retained[request.id] = place

    def _place(self, request: Request) -> int:
        parent = request.fork_of
        if parent is not None and (found := self._live.get(parent, self._retained.get(parent))) is not None:
            return found
        return home(request.key, self.workers)

    def step(self, tokens: int | None = None) -> list[Chunk]:
        self._open()
        if tokens is not None and tokens < 1:
            raise ValueError(f"step(tokens={tokens}): ask for at least 1, or None to run until a request finishes")
        busy = {r.index: (tokens,) for r in self._remotes if r.live or r.pending}
        found = self._gather("step", busy, lambda: advance(self._local, tokens) if self._local.live() else [])
        chunks, self._dropped = self._dropped + _chunks(found), []
        for chunk in chunks:
            if chunk.stop is not None:
                self._forget(chunk.request)
        return chunks

    def prefilled(self) -> list[Prefilled]:
        out = [*self._local.prefilled()]
        for remote in self._remotes:
            out += remote.prefilled
            remote.prefilled = []
        return out

    def cancel(self, request: str) -> Chunk | None:
        self._open()
        place = self._live.get(request, self._retained.get(request))
        if place is None:
            return None
        if request not in self._live:
            del self._retained[request]
            self._withdraw(place, request)
            return None
        chunk = self._withdraw(place, request)
        waiting = [c for c in self._dropped if c.request == request]  # it went with its worker, or ended beside one that raised
        self._dropped = [c for c in self._dropped if c.request != request]
        parts = waiting if chunk is None else [*waiting, chunk]
        self._forget(request)
        return _joined(parts) if parts else self._end(request, StopReason.CANCELLED)

    def _withdraw(self, place: int, request: str) -> Chunk | None:
        """Cancel it at its worker. None: there was nothing to give back, or the worker is gone."""
        if place == 0:
            return self._local.cancel(request)
        remote = self._remotes[place - 1]
        if waiting := [r for r in remote.pending if r.id == request]:
            remote.pending.remove(waiting[0])
            return self._end(request, StopReason.CANCELLED)
        if not remote.alive:
            self._lose(remote, f"worker {place} {remote.fate()}")
            return None
        try:
            return self._ask(remote, "cancel", request)
        except Lost:
            return None

    def live(self) -> int:
        return len(self._live)

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        self._open()
        parts: dict[int, list[ScoreItem]] = {}
        places = [home(item.id, self.workers) for item in items]
        for place, item in zip(places, items):
            parts.setdefault(place, []).append(item)
        own = parts.pop(0, [])
        orders = {place: (part,) for place, part in parts.items()}
        found = self._gather("score", orders, lambda: self._local.score(own) if own else [], again=True)
        scores = {place: iter(part) for place, part in found.items()}
        return [next(scores[place]) for place in places]

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        self._shut()
        if self.live():
            raise RuntimeError(
                f"load of version {ref.version} refused: {self.live()} requests are live under version "
                f"{self._version}; let them finish or cancel them"
            )
        before, self._torn = self._torn, True
        try:
            self._local.load(ref, tensors)  # the module's tensors are everybody's
        except GfcrError:  # refused before anything was written
            self._torn = before
            raise
        self._version = ref.version
        self._retained.clear()
        for remote in self._remotes:
            remote.starts = min(remote.starts, 1)
        self._answering("renew", (ref.version,))
        self._torn = False

    def fingerprint(self) -> str:
        self._open()
        return self._answering("fingerprint", ())

    def usage(self) -> Usage:
        all_ = [self._local.usage(), *(r.usage() for r in self._remotes)]
        return Usage(**{name: sum(getattr(u, name) for u in all_) for name in Usage.__dataclass_fields__})

    def close(self) -> None:
        """End the workers and let the model go; queued and running requests are lost."""
        self._closed = True
        self._abandon()
        self._local.close()

    # ---- orders and their answers ------------------------------------------------------------------------------

    def _gather(
        self, call: str, args: Mapping[int, tuple[Any, ...]], local: Callable[[], Any], again: bool = False
    ) -> dict[int, Any]:
        """Give an order to the workers named in `args`, do this process's own part meanwhile, and take every answer. A lost
        worker has none, or, with `again`, that of its successor. Raises the first error once all have answered; a worker that
        raised in a step has requests nobody knows the state of, so it goes, and what the others did is kept for the next step."""
        asked: list[Remote] = []
        found: dict[int, Any] = {}
        lost: list[Remote] = []
        errors: dict[int, Exception] = {}
        try:
            for index in sorted(args):
                remote = self._remotes[index - 1]
                try:
                    self._send(remote, call, args[index])
                    asked.append(remote)
                except Lost as error:
                    self._lose(remote, str(error))
                    lost.append(remote)
            found[0] = local()
            while asked:
                remote = asked[0]
                try:
                    found[remote.index] = remote.receive()
                except Lost as error:
                    self._lose(remote, str(error))
                    lost.append(remote)
                except Exception as error:
                    errors[remote.index] = error
                asked.pop(0)
        except BaseException:
            for remote in asked:  # nobody would know which order its answer belongs to
                remote.kill()
            raise
        if errors:
            if call == "step":
                self._dropped += _chunks(found)
                for index, raised in errors.items():
                    self._lose(self._remotes[index - 1], f"worker {index} raised {type(raised).__name__}: {raised}")
            raise next(iter(errors.values()))
        for remote in lost if again else []:
            found[remote.index] = self._ask(remote, call, *args[remote.index], again=True)
        return found

    def _ask(self, remote: Remote, call: str, *args: Any, again: bool = False) -> Any:
        """One worker's answer. Raises Lost, or, with `again`, WorkerLost after MAX_RESTARTS."""
        while True:
            try:
                self._send(remote, call, args)
                return remote.receive()
            except Lost as error:
                self._lose(remote, str(error))
                if not again:
                    raise

    def _send(self, remote: Remote, call: str, args: tuple[Any, ...]) -> None:
        """Give an order to a worker that is there, or to its successor."""
        if not remote.alive:
            if remote.pid is not None:
                self._lose(remote, f"worker {remote.index} {remote.fate()}")
            if remote.starts > MAX_RESTARTS:
                raise WorkerLost(f"{self.failures[-1]}; it had been replaced {MAX_RESTARTS} times", _REMEDY)
            remote.start(self._parcel())
            self._prove(remote.index, self._local.fingerprint(), remote.receive(START_SECONDS))
        remote.send(call, args)

    def _lose(self, remote: Remote, why: str) -> None:
        """The worker is gone: its requests end FAILED, with what is known to be lost."""
        self.failures.append(why)
        for request, tokens in remote.bury().items():
            if request in self._live:
                self._dropped.append(replace(self._end(request, StopReason.FAILED), error=f"{KIND}: {why}", lost=tokens))
        self._retained = {name: place for name, place in self._retained.items() if place != remote.index}

    def _forget(self, request: str) -> None:
        """Its end was returned."""
        place = self._live.pop(request)
        if place:
            self._remotes[place - 1].live.pop(request, None)

    def _end(self, request: str, stop: StopReason) -> Chunk:
        return Chunk(request, np.empty(0, np.int32), np.empty(0, np.float32), self._version, {}, stop)

    def _answering(self, call: str, args: tuple[Any, ...]) -> str:
        """The fingerprint of the weights that all processes answer with."""
        found = self._gather(call, {r.index: args for r in self._remotes}, self._local.fingerprint, again=True)
        for index, got in found.items():
            self._prove(index, found[0], got)
        return str(found[0])

    def _prove(self, index: int, want: str, got: str) -> None:
        if got != want:
            self._abandon()
            raise WorkerLost(
                f"worker {index} answers with other weights (fingerprint {got}) than version {self._version} ({want})", _REMEDY
            )

    def _abandon(self) -> None:
        for remote in self._remotes:
            remote.kill()
        self._weights.close()

    def _shut(self) -> None:
        if self._closed:
            raise RuntimeError("the engine is closed; start a new one")

    def _open(self) -> None:
        self._shut()
        if self._torn:
            raise RuntimeError(f"the publication of version {self._version} was interrupted; load weights again")


_REMEDY = (
    "look at the memory (signal 9 without a sender is the system running out of it); set engine.workers = 1, or resume: "
    "everything committed is kept"
)


def _chunks(found: Mapping[int, list[Chunk]]) -> list[Chunk]:
    return [chunk for place in sorted(found) for chunk in found[place]]


def _joined(parts: Sequence[Chunk]) -> Chunk:
    """Consecutive chunks of one request as one."""
    last = parts[-1]
    return replace(
        last,
        ids=np.concatenate([c.ids for c in parts]),
        logprobs=np.concatenate([c.logprobs for c in parts]),
        tracks={name: np.concatenate([c.tracks[name] for c in parts if name in c.tracks]) for name in parts[0].tracks},
    )


def _portable(decode: Decode | None) -> Decode | None:
    try:
        pickle.dumps(decode)
    except Exception as error:
        raise ConfigError(
            f"decode cannot be sent to a worker process: {error}", "give a function of a module, or a functools.partial of one"
        ) from error
    return decode
