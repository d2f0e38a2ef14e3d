"""What a server said, as checked data. Pure functions: a reply in, tokens or a Fault out.

Invariants: nothing here is repaired or guessed; ids are integers of the vocabulary, each with its own finite log-probability of at
most 0 (rounding up to 1e-4 above it is taken for 0); the server's running count must be that of what came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gfcr.engine.http.faults import BAD_JSON, COUNT, FOREIGN, LOGPROB, SHAPE, VERSION, VOCABULARY, Fault

FLOOR = -9000.0
"""vLLM writes -9999 for NaN and minus infinity; nothing that was sampled is as improbable as this."""
ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class Part:
    """New tokens of one reply."""

    ids: list[int]
    logprobs: list[float]
    finish: str | None = None
    """`stop`, `length`, `abort`; None while it goes on."""
    stop: int | str | None = None
    """The end token or stop string that ended it, where the server says."""
    prompt: int = 0
    """Tokens of the context."""
    cached: int | None = None
    """Of them, served from the prefix cache; None where the server does not say."""
    last: bool = False
    """The closing count of a stream, which has no tokens."""


def parsed(text: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises Fault."""
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # bad UTF-8 and bad JSON are ValueErrors
        raise Fault(BAD_JSON, f"the reply is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Fault(SHAPE, f"the reply is {type(found).__name__}, not an object")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def token_id(value: Any, vocabulary: int) -> int:
    """Raises Fault for what is no token of the vocabulary."""
    if type(value) is not int:
        raise Fault(SHAPE, f"a token id is {str(value)[:40]!r}")
    if not 0 <= value < vocabulary:
        raise Fault(VOCABULARY, f"token {value}, the vocabulary has {vocabulary}")
    return value


def logprob(value: Any) -> float:
    """Raises Fault for what is no log-probability of something that was sampled."""
    found = _number(value)
    if found > ROUNDING or found < FLOOR:
        raise Fault(LOGPROB, f"a log-probability is {found:g}")
    return min(found, 0.0)


def _number(value: Any) -> float:
    """Raises Fault for what is no number; an integer that no float holds is none."""
    try:
        found = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        found = math.nan
    if math.isnan(found):
        raise Fault(LOGPROB, f"a log-probability is {str(value)[:40]!r}")
    return found


def _told(own: Any, key: str) -> Any:
    """What a choice's `logprobs` have under a key; None where they are of another form."""
    found = own.get("logprobs") if isinstance(own, dict) else None
    return found.get(key) if isinstance(found, dict) else None


def choice(data: dict[str, Any]) -> dict[str, Any]:
    """The only choice of a reply. Raises Fault."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise Fault(SHAPE, f"the reply has no single choice: {str(data.get('error') or choices)[:200]}")
    found: dict[str, Any] = choices[0]
    return found


def counts(data: dict[str, Any], sampled: int) -> tuple[int, int | None]:
    """(context tokens, those of them that were cached) of a reply; the sampled ones must be `sampled`. Raises Fault."""
    usage = data.get("usage")
    if not isinstance(usage, dict) or type(prompt := usage.get("prompt_tokens")) is not int:
        raise Fault(SHAPE, "the reply has no usage")
    if usage.get("completion_tokens") != sampled:
        raise Fault(COUNT, f"{sampled} tokens came, the server counts {usage.get('completion_tokens')}")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if not 0 <= (cached if type(cached) is int else 0) <= prompt:
        raise Fault(COUNT, f"{str(cached)[:40]} of {str(prompt)[:40]} context tokens are said to be cached")
    return prompt, cached if type(cached) is int else None


def generated(data: dict[str, Any], request: str, before: int, vocabulary: int, label: str | None) -> Part:
    """An event of /inference/v1/generate, or its whole reply. `before`: tokens that came already; `label`: the weights expected, None =
    whichever. Raises Fault."""
    if not str(data.get("request_id")).endswith(request):
        raise Fault(FOREIGN, f"the reply is to {str(data.get('request_id'))[:80]!r}")
    if data.get("choices") == []:
        prompt, cached = counts(data, before)
        return Part([], [], prompt=prompt, cached=cached, last=True)
    own = choice(data)
    ids, content = own.get("token_ids"), _told(own, "content")
    if not isinstance(ids, list) or not isinstance(content, list) or len(ids) != len(content):
        raise Fault(SHAPE, f"{_length(ids)} token ids and {_length(content)} log-probabilities")
    for token, entry in zip(ids, content):
        token_id(token, vocabulary)
        if not isinstance(entry, dict) or entry.get("token_id") != token:
            raise Fault(LOGPROB, "a log-probability belongs to another token")
    values = [logprob(entry.get("logprob")) for entry in content]
    prompt, cached = counts(data, before + len(ids))
    finish = own.get("finish_reason")
    if finish is not None and label is not None:
        _check_versions(own.get("weight_versions"), before + len(ids), label)
    return Part(ids, values, finish, own.get("stop_reason"), prompt, cached)


def _check_versions(spans: Any, n: int, label: str) -> None:
    if n == 0 and not spans:
        return
    at = 0
    for span in spans if isinstance(spans, list) else []:
        end = span.get("end") if isinstance(span, dict) else None
        if type(end) is not int or span.get("start") != at or span.get("version") != label:
            raise Fault(VERSION, f"tokens of the weights {str(span)[:120]}, expected {label!r}")
        at = end
    if at != n:
        raise Fault(VERSION, f"the weights of {n} tokens are told for {at}")


def completed(data: dict[str, Any], context: Sequence[int], vocabulary: int) -> Part:
    """A whole reply of /v1/completions with token ids. Raises Fault."""
    own = choice(data)
    ids, echoed = own.get("token_ids"), own.get("prompt_token_ids")
    values = _told(own, "token_logprobs")
    if not isinstance(ids, list) or not isinstance(values, list) or len(ids) != len(values):
        raise Fault(SHAPE, f"{_length(ids)} token ids and {_length(values)} log-probabilities")
    if echoed is not None and echoed != list(context):
        raise Fault(FOREIGN, "the reply is to another context")
    found = [token_id(token, vocabulary) for token in ids]
    prompt, cached = counts(data, len(ids))
    return Part(found, [logprob(value) for value in values], own.get("finish_reason"), own.get("stop_reason"), prompt, cached)


def scored(data: dict[str, Any], ids: Sequence[int]) -> list[float]:
    """float[n-1]: log-probabilities at temperature 1 of the tokens of a context but the first. Raises Fault."""
    rows = data.get("prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(ids):
        raise Fault(SHAPE, f"{_length(rows)} prompt log-probabilities for {len(ids)} tokens")
    found = []
    for token, row in zip(ids[1:], rows[1:]):
        entry = row.get(str(token)) if isinstance(row, dict) else None
        if not isinstance(entry, dict):
            raise Fault(LOGPROB, f"no log-probability of the token {token}")
        found.append(_scored(entry.get("logprob")))
    return found


def tempered(data: dict[str, Any], wanted: Sequence[int]) -> list[float]:
    """float[n]: log-probabilities of one wanted token after each of n contexts, of a /v1/completions reply. Raises Fault."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != len(wanted):
        raise Fault(SHAPE, f"{_length(choices)} choices for {len(wanted)} contexts")
    found: dict[int, float] = {}
    for own in choices:
        top = _told(own, "top_logprobs")
        at = own.get("index") if isinstance(own, dict) else None
        if type(at) is not int or not 0 <= at < len(wanted) or at in found or not isinstance(top, list) or len(top) != 1:
            raise Fault(SHAPE, "a choice without index or log-probabilities")
        found[at] = _scored(top[0].get(f"token_id:{wanted[at]}") if isinstance(top[0], dict) else None)
    return [found[i] for i in range(len(wanted))]


def _scored(value: Any) -> float:
    """Given tokens may be as improbable as can be."""
    if (found := _number(value)) > ROUNDING:
        raise Fault(LOGPROB, f"a log-probability is {found:g}")
    return -math.inf if found < FLOOR else min(found, 0.0)


def _length(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else "no"
