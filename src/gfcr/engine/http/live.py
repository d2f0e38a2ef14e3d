"""One request on its way. Invariant: tokens that were handed out stay; those of an attempt that failed are never handed out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gfcr.engine.contract import Chunk, Request
from gfcr.engine.http.replies import Part
from gfcr.engine.http.server import Server
from gfcr.run.seeds import stream_key
from gfcr.types import StopReason


@dataclass(slots=True, eq=False)
class Live:
    """A submitted request until its end was returned. Written on the event loop and read by the caller, under the engine's lock."""

    request: Request
    context: np.ndarray
    """int32[n]."""
    limit: int
    """Most tokens it may get."""
    full: StopReason
    """Why it ends when it gets them."""
    ids: list[int] = field(default_factory=list)
    """Tokens of the present attempt."""
    logprobs: list[float] = field(default_factory=list)
    sent: int = 0
    """Of them, handed out."""
    version: int = 0
    stop: StopReason | None = None
    error: str = ""
    lost: int = 0
    name: str = ""
    """Id of the present attempt at its server."""
    server: Server | None = None
    cancelled: bool = False
    prompt: int = 0
    """Context tokens of the present attempt, as the server counts them."""
    cached: int = 0
    """Of them, those it had in its prefix cache, where it says so (at the end of a reply)."""

    @property
    def seed(self) -> int:
        """For the server, 0..2^63 - 1: of the stream and the place it goes on from, so that another attempt draws the same and a
        resumed stream does not draw again what it drew."""
        return stream_key(self.request.key, "http", len(self.context)) >> 1

    @property
    def affinity(self) -> str:
        """What siblings have in common: the root of their paths."""
        return self.request.path[0].id

    def over(self) -> bool:
        return self.stop is not None

    def begin(self, name: str, server: Server, version: int) -> None:
        """A new attempt."""
        self.ids, self.logprobs, self.prompt, self.cached = [], [], 0, 0
        self.name, self.server, self.version = name, server, version

    def add(self, part: Part) -> None:
        self.prompt, self.cached = part.prompt, part.cached or 0
        self.ids += part.ids
        # greedy is the point mass: what it draws has probability 1
        self.logprobs += [0.0] * len(part.ids) if self.request.sampling.temperature == 0 else part.logprobs

    def ending(self, part: Part) -> StopReason | str:
        """Why the stream ended, or what is wrong with the end that the server tells."""
        stops = self.request.stop
        if part.finish == "length":
            return self.full if len(self.ids) == self.limit else f"{len(self.ids)} tokens, and the limit is {self.limit}"
        if part.finish != "stop":
            return f"it ended by {part.finish!r}"
        if isinstance(part.stop, str):
            return StopReason.STOP_STRING if part.stop in stops.strings else f"it stopped at {part.stop[:40]!r}"
        if self.ids and self.ids[-1] in stops.eos:
            return StopReason.EOS
        return f"it stopped at the token {self.ids[-1] if self.ids else None}, which ends nothing"

    def chunk(self, most: int | None = None) -> Chunk:
        """Tokens not handed out yet, `most` at a time; the end goes with the last of them."""
        end = len(self.ids) if most is None else min(len(self.ids), self.sent + most)
        part, last = slice(self.sent, end), end == len(self.ids)
        self.sent = end
        return Chunk(
            self.request.id,
            np.asarray(self.ids[part], np.int32),
            np.asarray(self.logprobs[part], np.float32),
            self.version,
            {},
            self.stop if last else None,
            self.error if last else "",
            self.lost if last else 0,
        )
