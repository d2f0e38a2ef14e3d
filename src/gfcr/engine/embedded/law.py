"""The law tokens are drawn from, the same code for sampling and scoring.

Order: bans, penalties, temperature, top-k, top-p, min-p, renormalise; float32 log-softmax. Invariants: the
log-probabilities sum to one over the kept set and are -inf outside; a draw is the inverse of the float64 cumulative sum at
one uniform, so it depends on nothing but the row's logits and that uniform; greedy (temperature 0) is the point mass on
the largest logit: log-probability 0, entropy 0. The repetition penalty counts every token of the path before the
position, presence and frequency count sampled tokens only (ACTION segments; in scoring the tokens inside the spans).
Logits that are not finite give a NaN log-probability, never a token that looks sound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gfcr.types import Sampling

BELOW_ONE = 1 - 2.0**-40
"""Uniforms are capped here so that u x total stays below the total in float64."""


@dataclass(slots=True)
class LawRows:
    """The laws of n rows as tensors; None where no row needs the rule. Shapes [n, 1], `banned` [n, vocabulary]."""

    temperature: Tensor | float
    greedy: Tensor | None
    banned: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None
    repetition: Tensor | None
    presence: Tensor | None
    frequency: Tensor | None

    @property
    def truncated(self) -> bool:
        return any(t is not None for t in (self.banned, self.top_k, self.top_p, self.min_p))


class Laws:
    """The distinct laws an engine has met, numbered."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self.vocabulary, self.device = vocabulary, device
        self.laws: list[Sampling] = []
        self._number: dict[str, int] = {}

    def number(self, law: Sampling) -> int:
        """The index of `law`. Raises ValueError when it bans a token outside the vocabulary, or all of it."""
        if law.id not in self._number:
            if wrong := [t for t in law.banned if not 0 <= t < self.vocabulary]:
                raise ValueError(f"sampling.banned holds {wrong[0]}; the model's vocabulary has {self.vocabulary} tokens")
            if len(set(law.banned)) == self.vocabulary:
                raise ValueError("sampling.banned holds the whole vocabulary; leave at least one token")
            self._number[law.id] = len(self.laws)
            self.laws.append(law)
        return self._number[law.id]

    def penalised(self, number: int) -> bool:
        law = self.laws[number]
        return law.repetition_penalty != 1 or bool(law.presence_penalty or law.frequency_penalty)

    def rows(self, numbers: np.ndarray) -> LawRows:
        """The laws of rows that follow `numbers`."""
        used, place = np.unique(numbers, return_inverse=True)
        laws = [self.laws[i] for i in used]

        def column(name: str, off: float, inactive: float | None = None) -> Tensor | None:
            values = np.array([getattr(law, name) for law in laws], np.float64)
            if (values == off).all():
                return None
            if inactive is not None:
                values[values == off] = inactive
            return torch.from_numpy(values[place].astype(np.float32)).to(self.device)[:, None]

        greedy = np.array([law.temperature == 0 for law in laws])
        temperatures = np.array([law.temperature or 1.0 for law in laws])
        temperature: Tensor | float = float(temperatures[0])
        if len(laws) > 1:
            temperature = torch.from_numpy(temperatures[place].astype(np.float32)).to(self.device)[:, None]
        banned = None
        if any(law.banned for law in laws):
            mask = torch.zeros(len(laws), self.vocabulary, dtype=torch.bool)
            for i, law in enumerate(laws):
                mask[i, list(law.banned)] = True
            banned = mask[torch.from_numpy(place)].to(self.device)
        return LawRows(
            temperature,
            torch.from_numpy(greedy[place]).to(self.device)[:, None] if greedy.any() else None,
            banned,
            column("top_k", 0, self.vocabulary),
            column("top_p", 1),
            column("min_p", 0),
            column("repetition_penalty", 1),
            column("presence_penalty", 0),
            column("frequency_penalty", 0),
        )


def log_law(
    logits: Tensor,
    rows: LawRows,
    path: Tensor | None = None,
    sampled: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities float32 [n, vocabulary] and, when a row truncates, the mass [n] that the untruncated law gives
    the kept set. `path`, `sampled` [n, vocabulary]: counts of the tokens before, needed by penalties."""
    logits = logits.float()
    if rows.repetition is not None and path is not None:
        scaled = torch.where(logits > 0, logits / rows.repetition, logits * rows.repetition)
        logits = torch.where(path > 0, scaled, logits)
    if rows.presence is not None and sampled is not None:
        logits = logits - rows.presence * (sampled > 0)
    if rows.frequency is not None and sampled is not None:
        logits = logits - rows.frequency * sampled
    if isinstance(rows.temperature, Tensor) or rows.temperature != 1:
        logits = logits / rows.temperature
    law = torch.log_softmax(logits, -1)
    mass = None
    if rows.truncated:
        keep = _kept(law, rows)
        log_mass = torch.logsumexp(law.masked_fill(~keep, -torch.inf), -1, keepdim=True)
        # A row that keeps everything stays bit-equal to its untruncated law.
        log_mass = torch.where(keep.all(-1, keepdim=True), 0.0, log_mass)
        mass = log_mass.exp().squeeze(-1)
        sound = ~law.isnan().any(-1, keepdim=True)
        law = torch.where(keep, law - log_mass, torch.where(sound, -torch.inf, torch.nan))
    if rows.greedy is not None:
        best = law.argmax(-1, keepdim=True)
        point = torch.full_like(law, -torch.inf).scatter_(-1, best, 0.0)
        point = point + law.gather(-1, best) * 0.0
        law = torch.where(rows.greedy, point, law)
    return law, mass


def _kept(law: Tensor, rows: LawRows) -> Tensor:
    """Which tokens survive bans, top-k, top-p and min-p, in this order; ties go to the lower token id."""
    allowed = law if rows.banned is None else law.masked_fill(rows.banned, -torch.inf)
    keep = allowed > -torch.inf
    if rows.top_k is not None or rows.top_p is not None:
        values, order = torch.sort(allowed, dim=-1, descending=True, stable=True)
        kept = values > -torch.inf
        if rows.top_k is not None:
            kept &= torch.arange(law.shape[-1], device=law.device) < rows.top_k
        if rows.top_p is not None:
            mass = values.masked_fill(~kept, -torch.inf).softmax(-1)
            before = mass.double().cumsum(-1) - mass
            kept &= (before < rows.top_p) | (rows.top_p >= 1)
        keep = torch.zeros_like(keep).scatter_(-1, order, kept)
    if rows.min_p is not None:
        masked = allowed.masked_fill(~keep, -torch.inf)
        keep &= masked >= masked.amax(-1, keepdim=True) + rows.min_p.log()
    return keep


def draw(law: Tensor, uniforms: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens int64 [n], their log-probabilities and the laws' entropies (nats), float32 [n], at one uniform per row."""
    probabilities = law.exp()
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    at = torch.from_numpy(np.minimum(uniforms, BELOW_ONE)).to(law.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, at, right=True).clamp_(max=law.shape[-1] - 1)
    return tokens[:, 0], law.gather(-1, tokens)[:, 0], entropy(law, probabilities)


def entropy(law: Tensor, probabilities: Tensor | None = None) -> Tensor:
    """Entropy in nats, float32 [n]."""
    probabilities = law.exp() if probabilities is None else probabilities
    return -(probabilities * law.clamp(min=MIN_LOG)).sum(-1)


MIN_LOG = torch.finfo(torch.float32).min
