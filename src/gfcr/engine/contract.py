"""The engine contract: token ids in, token ids out.

Invariants every engine keeps: log-probabilities are those of the law really sampled (float32 log-softmax of
logits / temperature, renormalised over the kept set), dropout off; `load` drops every cache that depends on weights;
`usage` counts the tokens that went through the model, independently of the ledger; a cancelled or parked request gives
its tokens back with their log-probabilities and versions; nothing is retokenised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gfcr.types import POLICY, Path, Sampling, StopReason
from gfcr.types.frozen import quickly_made


@dataclass(frozen=True, slots=True)
class StopSpec:
    """When a stream ends by itself. The end token is an action and carries loss."""

    eos: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    """Stop strings, found across token borders in the decoded text of the new tokens, and of the policy's own at the path's end: a
    string that a resumed answer completes has begun there."""


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One stream to sample."""

    id: str
    """Unique among live requests; engines admit in submission order within a priority."""
    path: Path
    """Context; requests whose paths share nodes (or token prefixes) share their computation."""
    sampling: Sampling
    max_new_tokens: int
    key: int
    """Stream key (run/seeds.py); the token at flat path offset t uses the uniform of (key, t)."""
    stop: StopSpec = StopSpec()
    priority: int = 0
    """Lower first."""
    fork_of: str | None = None
    """A live or retained request whose computed prefix is shared up to `fork_at`; None = an own stream."""
    fork_at: int = 0
    """Flat token offset where the fork leaves its parent; `path` starts with the parent's first `fork_at` tokens."""
    later: tuple[tuple[int, Sampling], ...] = ()
    """(new tokens so far, law from there on), ascending; engines with the feature `laws` only."""
    retain: bool = False
    """Keep what was computed for it after it ends, because forks may follow; dropped at `load`, by `cancel(id)` of the
    ended request, or when the engine's room for it is full (a fork then computes its prefix itself)."""
    frees: bool = False
    """No other fork of `fork_of` follows; the driver ends it once this request is admitted."""
    turn: int = 0
    author: str = POLICY
    trained: bool = True
    """What its tokens' segments say; engines do not read these three."""

    @property
    def laws(self) -> tuple[Sampling, ...]:
        """Every law its tokens may be drawn from, in order."""
        return (self.sampling, *[law for _, law in self.later])

    def spans(self, start: int, end: int) -> list[tuple[int, int, Sampling]]:
        """(first, end, law) of the new tokens start..end (from 0, end exclusive), in order; none for no tokens."""
        out, begins = [], 0
        for law, border in zip(self.laws, (*[at for at, _ in self.later], end)):
            first, last = max(begins, start), min(border, end)
            if first < last:
                out.append((first, last, law))
            begins = border
        return out


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """New tokens of one request since its last chunk."""

    request: str
    ids: np.ndarray
    """int32[n]."""
    logprobs: np.ndarray
    """float32[n], of the request's law."""
    version: int
    """Weights that produced these tokens."""
    tracks: Mapping[str, np.ndarray] = field(default_factory=dict)
    """float32[n] each: `entropy` (nats, of the law sampled) and, where a law of the request truncates, `kept_mass` (1 under one that
    does not)."""
    stop: StopReason | None = None
    """None while the request is alive."""
    error: str = ""
    """Why it FAILED, `kind: words`; empty when nobody knows, and for every other end."""
    lost: int = 0
    """Sampled tokens (in `usage` too) that no chunk gives back, because the process that had them is gone."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Context tokens of one request: computed by its admission, and reused."""

    request: str
    computed: int
    cached: int


@dataclass(frozen=True, slots=True, eq=False)
class ScoreItem:
    """One sequence whose tokens are to be scored."""

    id: str
    ids: np.ndarray
    """int32[n]."""
    spans: tuple[tuple[int, int, Sampling], ...]
    """(start, end, law) in flat offsets; tokens outside every span are context only."""


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    id: str
    logprobs: np.ndarray
    """float32[n]; NaN outside the spans."""
    entropy: np.ndarray
    """float32[n] in nats; NaN outside the spans."""


@dataclass(frozen=True, slots=True)
class WeightsRef:
    """Weights to serve."""

    version: int
    uri: str
    """A directory or file; `memory:` when the tensors are handed over in the call."""
    sha256: str = ""
    kind: str = "full"
    """`full`, `adapter` or `delta`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that went through the model since the engine started, counted inside it."""

    prefilled: int = 0
    decoded: int = 0
    """Sampled tokens."""
    scored: int = 0
    cached: int = 0
    """Context tokens served from an already computed prefix."""
    kv_peak: int = 0
    """Most KV positions allocated at once, in tokens."""
    live_peak: int = 0
    """Most live tokens held at once."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What went wrong between an engine and what it runs on, since it was last asked."""

    faults: Mapping[str, int]
    """Counts by kind."""
    tokens: Mapping[str, int]
    """Sampled tokens (in `usage` too) that no chunk gives back or tells as `lost`, by the kind of fault that lost them."""


@runtime_checkable
class Lossy(Protocol):
    """An engine whose requests may be issued again behind the caller's back. Whoever keeps a ledger asks it after each round."""

    def losses(self) -> Losses: ...


def losses_of(engine: object) -> Losses | None:
    """What an engine lost since it was last asked; None for one that loses nothing behind the caller's back."""
    return engine.losses() if isinstance(engine, Lossy) else None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; a recipe that needs more is refused before it starts."""

    name: str
    features: frozenset[str]
    """Of: `cancel`, `resume`, `fork`, `score`, `processed_logprobs`, `kept_mass`, `entropy`, `stop_strings`,
    `penalties`, `deterministic`, `versions`, `fingerprint`, `adapters`, `laws`, `token_ids` (of its own, not ours of its text),
    `weights` (it serves those that are published), `text_only` (no ids, no log-probabilities: for evaluation)."""
    max_length: int
    """Longest context plus answer in tokens."""
    vocabulary: int
    details: Mapping[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """What a driver needs; `step` does work, everything else returns at once."""

    def capabilities(self) -> Capabilities: ...

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ValueError for an empty context, a context longer than the model, a non-positive limit."""

    def step(self, tokens: int | None = None) -> list[Chunk]:
        """Advance every running stream by up to `tokens` tokens and return the new tokens of all of them. None: until at
        least one finishes, and only finished ones are returned (the others' tokens come with a later chunk). Empty when
        idle."""

    def prefilled(self) -> list[Prefilled]:
        """Admission costs since the last call."""

    def cancel(self, request: str) -> Chunk | None:
        """End a request; its tokens not yet returned, stop CANCELLED. None when unknown or finished. Resuming is a new
        request whose path holds the tokens so far, with the same key: positions continue, so do the draws."""

    def live(self) -> int:
        """Requests queued or running."""

    def score(self, items: Sequence[ScoreItem]) -> list[Score]: ...

    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None:
        """Serve these weights from now on. Refused (RuntimeError) while requests are live."""

    def fingerprint(self) -> str:
        """Digest of the answering weights' log-probabilities on a fixed probe: proves which weights answer."""

    def usage(self) -> Usage: ...

    def close(self) -> None: ...
