"""TreePO's sampling (arXiv:2508.17445): segment by segment, branching as far as the width allows, and regrowing from finished answers.

Invariants: leaves and live paths together never exceed the width; no live path is dropped; every pass of the fallback adds at least one
path, so there are at most as many as leaves. Not built: the stub that forces an answer on a path that ran out of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.generate.growth import Sample
from gfcr.generate.trees.plan import Grove, Plan, Shoot, values
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Path, StopReason

Decode = Callable[[np.ndarray], str]


class TreePOSettings(FrozenModel):
    k: int = Field(16, ge=1)
    """Leaves per prompt (official script: 16 paths)."""
    segment: int = Field(512, ge=1)
    """Tokens per step (official script: 512)."""
    depth: int = Field(14, ge=1)
    """Steps of one answer at most (official script: 14)."""
    first: tuple[int, int] = (2, 8)
    """The first step branches into that many, drawn at random between the two."""
    divide: int = Field(2, ge=1)
    """Branches a path may have at each later step."""
    budget: Literal["fixed", "fixed_avg", "softmax"] = "fixed_avg"
    """How what the width allows is given out among paths, each having one at least: `fixed`, `divide` each, the first ones first;
    `fixed_avg`, evenly, what does not divide by lot; `softmax`, by softmax of the mean log-probability of their tokens."""
    temperature: float = Field(1.0, gt=0)
    """Of both softmaxes, in nats. UNCONFIRMED."""
    prefer: Literal["likely", "unlikely"] = "likely"
    """Sign of both softmaxes. UNCONFIRMED."""
    fallback: Literal["none", "random", "min_logprob", "softmax"] = "random"
    """Where finished answers are cut to be grown anew when the width is not used up: before a random segment; before the token of the
    least log-probability; before a segment drawn by softmax of its mean log-probability."""
    repeat_chars: int = Field(32, ge=1)
    """A path ends that repeats itself: this many characters, ..."""
    repeat_times: int = Field(8, ge=0)
    """... this many times; 0 = not looked at."""

    @model_validator(mode="after")
    def _range(self) -> TreePOSettings:
        low, high = self.first
        if not 1 <= low <= high:
            raise ValueError(f"first = ({low}, {high}) is no range of branches; give (least, most), from 1 on")
        return self

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates. An answer that ends early frees its place, so the fallback may regrow up to k whole ones."""
        if self.fallback != "none":
            return self.k * max_tokens
        total, width, left = 0, self.first[1], max_tokens
        for _ in range(self.depth):
            step = min(self.segment, left)
            total, left, width = total + min(width, self.k) * step, left - step, min(width, self.k) * self.divide
        return total


@method(
    "treepo",
    Slot.TOPOLOGY,
    title="TreePO",
    arxiv="2508.17445",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    traits=("breaks: iid group", "shares prefixes", "grows in pieces"),
)
class TreePOTopology:
    """Segments, a branching budget, a width, and a fallback (TreePO, arXiv:2508.17445; official code)."""

    Settings = TreePOSettings

    def __init__(self, settings: TreePOSettings, build: Build) -> None:
        if settings.repeat_times and build.decode is None:
            raise ConfigError(
                "generate.topology 'treepo' looks for repeated text, and there is no tokenizer to read it",
                "set its repeat_times = 0",
            )
        self.settings, self.decode = settings, build.decode

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Grove:
        return _Growing(Plan.by_base(group, bases, how, view), self.settings, self.decode)


class _Growing(Grove):
    def __init__(self, plan: Plan, settings: TreePOSettings, decode: Decode | None) -> None:
        super().__init__(plan)
        self.settings, self.decode = settings, decode
        self.live: list[str] = []
        """Shoots asked for in the last round, by tree after tree."""
        self.steps: dict[str, int] = {}
        """Segments of the answer up to a shoot's end."""

    def sprout(self) -> Iterator[Sample]:
        rng = self.draws()
        came, self.live = [self.shoots[name] for name in self.live if name in self.shoots], []
        for tree, width in enumerate(self.plan.leaves):
            yield from self._tree(tree, width, [s for s in came if s.tree == tree], rng)

    def _tree(self, tree: int, width: int, came: list[Shoot], rng: np.random.Generator) -> Iterator[Sample]:
        s = self.settings
        if self.rounds == 1:
            low, high = s.first
            yield from self._ask(tree, None, None, min(width, int(rng.integers(low, high + 1))))
            return
        active = [shoot for shoot in came if not self._ended(shoot)]
        finished = [shoot for shoot in self.shoots.values() if shoot.tree == tree and shoot.name in self.done]
        if active:
            for shoot, branches in zip(active, self._budget(active, width - len(finished), rng)):
                yield from self._ask(tree, shoot, None, branches)
        elif finished and s.fallback != "none" and len(finished) < width and not self.lost:
            # what repeated itself or ran out of tokens comes first, as in the official code
            finished.sort(key=lambda shoot: self.done[shoot.name].finished)
            for shoot in finished[: width - len(finished)]:
                yield from self._ask(tree, shoot, self._back(shoot, rng), 1)

    def _ask(self, tree: int, before: Shoot | None, at: int | None, branches: int) -> Iterator[Sample]:
        start = self.start_of(tree)
        own = 0 if before is None else (before.end if at is None else at) - start
        for _ in range(branches):
            name = f"{self.rounds}.{len(self.live)}"
            self.live.append(name)
            done = -(-own // self.settings.segment) if before is None or at is not None else self.steps[before.name]
            self.steps[name] = 1 + done
            yield self.shoot(name, tree, before, at, self.settings.segment)

    def _ended(self, shoot: Shoot) -> bool:
        """Whether a path is a leaf now."""
        if shoot.stop is not StopReason.MAX_TOKENS:
            self.finish(shoot)
        elif self.room(shoot.tree, shoot.end) < 1 or self.steps[shoot.name] >= self.settings.depth:
            self.finish(shoot, StopReason.MAX_TOKENS)
        elif self._repeats(shoot):
            self.finish(shoot, StopReason.EARLY_EXIT)
        return shoot.name in self.done

    def _repeats(self, shoot: Shoot) -> bool:
        s = self.settings
        if not s.repeat_times or self.decode is None:
            return False
        text = self.decode(np.concatenate([node.segment.ids for node in self.own(shoot)]))
        seen = Counter(text[i : i + s.repeat_chars] for i in range(len(text) - s.repeat_chars + 1))
        return max(seen.values(), default=0) >= s.repeat_times

    def _budget(self, active: list[Shoot], room: int, rng: np.random.Generator) -> list[int]:
        """Branches of each live path, one at least."""
        n, s = len(active), self.settings
        extra = max(0, min(room, s.divide * n) - n)
        out = np.ones(n, np.int64)
        if s.budget == "fixed":
            for i in range(n):
                out[i] += (more := min(extra, s.divide - 1))
                extra -= more
        elif s.budget == "fixed_avg":
            out += extra // n
            out[rng.permutation(n)[: extra % n]] += 1
        else:
            shares = self._softmax([float(values(self.own(shoot)).mean()) for shoot in active])
            out += rng.multinomial(extra, shares)
        return out.tolist()

    def _back(self, shoot: Shoot, rng: np.random.Generator) -> int:
        """Flat offset at which a finished answer is cut to be grown anew."""
        start, s = self.start_of(shoot.tree), self.settings
        logprobs = values(self.own(shoot))
        if not len(logprobs):
            return start
        if s.fallback == "min_logprob":
            return start + int(logprobs.argmin())
        blocks = -(-len(logprobs) // s.segment)
        if s.fallback == "random":
            return start + int(rng.integers(blocks)) * s.segment
        means = [float(logprobs[b * s.segment : (b + 1) * s.segment].mean()) for b in range(blocks)]
        return start + int(rng.choice(blocks, p=self._softmax(means))) * s.segment

    def _softmax(self, means: Sequence[float]) -> np.ndarray:
        x = np.asarray(means) / self.settings.temperature * (1 if self.settings.prefer == "likely" else -1)
        e = np.exp(x - x.max())
        return np.asarray(e / e.sum())
