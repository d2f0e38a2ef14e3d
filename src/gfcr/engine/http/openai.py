"""The engine over an OpenAI-compatible endpoint (`/v1/completions`), whose weights are somebody else's.

Two kinds, by `token_ids`. With ids (vLLM and what is like it): context ids in, sampled ids and log-probabilities of the law sampled
out, checked at the start; its rollouts can be trained on by whoever updates the weights there. Without: the context goes as text, an
answer comes as text. It is encoded with our tokenizer so that verifiers can read it, and only if that gives the text back exactly;
its log-probabilities are NaN, and `text_only` in the features says so: for evaluation, never for training.

Invariants: a reply counts only when it is whole; nothing is scored or published here (ConfigError); a cancelled request gives nothing
back, because a whole reply cannot be cut; which weights answered is not known (version 0 always).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gfcr.engine import features_of
from gfcr.engine.contract import Capabilities, Request, Score, ScoreItem, WeightsRef
from gfcr.engine.http.engine import HttpEngine
from gfcr.engine.http.faults import SHAPE, Fault
from gfcr.engine.http.law import TOP, law_of, probe
from gfcr.engine.http.live import Live
from gfcr.engine.http.replies import Part, choice, completed, counts
from gfcr.engine.http.server import Server
from gfcr.engine.http.settings import HttpSettings
from gfcr.engine.http.startup import named, refuse_law
from gfcr.engine.stops import Decode
from gfcr.errors import ConfigError
from gfcr.types import StopReason

PATH = "/v1/completions"
AS_TEXT = "set engine.http.token_ids = false: its answers can be looked at and judged (`gfcr sample`), not trained on"
Encode = Callable[[str], Sequence[int]]
"""Text to token ids, without special tokens."""


class OpenAiEngine(HttpEngine):
    """See the module and gfcr.engine.contract.Engine."""

    def __init__(
        self,
        settings: HttpSettings,
        vocabulary: int,
        slots: int = 256,
        decode: Decode | None = None,
        encode: Encode | None = None,
        max_length: int | None = None,
    ) -> None:
        """As HttpEngine. `encode`: needed without token ids. `max_length`: needed where the endpoint does not tell its own. Raises
        ConfigError when the endpoint is of another kind than the settings say."""
        if not settings.token_ids and (decode is None or encode is None):
            raise ConfigError("an endpoint without token ids needs a tokenizer", "pass decode= and encode=")
        # its counters are not ours to read
        super().__init__(settings.model_copy(update={"exclusive": False}), vocabulary, slots, decode)
        self._encode, self._given = encode, max_length
        try:
            self._link.call(self._start(), self._patience(16))
        except BaseException:
            self.close()
            raise

    def capabilities(self) -> Capabilities:
        details = {
            "servers": {s.url: "up" if s.up else s.why for s in self._pool.servers},
            "faults": self._tally.all(),
        }
        features = features_of("openai", self.settings.token_ids)
        return Capabilities("openai", features, self.max_length, self.vocabulary, details)

    def _refused(self, request: Request) -> str:
        if not self.settings.token_ids:
            told = replace(request.sampling, top_p=1.0, id="").plain and not request.later
            return "" if told else "only temperature and top-p may shape its law: no others are asked for over this protocol"
        return (
            ""
            if request.sampling.plain and not request.later
            else "only temperature may shape its law: the endpoint tells no kept mass"
        )

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        raise ConfigError("an OpenAI-compatible endpoint scores nothing", 'use engine.name = "vllm" or "embedded"')

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        raise ConfigError(
            f"weights version {ref.version}: an OpenAI-compatible endpoint takes no weights",
            'use engine.name = "vllm" or "embedded"',
        )

    def fingerprint(self) -> str:
        raise ConfigError(
            "nobody can tell which weights an OpenAI-compatible endpoint answers with", 'use engine.name = "vllm"'
        )

    # ---- on the event loop -------------------------------------------------------------------------------------

    async def _attempt(self, live: Live, server: Server) -> Part:
        body = self._body(server, live.context.tolist(), live.request, live.limit, live.seed)
        data = await server.ask("POST", PATH, body)
        part = completed(data, live.context.tolist(), self.vocabulary) if self.settings.token_ids else self._text(data, live)
        if len(part.ids) > live.limit:
            raise Fault(SHAPE, f"{len(part.ids)} tokens, and the limit is {live.limit}")
        self._arrived(live, server, part)
        return part

    def _body(self, server: Server, context: list[int], request: Request, most: int, seed: int) -> dict[str, Any]:
        law = request.sampling
        body: dict[str, Any] = {
            "model": self._served(server),
            "max_tokens": most,
            "temperature": law.temperature,
            "top_p": law.top_p,
            "seed": seed,
        }
        if self.settings.token_ids:
            body |= {
                "prompt": context,
                "logprobs": 1,
                "return_token_ids": True,
                "stop_token_ids": list(request.stop.eos),
                "ignore_eos": True,
                "top_k": 0,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
            }
        else:
            assert self._decode is not None
            body["prompt"] = self._decode(context)
        return body | ({"stop": list(request.stop.strings)} if request.stop.strings else {})

    def _text(self, data: dict[str, Any], live: Live) -> Part:
        """An answer as tokens of ours: exactly its text, no log-probabilities."""
        own = choice(data)
        text, finish = own.get("text"), own.get("finish_reason")
        if not isinstance(text, str) or finish not in ("stop", "length"):
            raise Fault(SHAPE, "a choice has no text, or no reason for its end")
        assert self._encode is not None and self._decode is not None
        ids = [int(i) for i in self._encode(text)]
        if self._decode(ids) != text:
            raise Fault(SHAPE, "the answer has characters that our tokenizer cannot write", again=False)
        usage = data.get("usage")
        sampled = usage.get("completion_tokens") if isinstance(usage, dict) else None
        prompt, cached = counts(data, sampled) if type(sampled) is int else (0, None)
        return Part(ids, [float("nan")] * len(ids), finish, own.get("stop_reason"), prompt, cached)

    def _ended(self, live: Live, part: Part) -> StopReason:
        if self.settings.token_ids:
            return super()._ended(live, part)
        if part.finish == "length":
            return live.full
        return StopReason.STOP_STRING if isinstance(part.stop, str) else StopReason.EOS

    async def _abort(self, live: Live, server: Server) -> None:
        """There is no such call: the connection is cut (after the turns of `_cancel`)."""
        self._tasks[live.request.id].cancel()

    async def _admit(self, server: Server) -> None:
        entry = await self.patient(lambda: named(server, self.settings.model))
        told = entry.get("max_model_len")
        length = min(x for x in (told, self._given) if type(x) is int) if type(told) is int or self._given else None
        if length is None:
            raise ConfigError(f"{server.url} does not tell how long its contexts may be", "set engine.max_length")
        self.max_length = min(self.max_length or length, length)
        if self.settings.token_ids:
            await self._check(server)

    async def _check(self, server: Server) -> None:
        """Ids both ways and log-probabilities of the law sampled. Raises ConfigError."""
        ones: list[dict[int, float]] = []
        halves: list[dict[int, float]] = []
        for row in probe(self.vocabulary):
            for temperature, into in ((1.0, ones), (0.5, halves)):
                body = {
                    "model": self._served(server),
                    "prompt": row,
                    "max_tokens": 1,
                    "temperature": temperature,
                    "logprobs": TOP,
                    "return_token_ids": True,
                    "return_tokens_as_token_ids": True,
                }
                data = await self.patient(partial(server.ask, "POST", PATH, body))
                if not isinstance(choice(data).get("token_ids"), list):
                    raise ConfigError(
                        f"{server.url} gives no token ids",
                        AS_TEXT,
                    )
                completed(data, row, self.vocabulary)
                into.append(_likeliest(data, server.url))
        refuse_law(
            server.url,
            law_of(ones, halves),
            "have it give log-probabilities after temperature (vLLM: --logprobs-mode processed_logprobs), or " + AS_TEXT,
        )

    def _served(self, server: Server) -> str:
        return self.settings.model or next(iter(server.models))


def _likeliest(data: dict[str, Any], url: str) -> dict[int, float]:
    """Log-probabilities of the likeliest first tokens of a reply, by id. Raises ConfigError that says what is missing."""
    told = choice(data).get("logprobs")
    tops = told.get("top_logprobs") if isinstance(told, dict) else None
    top = tops[0] if isinstance(tops, list) and tops else None
    asked = f"logprobs = {TOP} and return_tokens_as_token_ids = true were asked for"
    remedy = f"have the endpoint give them (vLLM does), or {AS_TEXT}"
    if not isinstance(top, dict) or not top:
        raise ConfigError(
            f"{url} gives no choices[0].logprobs.top_logprobs, without which nobody can tell which law its log-probabilities are of "
            f"({asked})",
            remedy,
        )
    found = {}
    for key, value in top.items():
        name = str(key).removeprefix("token_id:")
        if name != key and name.isdecimal() and type(value) in (int, float):
            found[int(name)] = float(value)
    if len(found) < 2:
        raise ConfigError(
            f"{url} gives in choices[0].logprobs.top_logprobs {len(found)} tokens as `token_id:NUMBER` with a log-probability, for example "
            f"{next(iter(top.items()))!r:.60}, and two are needed to tell which law they are of ({asked})",
            remedy,
        )
    return found
