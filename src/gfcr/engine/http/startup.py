"""What a vLLM server must be, asked before the first token. Invariant: nothing is believed of its flags; each refusal says which one to
set."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from gfcr.engine.http.faults import REFUSED, SHAPE, VOCABULARY, Fault
from gfcr.engine.http.law import TOP, law_of, probe
from gfcr.engine.http.replies import choice, scored
from gfcr.engine.http.server import Server
from gfcr.errors import ConfigError

if TYPE_CHECKING:
    from gfcr.engine.http.vllm import VllmEngine

HOW = (
    "start the server with VLLM_SERVER_DEV_MODE=1 and the flags --enable-scale-out --logprobs-mode processed_logprobs; "
    "docs/engines.md has the whole command"
)


async def named(server: Server, model: str | None) -> dict[str, Any]:
    """The entry of /v1/models for `model`, None = the only one. Raises ConfigError, Fault."""
    listed = await server.ask("GET", "/v1/models")
    data = listed.get("data")
    server.models = {str(m.get("id")): m for m in (data if isinstance(data, list) else ()) if isinstance(m, dict)}
    if model is None and len(server.models) != 1:
        raise ConfigError(
            f"{server.url} serves {len(server.models)} models: {', '.join(server.models) or 'none'}",
            "name one in engine.http.model",
        )
    if model is not None and model not in server.models:
        raise ConfigError(
            f"{server.url} serves no {model!r}, but {', '.join(server.models) or 'nothing'}", "correct engine.http.model"
        )
    found: dict[str, Any] = server.models[model or next(iter(server.models))]
    return found


async def check(engine: VllmEngine, server: Server) -> None:
    """Raises ConfigError for a server that is not what gfcr needs, Fault for one that does not answer."""
    entry = await engine.patient(lambda: named(server, engine.settings.model))
    length = entry.get("max_model_len")
    if type(length) is not int or length < 2:
        raise ConfigError(f"{server.url} does not say how long its contexts may be; it is no vLLM server", HOW)
    engine.max_length = min(engine.max_length or length, length)
    said = await _route(engine, server, "/server_info")
    await _route(engine, server, "/weight_info")
    if found := re.search(r"\bdtype=torch\.(\w+)", str(said.get("vllm_config"))):
        engine.dtype = found[1]
    engine.release = str((await engine.patient(lambda: server.ask("GET", "/version"))).get("version"))
    server.rebase(await engine.patient(server.counters))
    await _check_tokens(engine, server)
    await _check_law(engine, server)


async def _route(engine: VllmEngine, server: Server, path: str) -> dict[str, Any]:
    try:
        return await engine.patient(lambda: server.ask("GET", path))
    except Fault as fault:
        if fault.kind != REFUSED:
            raise
        raise ConfigError(f"{server.url} has no {path} ({fault})", HOW) from fault


async def _check_tokens(engine: VllmEngine, server: Server) -> None:
    """Ids both ways, and a vocabulary that is ours."""
    last = engine.vocabulary - 1
    if await _refuses(engine, server, last):
        raise ConfigError(f"{server.url} does not take the token {last}", f"serve the model that model.path names; {HOW}")
    if not await _refuses(engine, server, last + 1):
        raise ConfigError(
            f"{server.url} takes the token {last + 1}, and the model of the recipe has {engine.vocabulary}",
            "serve the model that model.path names",
        )


async def _refuses(engine: VllmEngine, server: Server, token: int) -> bool:
    """Whether the server says that this context is wrong. Raises Fault."""

    async def asked() -> bool:
        try:
            await engine.one(server, [token])
        except Fault as fault:
            if fault.kind not in (REFUSED, VOCABULARY):
                raise
            return fault.kind == REFUSED  # it may answer with a token that we do not have
        return False

    return await engine.patient(asked)


async def _check_law(engine: VllmEngine, server: Server) -> None:
    """Log-probabilities are of the law sampled, and scores of temperature 1 are of the same."""
    contexts = [row[:n] for row in probe(engine.vocabulary) for n in (2, 5, 8) if n < engine.max_length]
    ones: list[dict[int, float]] = []
    halves: list[dict[int, float]] = []
    for context in contexts:
        for temperature, into in ((1.0, ones), (0.5, halves)):
            data = await engine.patient(partial(engine.one, server, context, temperature=temperature, logprobs=TOP))
            into.append(_top(data))
    refuse_law(server.url, law_of(ones, halves))
    context, one = max(zip(contexts, ones), key=lambda pair: len(pair[0]))
    token, want = max(one.items(), key=lambda item: item[1])
    whole = [*context, token]
    got = scored(await engine.patient(lambda: engine.one(server, whole, prompt_logprobs=0)), whole)[-1]
    if abs(got - want) > 10 * engine.settings.gap:
        raise ConfigError(
            f"{server.url} scores a token {got:.4g} that it would sample with log-probability {want:.4g}",
            "serve one model, without speculative decoding or quantised keys and values; half precisions: raise engine.http.gap",
        )


def _top(data: dict[str, Any]) -> dict[int, float]:
    """Log-probabilities of the likeliest first tokens of a reply, by id. Raises Fault."""
    try:
        found = choice(data)["logprobs"]["content"][0]["top_logprobs"]
        return {int(entry["token_id"]): float(entry["logprob"]) for entry in found}
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise Fault(SHAPE, "the reply has no log-probabilities of the likeliest tokens") from None


def refuse_law(url: str, law: str, remedy: str = "start it with --logprobs-mode processed_logprobs") -> None:
    """Raise ConfigError unless the log-probabilities are of the law sampled."""
    if law == "processed":
        return
    raise ConfigError(
        f"{url} gives log-probabilities that are not of the law sampled ({law}): at temperature .5 they "
        + ("are those of temperature 1" if law == "raw" else "fit no law"),
        remedy,
    )
