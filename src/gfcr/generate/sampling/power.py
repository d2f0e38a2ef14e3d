"""Power sampling: answers drawn from p(answer)^alpha by Metropolis and Hastings, with no verifier and no training.

Invariants: a chain is a pure function of the run's seed, its group and its place in it; a proposal is accepted with exactly the probability
that leaves p^alpha as it is; what is proposed is sampled under its own law (temperature / alpha), and that law and its
log-probabilities stay with the tokens; every token that is not in the answer in the end is booked as rejected or replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.control.configure.base import changed
from gfcr.generate.growth import Copied, Leaf, Lost, Outcome, Piece, Sample, Spill, Want, Weigh, Weighed, cut
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.run.seeds import generator
from gfcr.types import Group, Node, Path, Sampling, SegmentKind, StopReason, path_length


@method(
    "power",
    Slot.TOPOLOGY,
    title="power sampling",
    arxiv="2510.14901",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    needs=("score",),
    traits=("iid group", "samples another law", "needs: one plain law"),
)
class PowerSampling:
    """K chains per prompt (arXiv:2510.14901). Block by block an answer is continued at temperature / alpha; then `steps` times an index
    of it is drawn uniformly, everything from there on is sampled anew, and x' takes the place of x with probability
    min(1, (p(x')^alpha q(x) L) / (p(x)^alpha q(x') L')), where q is the proposal's law over the tokens from the index on and L, L' are
    the lengths. The official code leaves out L / L' (`exact = false`), which biases chains whose answers end; it also compares only
    as many tokens of x as x' has, which is not reproduced.

    What it trains on is each answer under the recipe's law (temperature T), recomputed by the trainer: nobody drew it from there."""

    class Settings(FrozenModel):
        k: int = Field(8, ge=1)
        """Chains, and answers, per prompt."""
        alpha: float = Field(4.0, ge=1)
        """Power; 1 = plain sampling."""
        blocks: int = Field(16, ge=1)
        """Blocks the longest answer is grown in (the paper: 16 of 192 tokens)."""
        steps: int = Field(10, ge=0)
        """Proposals after each block; 0 = sampling at temperature / alpha, and nothing is scored."""
        exact: bool = True
        """Count the choice of the index (L / L')."""

        def worst_tokens(self, max_tokens: int) -> int:
            """Most tokens a group may generate."""
            lengths = list(_borders(max_tokens, self.blocks))
            return self.k * (max_tokens + self.steps * sum(lengths))

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Power:
        names = (view.seed, group.id, group.stage)
        return Power(self.settings, how, names, {i: Chain(base, path_length(base), base) for i, base in enumerate(bases)})


def _borders(max_tokens: int, blocks: int) -> Iterator[int]:
    """Lengths to which an answer is grown, one after the other."""
    size = -(-max_tokens // blocks)
    yield from range(size, max_tokens, size)
    yield max_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """One answer on its way."""

    base: Path
    start: int
    """Tokens of the base."""
    path: Path
    """Base and answer."""
    stop: StopReason = StopReason.MAX_TOKENS
    target: np.ndarray = field(default_factory=lambda: np.empty(0))
    """float64[n]: log-probability of each answer token under the recipe's law."""
    pieces: tuple[tuple[str, int], ...] = ()
    """(piece, its first token in the answer) that the answer goes through, in order."""
    block: int = 0
    step: int = 0
    """Proposals made in this block."""
    index: int = 0
    """First token of the outstanding proposal, in the answer; its length for a continuation."""
    piece: Piece | None = None
    """What was sampled for it and waits for its log-probabilities."""
    seed: int = 0

    @property
    def length(self) -> int:
        return path_length(self.path) - self.start

    @property
    def proposal(self) -> np.ndarray:
        """float64[n]: log-probability of each answer token under the law it was sampled from."""
        return _logprobs(self.path[len(self.base) :])


@dataclass
class Power(Copied):
    """One allocation: a chain per base."""

    settings: PowerSampling.Settings
    how: Configuration
    names: tuple[int, str, int]
    """What the chains' draws are named by: the run's seed, the group, its stage."""
    chains: dict[int, Chain]

    def start(self) -> list[Want]:
        return [want for i in self.chains for want in self._extend(i)]

    def tell(self, outcome: Outcome) -> list[Want]:
        i = int(outcome.name.partition(".")[0])
        if isinstance(outcome, Piece):
            return self._sampled(i, outcome)
        if isinstance(outcome, Weighed):
            return self._weighed(i, outcome.logprobs)
        assert isinstance(outcome, Lost)
        return self._lost(i, outcome)

    @property
    def law(self) -> Sampling:
        """What is proposed from."""
        return changed(self.how.sampling, temperature=self.how.sampling.temperature / self.settings.alpha)

    def _name(self, i: int) -> str:
        return f"{i}.{self.chains[i].block}.{self.chains[i].step}"

    def _extend(self, i: int) -> list[Want]:
        """Continue to the next border."""
        chain = self.chains[i]
        borders = list(_borders(self.how.max_tokens, self.settings.blocks))
        self.chains[i] = replace(chain, step=0, index=chain.length)
        return [self._sample(i, chain.path, borders[chain.block] - chain.length)]

    def _sample(self, i: int, path: Path, tokens: int) -> Sample:
        chain = self.chains[i]
        parent = chain.pieces[-1][0] if chain.pieces else ""
        at = chain.start + chain.index
        return Sample(self._name(i), path, self.law, tokens, fork_of=parent, fork_at=at if parent else 0, retain=True)

    def _sampled(self, i: int, piece: Piece) -> list[Want]:
        chain = self.chains[i] = replace(self.chains[i], piece=piece)
        if not self.settings.steps:
            return self._weighed(i, np.full(path_length(piece.path), np.nan))
        return [Weigh(f"{self._name(i)}.weigh", piece.path, chain.start + chain.index, self.how.sampling)]

    def _weighed(self, i: int, logprobs: np.ndarray) -> list[Want]:
        chain = self.chains[i]
        piece, index = chain.piece, chain.index
        assert piece is not None
        target = logprobs[chain.start + index :].astype(np.float64)
        wants: list[Want] = []
        if chain.step == 0 or self._accepts(i, target):
            kept = tuple((name, at) for name, at in chain.pieces if at < index)
            gone = chain.pieces[len(kept) :]
            if kept and (over := (gone[0][1] if gone else chain.length) - index) > 0:
                wants.append(Spill(kept[-1][0], "replaced", over))  # the proposal leaves it in its middle
            wants += [Spill(name, "replaced") for name, _ in gone]
            self.chains[i] = replace(
                chain,
                path=piece.path,
                stop=piece.stop,
                target=np.concatenate([chain.target[:index], target]),
                pieces=(*kept, (piece.name, index)),
                piece=None,
                seed=piece.seed,
            )
        else:
            wants.append(Spill(piece.name, "rejected"))
            self.chains[i] = replace(chain, piece=None)
        return [*wants, *self._go_on(i)]

    def _accepts(self, i: int, target: np.ndarray) -> bool:
        """Whether the outstanding proposal takes the place of the tokens from its index on."""
        chain, alpha = self.chains[i], self.settings.alpha
        assert chain.piece is not None
        index, new = chain.index, _logprobs(chain.piece.path[len(chain.base) :])
        log = alpha * (target.sum() - chain.target[index:].sum()) + chain.proposal[index:].sum() - new[index:].sum()
        if self.settings.exact:
            log += math.log(chain.length / len(new))
        uniform = generator(self.names[0], "power", *self.names[1:], self._name(i), "accept").random()
        return bool(uniform < math.exp(min(0.0, log)))

    def _go_on(self, i: int) -> list[Want]:
        """The next proposal, the next block, or the leaf."""
        chain = self.chains[i]
        if chain.step < self.settings.steps:
            draw = generator(self.names[0], "power", *self.names[1:], f"{i}.{chain.block}.{chain.step + 1}", "index")
            index = int(draw.integers(chain.length))
            self.chains[i] = replace(chain, step=chain.step + 1, index=index)
            border = list(_borders(self.how.max_tokens, self.settings.blocks))[chain.block]
            return [self._sample(i, cut(chain.path, chain.start + index)[0], border - index)]
        if chain.stop is not StopReason.MAX_TOKENS or chain.length >= self.how.max_tokens:
            return [self._leaf(i)]
        self.chains[i] = replace(chain, block=chain.block + 1)
        return self._extend(i)

    def _lost(self, i: int, lost: Lost) -> list[Want]:
        """A proposal that will not come: the chain ends with what it has, if that is a whole answer."""
        chain = self.chains[i]
        wants: list[Want] = [] if chain.piece is None else [Spill(chain.piece.name, "unscored")]
        if chain.stop.finished and chain.pieces:
            return [*wants, self._leaf(i)]
        return [*wants, *[Spill(name, "unfinished") for name, _ in chain.pieces]]

    def _leaf(self, i: int) -> Leaf:
        chain = self.chains[i]
        pieces = tuple(name for name, _ in chain.pieces)
        trained = (
            (*chain.base, *self._as_target(chain)) if self.settings.steps else None
        )  # without proposals its law is its own
        return Leaf(str(i), chain.path, chain.stop, pieces, train_path=trained, seed=chain.seed)

    def _as_target(self, chain: Chain) -> Iterator[Node]:
        """The answer's nodes under the recipe's law, with its log-probabilities."""
        at = 0
        for node in chain.path[len(chain.base) :]:
            n = len(node.segment)
            logprobs = chain.target[at : at + n].astype(np.float32)
            yield replace(
                node, id=f"{node.id}~", segment=replace(node.segment, sampling=self.how.sampling, logprobs=logprobs, tracks={})
            )
            at += n


def _logprobs(nodes: Path) -> np.ndarray:
    """float64[n] of the sampled tokens."""
    found = [n.segment.logprobs for n in nodes if n.segment.kind is SegmentKind.ACTION and n.segment.logprobs is not None]
    return np.concatenate([np.asarray(part, np.float64) for part in found]) if found else np.empty(0)
