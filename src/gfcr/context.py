"""What methods are built with and what they see of a round. Invariant: methods read these and never write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from gfcr.types import Artifact, Path, Role, Sampling, Segment, Task


class Difficulty(Protocol):
    """Beta posteriors of tasks' success probabilities (control/posterior.py)."""

    def beta(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(a, b), float64[n] each: parameters of each task's Beta posterior."""


class Memory(Protocol):
    """Replay as it stood at the round's start (replay/memory.py)."""

    def of_task(self, task_id: str) -> Sequence[Artifact]:
        """Artifacts of a task, oldest first."""

    def tasks(self) -> Sequence[str]:
        """Ids of the tasks that have artifacts, in a fixed order."""


class Words(Protocol):
    """Texts as the model of a recipe reads them (generate/words.py). Every method raises DataError for a text it cannot write."""

    def prompt(self, task: Task) -> Segment:
        """A task's prompt, not kept: for tasks made up for one rollout."""

    def after(self, text: str) -> np.ndarray:
        """int32[n]: a text as it goes on after other tokens; its spellings of control tokens are plain characters."""

    def text(self, ids: np.ndarray) -> str:
        """Text of ids, control tokens left out."""

    def end(self, task: Task) -> int | None:
        """The token that ends an answer to this task; None where there is none."""


def _never(reason: str, attempt: int) -> bool:
    return False


@dataclass(frozen=True)
class Build:
    """Facts of the recipe that methods may need when they are built."""

    seed: int
    tasks: Sequence[Task]
    groups: int
    """Groups a round plans."""
    k: int
    """Rollouts a group plans (K)."""
    max_tokens: int
    """Longest answer, in tokens."""
    privileged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Named sets of task ids that only oracles may use; empty when the source has none."""
    decode: Callable[[np.ndarray], str] | None = None
    """Token ids -> text; None without a tokenizer."""
    dialogue: Callable[[Task, Path], Any] | None = None
    """(task, prompt and guidance) -> its turns, begun (generate/dialogue.py); None without a tokenizer."""
    read: Callable[[str], Any] | None = None
    """A turn's text -> what the policy wants done (environments/contract.py, Said), as the environment reads it; None = the text."""
    max_context: int | None = None
    """Longest prompt plus answer the engine takes, in tokens; None = not known."""
    again: Callable[[str, int], bool] = _never
    """(reason, attempt from 0) -> whether what failed is tried again (control.failures)."""
    words: Words | None = None
    """Texts as tokens; None without a tokenizer (a check before the model is there): methods ask for it when they need it."""
    lacks: Callable[[str], bool] | None = None
    """Whether the model's tokenizer cannot write a text, where a check has no `words` yet (generate/alphabet.py); None = not known."""
    heldout: Sequence[Task] = ()
    """Tasks that are measured on; nothing of them may reach the policy."""
    drift: Callable[[int, Any], str] | None = None
    """(index of a rollout, its turns) -> how they compare with a full rendering, for `Rollout.meta["drift"]`; empty where nobody asked."""


@dataclass(frozen=True)
class View:
    """What a slot sees of the current round."""

    round: int
    version: int
    """Weights in use."""
    seed: int
    difficulty: Difficulty
    memory: Memory
    progress: float = 0.0
    """Share of the run that is over before this round, 0..1: of its budget or of its steps, whichever is further; 0 where nothing
    bounds it."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One rollout a topology plans."""

    path: Path
    sampling: Sampling
    max_tokens: int
    later: tuple[tuple[int, Sampling], ...] = ()
    """(new tokens so far, law from there on), ascending; empty = one law to the end."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a group's rollouts are sampled (kappa in the survey)."""

    sampling: Sampling
    max_tokens: int
    """Longest answer, in tokens."""
    later: tuple[tuple[int, Sampling], ...] = ()
    """(own tokens of the answer so far, law from there on), ascending; empty = one law to the end."""
    turns: tuple[tuple[int, Configuration], ...] = ()
    """(turn from 0, how turns from there on are sampled), ascending; read by topologies that take turns, through `turn` and `turn_at`."""

    def turn(self, number: int) -> Configuration:
        """How turn `number` (from 0) is sampled."""
        how = replace(self, turns=()) if self.turns else self
        for start, following in self.turns:
            how = following if start <= number else how
        return how

    def turn_at(self, number: int, tokens: int) -> tuple[Sampling, tuple[tuple[int, Sampling], ...]]:
        """The laws of turn `number`, as `at`, before which the rollout has `tokens` of its own: what is laid out for a turn counts the
        turn's own tokens, what is laid out for the rollout counts all of them."""
        begun = any(start <= number for start, _ in self.turns)
        return self.turn(number).at(0 if begun else tokens)

    @property
    def laws(self) -> tuple[Sampling, ...]:
        """Every law its tokens may be drawn from."""
        return (self.sampling, *[law for _, law in self.later], *[law for _, how in self.turns for law in how.laws])

    def at(self, tokens: int) -> tuple[Sampling, tuple[tuple[int, Sampling], ...]]:
        """The law of an answer that has `tokens` already, and those to come, counted from there."""
        law = self.sampling
        if not self.later:
            return law, ()
        for start, following in self.later:
            law = following if start <= tokens else law
        return law, tuple((start - tokens, following) for start, following in self.later if start > tokens)


@dataclass(frozen=True, slots=True)
class Seed:
    """What conditions a rollout's generation besides the prompt."""

    segments: tuple[Segment, ...]
    """Put after the prompt: GUIDANCE, FORCED or replayed ACTION tokens."""
    reason: str
    train_without: bool = False
    """Train on the context without them."""
    source: str | None = None
    """Artifact id; None when not from replay."""
    role: Role = Role.GUIDED
    """Role of the rollouts that have it; FRESH where it tells nothing about the task (a mode token)."""
    instead: bool = False
    """The segments stand in place of the prompt, which they hold (an example before the question), not after it."""
    keep_ratio: bool = False
    """With `train_without`: the ratio's denominator stays the law that sampled, under guidance (Guide-GRPO, arXiv:2506.13923); false: it
    is recomputed under the context without it, so that the ratio starts at 1."""
    max_tokens: int | None = None
    """Longest answer of these rollouts, in tokens, where it is shorter than the configuration's; None = as configured."""
