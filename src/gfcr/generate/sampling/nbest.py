"""The best of n answers. Invariant: what is kept depends on what the answers score alone, ties in the order they were asked; the others
stay members, judged and counted (posteriors and zero-variance tests see all n), and leave baseline and loss as surplus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.generate.growth import Copied, Leaf, Look, Lost, Outcome, Piece, Sample, Seen, Want
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Drop, Group, Path, Segment, SegmentKind, Signals

By = Literal["logprob-sum", "logprob-mean", "entropy", "short", "reward"]


@method(
    "n-best",
    Slot.TOPOLOGY,
    title="best of n",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
    traits=("picks answers",),
)
class NBest:
    """n answers per prompt, of which the k with the highest score are trained. Our design."""

    class Settings(FrozenModel):
        k: int = Field(8, ge=1)
        """Answers kept per prompt (K)."""
        n: int = Field(16, ge=1)
        """Answers sampled for K kept; an allocation of another size samples in this proportion."""
        by: By = "logprob-mean"
        """Score: sum or mean of the answer's log-probabilities, `entropy` (the lowest mean entropy of its laws: the most certain;
        self-certainty proper needs whole laws, which no engine gives), `short` (fewest tokens), `reward` (the cascade's)."""

        def worst_tokens(self, max_tokens: int) -> int:
            """Most tokens a group may generate."""
            return self.n * max_tokens

    def __init__(self, settings: Settings, build: Build) -> None:
        if settings.n < settings.k:
            raise ConfigError(
                f"generate.topology 'n-best': n = {settings.n} answers, of which k = {settings.k} are to be kept",
                "set n to k or more",
            )
        self.settings = settings

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Picking:
        n = max(len(bases), round(len(bases) * self.settings.n / self.settings.k))
        return Picking(tuple(bases), how, n, self.settings.by)


@dataclass
class Picking(Copied):
    """One allocation: n pieces, then as many leaves, the best of them in the loss."""

    bases: tuple[Path, ...]
    how: Configuration
    n: int
    by: By
    pieces: dict[str, Piece] = field(default_factory=dict)
    seen: dict[str, Signals | None] = field(default_factory=dict)
    """Signals by piece; None = nobody could judge it."""
    waiting: int = 0

    def start(self) -> list[Want]:
        self.waiting = self.n
        how = self.how
        return [
            Sample(f"answer{i}", self.bases[i % len(self.bases)], how.sampling, how.max_tokens, how.later)
            for i in range(self.n)
        ]

    def tell(self, outcome: Outcome) -> list[Want]:
        self.waiting -= 1
        wants: list[Want] = []
        if isinstance(outcome, Piece):
            self.pieces[outcome.name] = outcome
            if self.by == "reward":
                self.waiting += 1
                wants.append(Look(f"look at {outcome.name}", outcome.path, outcome.stop))
        elif isinstance(outcome, (Seen, Lost)) and outcome.name.startswith("look at "):
            self.seen[outcome.name.removeprefix("look at ")] = outcome.signals if isinstance(outcome, Seen) else None
        return wants if self.waiting else [*wants, *self._leaves()]

    def _leaves(self) -> list[Want]:
        order = sorted(self.pieces, key=lambda name: int(name.removeprefix("answer")))
        scores = {name: self._score(name) for name in order}
        kept = set(sorted(order, key=lambda name: -scores[name])[: len(self.bases)])
        out: list[Want] = []
        for name in order:
            piece = self.pieces[name]
            drop = None if name in kept else Drop.SURPLUS
            out.append(
                Leaf(
                    name,
                    piece.path,
                    piece.stop,
                    (name,),
                    seed=piece.seed,
                    judged=self.seen.get(name),
                    drop=drop,
                    meta={"score": f"{scores[name]:.6g}"},
                )
            )
        return out

    def _score(self, name: str) -> float:
        """Higher is better; -inf where there is none."""
        if self.by == "reward":
            signals = self.seen.get(name)
            return -np.inf if signals is None or signals.reward is None else signals.reward
        own = self._own(self.pieces[name])
        tokens = sum(map(len, own))
        if self.by == "short":
            return -float(tokens)
        if self.by == "entropy":
            total = -sum(float(s.tracks["entropy"].sum(dtype=np.float64)) for s in own)
        else:
            total = sum(float(s.logprobs.sum(dtype=np.float64)) for s in own if s.logprobs is not None)
        return total if self.by == "logprob-sum" else total / max(1, tokens)

    def _own(self, piece: Piece) -> list[Segment]:
        base = self.bases[int(piece.name.removeprefix("answer")) % len(self.bases)]
        return [node.segment for node in piece.new(base) if node.segment.kind is SegmentKind.ACTION]
