"""Segments: consecutive tokens with one author and one law.

Invariants: token arrays are read-only; only ACTION tokens (and DEMO tokens where a method declares it) may carry a loss; `logprobs` belong to the law named by `sampling` (after temperature and truncation), never to another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from gfcr.types.frozen import quickly_made
from gfcr.types.ids import derive_id, frozen_array

POLICY = "policy"
"""Author of what the policy wrote, where nobody names its agents."""


class SegmentKind(StrEnum):
    PROMPT = "prompt"
    ACTION = "action"
    OBSERVATION = "observation"
    GUIDANCE = "guidance"
    FORCED = "forced"
    """Tokens put into the policy's mouth: an exit phrase, a mode token."""
    DEMO = "demo"
    """A teacher's or a human's tokens."""


class LossRole(StrEnum):
    NONE = "none"
    RL = "rl"
    CE = "ce"


class TokenSource(StrEnum):
    SAMPLED = "sampled"
    DRAFT_EXACT = "draft_exact"
    """Speculated and verified by exact rejection: the policy's own law."""
    DRAFT_LENIENT = "draft_lenient"
    REPLAYED = "replayed"


class StopReason(StrEnum):
    """Why a rollout ended; each becomes a metric."""

    EOS = "eos"
    STOP_STRING = "stop_string"
    ENV_TERMINATED = "env_terminated"
    MAX_TOKENS = "max_tokens"
    CONTEXT_FULL = "context_full"
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    MAX_SECONDS = "max_seconds"
    ENV_TRUNCATED = "env_truncated"
    EARLY_EXIT = "early_exit"
    """A stopper ended it on purpose."""
    PRUNED = "pruned"
    PARKED = "parked"
    """To be resumed in a later round."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    """The engine or the environment broke."""

    @property
    def finished(self) -> bool:
        """The policy or the environment ended it: the trajectory is whole."""
        return self in (StopReason.EOS, StopReason.STOP_STRING, StopReason.ENV_TERMINATED)

    @property
    def truncated(self) -> bool:
        """A limit cut it, so what the policy would have said is unknown."""
        return self in _TRUNCATED


_TRUNCATED = frozenset(
    {
        StopReason.MAX_TOKENS,
        StopReason.CONTEXT_FULL,
        StopReason.MAX_TURNS,
        StopReason.MAX_TOOL_CALLS,
        StopReason.MAX_SECONDS,
        StopReason.ENV_TRUNCATED,
    }
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The exact law tokens are drawn from: softmax(logits / temperature), then penalties, bans and truncation.

    Order: bans, penalties, temperature, top-k, top-p, min-p, renormalise (the vLLM and Hugging Face order).
    """

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    banned: tuple[int, ...] = ()
    """Token ids of probability 0."""
    id: str = ""
    """Derived; leave empty."""

    def __post_init__(self) -> None:
        for name, ok, range_ in (
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
        ):
            if not ok:
                raise ValueError(f"sampling.{name} = {getattr(self, name)!r} is outside its range, {range_}")
        if not self.id:
            values = (
                self.temperature,
                self.top_p,
                self.top_k,
                self.min_p,
                self.repetition_penalty,
                self.presence_penalty,
                self.frequency_penalty,
                self.banned,
            )
            object.__setattr__(self, "id", derive_id("sampling", repr(values)))

    def __hash__(self) -> int:
        """Equal laws have equal ids; the hash of a text is kept with it."""
        return hash(self.id)

    @property
    def truncated(self) -> bool:
        """Whether some tokens have probability 0, so that log-probabilities are renormalised over the kept set."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0 or bool(self.banned)

    @property
    def penalised(self) -> bool:
        """Whether the tokens before change the law, beyond what the model makes of them."""
        return self.repetition_penalty != 1 or bool(self.presence_penalty or self.frequency_penalty)

    @property
    def plain(self) -> bool:
        """Whether temperature alone shapes the law."""
        return not self.truncated and not self.penalised


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Consecutive tokens with one author and one law (u or o in the survey)."""

    kind: SegmentKind
    ids: np.ndarray
    """int32[n] token ids."""
    logprobs: np.ndarray | None = None
    """float32[n], of the law `sampling` under the weights `version`; None where nobody sampled these tokens."""
    turn: int = 0
    author: str = ""
    """Policy id, environment, tool or teacher; several agents may share one rollout."""
    version: int | None = None
    """Version of the published weights that produced the tokens; None where no model did."""
    sampling: Sampling | None = None
    """The law the tokens were drawn from; None where nobody sampled them."""
    role: LossRole = LossRole.NONE
    source: TokenSource | None = None
    """How sampled tokens came about; None for tokens that no policy produced."""
    template: str | None = None
    """Hash of the chat template that rendered a PROMPT or an OBSERVATION; None for other kinds and plain text."""
    tracks: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Named float32[n]: entropy (nats), kept_mass, proximal, reference, value, ...; NaN where undefined."""

    def __post_init__(self) -> None:
        ids, logprobs = frozen_array(self.ids, np.int32), self.logprobs
        n = len(ids)
        if ids is not self.ids:
            object.__setattr__(self, "ids", ids)
        if logprobs is not None:
            logprobs = frozen_array(logprobs, np.float32)
            if len(logprobs) != n:
                raise ValueError(f"segment {self.kind}: {len(logprobs)} log-probabilities for {n} tokens")
            if logprobs is not self.logprobs:
                object.__setattr__(self, "logprobs", logprobs)
        if self.tracks:
            tracks = {name: frozen_array(track, np.float32) for name, track in self.tracks.items()}
            for name, track in tracks.items():
                if len(track) != n:
                    raise ValueError(f"segment {self.kind}: track {name!r} has {len(track)} values for {n} tokens")
            object.__setattr__(self, "tracks", MappingProxyType(tracks))
        if self.role is LossRole.RL and self.kind not in (SegmentKind.ACTION, SegmentKind.DEMO):
            raise ValueError(f"segment {self.kind}: an RL loss needs ACTION tokens (or DEMO where a method declares it)")
        if self.role is LossRole.CE and self.kind not in (SegmentKind.ACTION, SegmentKind.DEMO):
            raise ValueError(f"segment {self.kind}: a cross-entropy loss needs ACTION or DEMO tokens")

    def __len__(self) -> int:
        return len(self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are built anew: read-only views of mappings cannot be pickled, and arrays come back writable."""
        return Segment, tuple(dict(self.tracks) if f.name == "tracks" else getattr(self, f.name) for f in fields(self))
