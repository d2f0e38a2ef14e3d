"""The engine over vLLM servers.

What it relies on, and checks before the first token: token ids both ways (`/inference/v1/generate`), log-probabilities of the law
sampled (`--logprobs-mode processed_logprobs`), a label of the weights in every reply. Invariants: tokens count only when their reply
is whole and says that the published weights gave all of them; weights are published to every server that is up, caches dropped, and
proven on a probe, and a server that comes back is given them and proven again before it works; draws repeat as far as the server
repeats its own: seeds are ours, arithmetic that depends on the batch is not, so nothing is bit-equal.

Served laws: temperature alone (0 is greedy: its tokens have log-probability 0). Truncated laws are refused, because the server says
nothing of the kept mass; penalties, because a resumed stream would count its earlier tokens as context. `score` gives temperature 1
from the server's prompt log-probabilities; other temperatures from the processed law, which costs one short request per token
(served from the prefix cache where the server has one). Entropies are not told.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gfcr.engine import features_of
from gfcr.engine.contract import Capabilities, Request, Score, ScoreItem, WeightsRef
from gfcr.engine.http.checkpoint import Checkpoints
from gfcr.engine.http.engine import HttpEngine
from gfcr.engine.http.faults import COUNT, SHAPE, STATUS, TRUNCATED, WEIGHTS, Fault, ServersLost
from gfcr.engine.http.law import mean_gap, probe
from gfcr.engine.http.live import Live
from gfcr.engine.http.replies import Part, choice, generated, scored, tempered
from gfcr.engine.http.server import Server
from gfcr.engine.http.settings import HttpSettings
from gfcr.engine.http.startup import HOW, check
from gfcr.engine.stops import Decode
from gfcr.errors import ConfigError
from gfcr.types import Sampling

GENERATE, ABORT, RPC = "/inference/v1/generate", "/abort_requests", "/collective_rpc"
AT_ONCE = 64
"""Contexts of one request for tempered scores, so tokens whose log-probabilities are asked for."""
PLAIN = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Said in every request: a server takes what is not said from the model's generation_config.json."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the servers are to answer with."""

    version: int
    label: str
    """What servers call it; ours alone, so that another run's publication is noticed."""
    place: Path


class VllmEngine(HttpEngine):
    """See the module, gfcr.engine.contract.Engine and gfcr.engine.contract.Lossy."""

    def __init__(
        self, settings: HttpSettings, vocabulary: int, slots: int = 256, decode: Decode | None = None, version: int = 0
    ) -> None:
        """As HttpEngine. Raises ConfigError with the flag to set when a server is not what gfcr needs, ServersLost when it does not
        answer."""
        super().__init__(settings, vocabulary, slots, decode, version)
        self._published: Published | None = None
        self._proof: list[float] | None = None
        """Log-probabilities on the probe that every server must give."""
        self.dtype: str | None = None
        self.release = ""
        self._checkpoints: Checkpoints | None = None
        try:
            self._link.call(self._start(), self._patience(16))
        except BaseException:
            self.close()
            raise

    # ---- the contract ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        details = {
            "dtype": self.dtype,
            "server": self.release,
            "servers": {s.url: "up" if s.up else s.why for s in self._pool.servers},
            "slots": self._pool.room * len(self._pool.servers),
            "faults": self._tally.all(),
        }
        return Capabilities("vllm", features_of("vllm"), self.max_length, self.vocabulary, details)

    def _refused(self, request: Request) -> str:
        if request.later:
            return "its law changes within the answer, and a server keeps one law for a request"
        return _refused(request.sampling)

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        """What no server could score in the attempts it had is left out. Raises ValueError for a law or a length that is not served."""
        self._open()
        for item in items:
            if len(item.ids) > self.max_length:
                raise ValueError(f"score item {item.id!r}: {len(item.ids)} tokens; the model takes {self.max_length}")
            for start, _, law in item.spans:
                if why := _refused(law) or ("" if start > 0 else "the first token of a sequence has no log-probability"):
                    raise ValueError(f"score item {item.id!r}: {why}")
        found = self._link.call(self._score_all(items), self._patience(4 * max(1, len(items))))
        return [score for score in found if score is not None]

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        """Raises ConfigError for an adapter or a file that is no directory, ServersLost when no server took the weights."""
        self._open()
        if self.live():
            raise RuntimeError(
                f"load of version {ref.version} refused: {self.live()} requests are live under version "
                f"{self._version}; let them finish or cancel them"
            )
        if ref.kind != "full":
            raise ConfigError(
                f"weights version {ref.version}: kind {ref.kind!r}; the vllm engine loads full weights",
                "publish full weights (merge the adapter first)",
            )
        label = f"{ref.version}.{self._name()}"
        place = Path(ref.uri.removeprefix("file://")).resolve()
        if tensors is not None:
            self._checkpoints = self._checkpoints or Checkpoints(self.settings.weights)
            place = self._checkpoints.write(label, tensors)
        elif not place.is_dir():
            raise ConfigError(f"weights version {ref.version}: {ref.uri!r} is no directory", "pass tensors=, or a directory")
        self._published, self._proof, self._version = Published(ref.version, label, place), None, ref.version
        self._link.call(self._publish_all(), self._patience(20))
        if self._checkpoints is not None:
            self._checkpoints.keep_only(place)

    def fingerprint(self) -> str:
        """Of the float32 log-probabilities on the probe, as the server computed them now: not bit-equal between machines."""
        self._open()
        found = self._link.call(self._leased("fingerprint", self._probe), self._patience(2))
        if found is None:
            raise self._lost("none of them answers the probe")
        return hashlib.blake2b(np.asarray(found, np.float32).tobytes(), digest_size=16).hexdigest()

    def close(self) -> None:
        super().close()
        if self._checkpoints is not None:
            self._checkpoints.close()

    # ---- sampling ----------------------------------------------------------------------------------------------

    async def _attempt(self, live: Live, server: Server) -> Part:
        request, label = live.request, self._label
        law = {"temperature": request.sampling.temperature, "seed": live.seed, "logprobs": 0, "max_tokens": live.limit}
        ends = {"stop_token_ids": list(request.stop.eos), "stop": list(request.stop.strings), "ignore_eos": True}
        text = {"detokenize": bool(request.stop.strings)}
        body = {
            "request_id": live.name,
            "token_ids": live.context.tolist(),
            "sampling_params": {**PLAIN, **law, **ends, **text},
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        last, closed, events = None, False, 0
        async for data in server.events(GENERATE, body):
            events += 1
            if events > 4 * live.limit + 64:
                raise Fault(SHAPE, f"{events} events for at most {live.limit} tokens")
            part = generated(data, live.name, len(live.ids), self.vocabulary, label)
            if part.last:
                closed = True
                self._arrived(live, server, part)  # only here the server says how much was cached
                continue
            if last is not None or len(live.ids) + len(part.ids) > live.limit:
                raise Fault(COUNT, "tokens after the end")
            self._arrived(live, server, part)
            if part.finish is not None:
                last = part
        if last is None or not closed:
            raise Fault(TRUNCATED, "a stream has no end" if last is None else "a stream has no closing count")
        return last

    async def _abort(self, live: Live, server: Server) -> None:
        await server.ask("POST", ABORT, {"request_ids": [f"generate-tokens-{live.name}"]})

    @property
    def _label(self) -> str | None:
        """What servers must call the weights of their tokens; None before the first publication."""
        return None if self._published is None else self._published.label

    # ---- scoring -----------------------------------------------------------------------------------------------

    async def _score_all(self, items: Sequence[ScoreItem]) -> list[Score | None]:
        return list(await asyncio.gather(*(self._leased(item.id, partial(self._score, item=item)) for item in items)))

    async def _score(self, server: Server, item: ScoreItem) -> Score:
        out = np.full(len(item.ids), np.nan, np.float32)
        ids: list[int] = item.ids.tolist()
        plain: list[float] | None = None
        ranks: list[int] = []
        for start, end, law in item.spans:
            if law.temperature in (0, 1) and plain is None:
                plain, ranks = await self._plain(server, ids)
            if law.temperature == 1 and plain is not None:
                out[start:end] = plain[start - 1 : end - 1]
            elif law.temperature == 0:
                out[start:end] = [0.0 if rank == 1 else -np.inf for rank in ranks[start - 1 : end - 1]]
            else:
                out[start:end] = await self._tempered(server, ids, start, end, law.temperature)
        return Score(item.id, out, np.full(len(ids), np.nan, np.float32))

    async def _plain(self, server: Server, ids: list[int]) -> tuple[list[float], list[int]]:
        """(log-probabilities at temperature 1, ranks) of the tokens but the first. A server always samples one token more, so the last
        of a sequence that fills the model is asked for apart."""
        full = len(ids) >= self.max_length
        context = ids[:-1] if full else ids
        data = await self.one(server, context, prompt_logprobs=0)
        found = scored(data, context)
        told = [row[str(token)].get("rank") for token, row in zip(context[1:], data["prompt_logprobs"][1:])]
        ranks = [rank if type(rank) is int else 0 for rank in told]
        if full:
            found += await self._tempered(server, ids, len(ids) - 1, len(ids), 1.0)
            ranks += [1 if (await self._best(server, context)) == ids[-1] else 0]
        return found, ranks

    async def _tempered(self, server: Server, ids: list[int], start: int, end: int, temperature: float) -> list[float]:
        """Log-probabilities of ids[start:end] at a temperature, from the processed law of one token after each context."""
        found: list[float] = []
        for first in range(start, end, AT_ONCE):
            places = range(first, min(end, first + AT_ONCE))
            wanted = [ids[i] for i in places]
            body = {
                "model": self._served(server),
                "prompt": [ids[:i] for i in places],
                "max_tokens": 1,
                "temperature": temperature,
                **PLAIN,
                "ignore_eos": True,
                "logprobs": 1,
                "logprob_token_ids": sorted(set(wanted)),
                "return_tokens_as_token_ids": True,
            }
            data = await server.ask("POST", "/v1/completions", body)
            found += tempered(data, wanted)
            self._scored(server, sum(places), len(wanted))
        return found

    async def _best(self, server: Server, context: list[int]) -> int:
        """The most probable next token."""
        data = await self.one(server, context, temperature=0.0)
        return int(choice(data)["token_ids"][0])

    async def one(self, server: Server, context: list[int], **law: Any) -> dict[str, Any]:
        """A whole reply of one sampled token, in the counts."""
        name = self._name()
        params = {**PLAIN, "temperature": 1.0, "max_tokens": 1, "ignore_eos": True, "logprobs": 0, "detokenize": False, **law}
        data = await server.ask("POST", GENERATE, {"request_id": name, "token_ids": context, "sampling_params": params})
        part = generated(data, name, 0, self.vocabulary, self._label if server.up else None)
        if len(part.ids) != 1:
            raise Fault(COUNT, f"{len(part.ids)} tokens, and one was asked for")
        self._scored(server, len(context), len(part.ids))
        return data

    def _scored(self, server: Server, context: int, sampled: int) -> None:
        with self._news:
            server.known += sampled
            self.aside += sampled
            self._counts["scored"] += context + sampled

    def _served(self, server: Server) -> str:
        return self.settings.model or next(iter(server.models))

    # ---- weights -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        for server in self._pool.servers:
            try:
                await check(self, server)
            except Fault as fault:
                raise ServersLost(
                    f"the server at {server.url} cannot be used: {fault}", f"{HOW}; or correct engine.http.urls"
                ) from fault
        await super()._start()

    async def _publish_all(self) -> None:
        for server in self._pool.servers:
            server.up, server.given_up = False, False
        await asyncio.gather(*(self._publish_or_doubt(server) for server in self._pool.servers))
        while not any(s.up for s in self._pool.servers):  # ends: each comes back or is given up within `outage`
            if all(s.given_up for s in self._pool.servers):
                raise self._lost(f"none of them took version {self._version}")
            await asyncio.sleep(0.05)

    async def _publish_or_doubt(self, server: Server) -> None:
        if not await self._pool.proven(server) and not server.given_up:
            self._pool.doubt(server, server.why)

    async def _admit(self, server: Server) -> None:
        counters = await self.patient(server.counters)
        info = await self.patient(lambda: server.ask("GET", "/weight_info"))
        fresh = counters.boot != server.boot
        if fresh:
            server.rebase(counters)
        if self._published is not None and (fresh or info.get("weight_version") != self._published.label):
            await self._publish(server, self._published)
        answers = await self.patient(lambda: self._probe(server))
        if self._proof is None:
            self._proof = answers
        elif (gap := mean_gap(answers, self._proof)) > self.settings.gap:
            raise Fault(
                WEIGHTS, f"its log-probabilities of the probe are {gap:.3g} nats off, allowed {self.settings.gap:g}", False
            )

    async def _publish(self, server: Server, published: Published) -> None:
        """Load, drop caches, label. Labelled last: what broke off is published again."""

        async def post(path: str, body: Any = None, query: dict[str, str] | None = None) -> dict[str, Any]:
            return await self.patient(lambda: server.ask("POST", path, body, query))

        if self.settings.exclusive:
            await post("/pause", query={"mode": "abort"})
        try:
            await post(RPC, {"method": "reload_weights", "kwargs": {"weights_path": str(published.place)}})
            await self.patient(lambda: _reset(server))
            await post("/update_weight_version", {"new_version": published.label})
        finally:
            if self.settings.exclusive:
                await post("/resume")

    async def _probe(self, server: Server) -> list[float]:
        """Log-probabilities of the probe's tokens."""
        found: list[float] = []
        for row in probe(self.vocabulary):
            found += scored(await self.one(server, row, prompt_logprobs=0), row)
        return found

    def _lost(self, why: str) -> ServersLost:
        states = "; ".join(f"{s.url}: {s.why or 'up'}" for s in self._pool.servers)
        return ServersLost(
            f"{why} ({states})",
            "look at the servers' logs; they must see engine.http.weights under the same path. Start them again and resume: everything "
            "committed is kept",
        )


async def _reset(server: Server) -> None:
    """Drop cached prefixes: they are of other weights."""
    if (await server.ask("POST", "/reset_prefix_cache")).get("success") is not True:
        raise Fault(STATUS, "the prefix cache is in use and was not dropped")


def _refused(law: Sampling) -> str:
    if law.truncated:
        return "its law is truncated (top-p, top-k, min-p or bans), and the server does not tell the kept mass; sample without"
    if not law.plain:
        return "its law has penalties, which a resumed stream would reckon from another place; sample without"
    return ""
