"""A second attempt after a verdict: attempt, feedback, (reflection,) attempt.

Invariants: a first attempt that is right, or that nobody could judge, has no second; the second is judged by its own words alone; second
attempts are GUIDED (they were told that the first was wrong); feedback holds the reference only where `reveal` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from gfcr.context import Build, Configuration, View, Words
from gfcr.errors import ConfigError, DataError
from gfcr.filter.steps import STEP_KINDS
from gfcr.filter.steps import WRONG as BELOW
from gfcr.generate.dialogue import Dialogue
from gfcr.generate.growth import Copied, Leaf, Look, Lost, Note, Outcome, Piece, Sample, Seen, Want
from gfcr.generate.guidance.leaks import answers, question_of, redacted
from gfcr.generate.guidance.second import AUTHOR, Talk, alone, moved, silent, talk_of
from gfcr.generate.shown import said_by
from gfcr.generate.words import filled, told, words_of, writable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Node, Path, Role, Segment, SegmentKind, Signals, Task

SECOND = "second"
"""Cohort of second attempts."""


class ReflectSettings(FrozenModel):
    k: int = Field(8, ge=1)
    """First attempts."""
    retries: int = Field(1, ge=1)
    """Second attempts after each wrong one (G reflections on one failure)."""
    reflection: int = Field(0, ge=0)
    """Longest reflection before a second attempt, in tokens; 0 = none is asked for."""
    feedback: Literal["verdict", "evidence"] = "verdict"
    """`{feedback}`: that it was wrong; or the verifier's evidence, with the reference hidden in it."""
    wrong: str = "That is not right."
    """`{feedback}` of a verdict, and of evidence that says nothing."""
    ask: str = "{feedback} Reflect in a few sentences on what went wrong; do not solve it yet."
    """Said before a reflection. `{prompt}` is the question."""
    again: str = "{feedback} Try again."
    """Said before a second attempt that no reflection precedes. `{steps}` is what the attempt had right: its text up to the first step
    that filter.steps calls wrong."""
    retry: str = "Now try again."
    """Said after a reflection."""
    keep_attempt: bool = True
    """Whether the second attempt sees the first. False: it sees the question and what was said, as one beginning (with `{steps}`: it goes
    on from its own last right step)."""
    reveal: bool = False
    """Allow `{reference}` in these texts: it then tells the answer."""
    train: Literal["reflection", "second", "both"] = "second"
    """Loss of a second attempt's rollout: on the reflection alone (Reflect, Retry, Reward), on the second attempt, or on both."""
    first: bool = True
    """First attempts are trained too; false = they are in neither loss nor baseline, as in Reflect, Retry, Reward."""
    context: Literal["dialogue", "plain"] = "dialogue"
    """The context second attempts are trained under: what was said before, or the question alone (log-probabilities recomputed there)."""
    cohort: Literal["joint", "own", "attempt"] = "joint"
    """Second attempts are normalised with the first ones, among themselves, or among those after the same attempt (Reflect, Retry,
    Reward)."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        where = "generate.topology 'reflect'"
        if self.train != "second" and not self.reflection:
            raise ConfigError(
                f"{where}: train = {self.train!r} without a reflection", "set reflection to its longest length in tokens"
            )
        if self.context == "plain" and self.train != "second":
            raise ConfigError(
                f"{where}: context = 'plain' with train = {self.train!r}: under the question alone there is no reflection",
                "set train = 'second', or context = 'dialogue'",
            )
        if not self.keep_attempt and (self.reflection or self.context == "plain"):
            raise ConfigError(
                f"{where}: keep_attempt = false leaves nothing to reflect on, and no other context to train under",
                "take reflection and context out, or set keep_attempt = true",
            )
        if not self.reveal and (telling := [t for t in (self.ask, self.again, self.retry, self.wrong) if "{reference}" in t]):
            raise ConfigError(f"{where}: {telling[0]!r} tells the reference", "set reveal = true, or take {reference} out")
        return self

    def traits(self) -> frozenset[str]:
        return frozenset({"needs: step scores"} if "{steps}" in self.again + self.ask else ())

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates: every first attempt wrong."""
        return self.k * (max_tokens + self.retries * (self.reflection + max_tokens))


@method(
    "reflect",
    Slot.TOPOLOGY,
    title="Reflect, Retry, Reward",
    arxiv="2505.24726",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=("breaks: iid group", "grows in pieces", "guides"),
)
class Reflect:
    """K attempts; after a wrong one a second, told so, with a reflection before it where asked for (Reflect, Retry, Reward,
    arXiv:2505.24726: loss on the reflection alone, groups of reflections on one failure)."""

    Settings = ReflectSettings

    def __init__(self, settings: ReflectSettings, build: Build) -> None:
        self.settings, self.build = settings, build
        said = ("ask", "retry") if settings.reflection else ("again",)
        if settings.feedback == "verdict" and any("{feedback}" in getattr(settings, name) for name in said):
            said = (*said, "wrong")
        writable(build, {f"generate.topology.{name}": getattr(settings, name) for name in said})

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Reflecting:
        who = "generate.topology 'reflect'"
        talk, words = talk_of(self.build, who), words_of(self.build, who)
        return Reflecting(_Plan(self.settings, group.task, tuple(bases), how, talk, words))


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    settings: ReflectSettings
    task: Task
    bases: tuple[Path, ...]
    how: Configuration
    talk: Talk
    words: Words

    def said(self, template: str, signals: Signals, path: Path = ()) -> str:
        """A text of the settings with its values."""
        s, verdict = self.settings, signals.verdict
        evidence = verdict.evidence if verdict is not None and s.feedback == "evidence" else ""
        if not s.reveal:
            evidence = redacted(evidence, self.task)
        values = {"prompt": question_of(self.task)} | ({"reference": ", ".join(answers(self.task))} if s.reveal else {})
        values["steps"] = self.words.text(_right_part(path, signals))
        return filled(template, feedback=evidence or filled(s.wrong, **values), **values)

    def anew(self, base: Path, text: str, name: str) -> Path:
        """The question and what was said, without the attempt: a text goes on, a chat's question says more."""
        if not text:
            return base
        if isinstance(self.task.prompt, str) and base[0].segment.template is None:
            node = Node(name, base[-1].id, Segment(SegmentKind.OBSERVATION, self.words.after(text), author=AUTHOR))
            return (*base, node)
        prompt = self.words.prompt(told(self.task, "{prompt}\n\n{said}", said=text))
        return (Node(name, None, Segment(SegmentKind.GUIDANCE, prompt.ids, author=AUTHOR, template=prompt.template)),)


def _right_part(path: Path, signals: Signals) -> np.ndarray:
    """int32: the policy's own tokens before the first step that is wrong, or up to the last one; none without steps."""
    steps = [s for s in signals.steps if s.kind in STEP_KINDS and s.value is not None]
    right = max((s.end for s in steps), default=0)
    end = min((s.start for s in steps if s.value is not None and s.value < BELOW), default=right)
    own, at = [np.empty(0, np.int32)], 0
    for node in path:
        if node.segment.kind is SegmentKind.ACTION:
            own.append(node.segment.ids[: max(0, end - at)])
        at += len(node.segment)
    return np.concatenate(own)


@dataclass(slots=True, eq=False)
class _Second:
    """A second attempt while it grows."""

    first: str
    asked: Path
    """What it goes on from."""
    talk: Dialogue | None
    """None where it does not see the first."""
    pieces: tuple[str, ...]
    reflected: Path = ()
    attempt: Piece | None = None
    judged: Path = ()


@dataclass
class Reflecting(Copied):
    """The growth. Names: `3` an attempt, `3.r0` a reflection on it, `3.s0` the second attempt after that."""

    plan: _Plan
    firsts: dict[str, Piece] = field(default_factory=dict)
    seconds: dict[str, _Second] = field(default_factory=dict)

    def copy(self) -> Reflecting:
        return Reflecting(self.plan, dict(self.firsts), {name: replace(second) for name, second in self.seconds.items()})

    def start(self) -> Sequence[Want]:
        return [self._sample(str(i), base) for i, base in enumerate(self.plan.bases)]

    def _sample(self, name: str, path: Path, longest: int | None = None) -> Sample:
        how = self.plan.how
        return Sample(name, path, how.sampling, how.max_tokens if longest is None else longest, how.later)

    def tell(self, outcome: Outcome) -> Sequence[Want]:
        _, dot, what = outcome.name.partition(".")
        if isinstance(outcome, Piece):
            return self._first(outcome) if not dot else self._reflected(outcome) if what[0] == "r" else self._second(outcome)
        if isinstance(outcome, Seen):
            return list(self._seen(outcome.name, outcome.signals))
        if isinstance(outcome, Lost) and (outcome.name in self.firsts or self._attempted(outcome.name)):
            return list(self._seen(outcome.name, Signals()))  # nobody judged it: unscorable, and no second attempt
        return []

    def _attempted(self, name: str) -> bool:
        return name in self.seconds and self.seconds[name].attempt is not None

    def _first(self, piece: Piece) -> list[Want]:
        self.firsts[piece.name] = piece
        return [Look(piece.name, piece.path, piece.stop)]

    def _seen(self, name: str, signals: Signals) -> Iterable[Want]:
        if name in self.seconds:
            yield self._second_leaf(name, signals)
            return
        piece, s = self.firsts[name], self.plan.settings
        yield Leaf(name, piece.path, piece.stop, (name,), seed=piece.seed, judged=signals, in_baseline=s.first, in_loss=s.first)
        if signals.correct is not False:
            return
        told_name = f"{piece.path[-1].id}.told"
        try:
            asked, talk = self._asked(name, signals, told_name)
        except DataError as error:
            if s.feedback != "evidence":
                raise  # the settings' own words
            yield Note("leave_out", f"unreadable: no second attempt after {name}: {error.what}")
            return
        for j in range(s.retries):
            self.seconds[f"{name}.s{j}"] = _Second(name, asked, talk, (name,) if s.keep_attempt else ())
            yield self._sample(f"{name}.r{j}", asked, s.reflection) if s.reflection else self._sample(f"{name}.s{j}", asked)

    def _asked(self, name: str, signals: Signals, told_name: str) -> tuple[Path, Dialogue | None]:
        """What a second attempt goes on from. Raises DataError for words that the tokenizer cannot write."""
        piece, s, base = self.firsts[name], self.plan.settings, self.plan.bases[int(name)]
        text = self.plan.said(s.ask if s.reflection else s.again, signals, piece.path)
        if not s.keep_attempt:
            return self.plan.anew(base, text, told_name), None
        begun = self.plan.talk(self.plan.task, base).grown(piece.path, piece.stop)
        talk = begun.heard([said_by("user", text)], AUTHOR, told_name)
        return talk.path, talk

    def _reflected(self, piece: Piece) -> list[Want]:
        name = piece.name.replace(".r", ".s")
        second, s = self.seconds[name], self.plan.settings
        assert second.talk is not None
        talk = second.talk.grown(piece.path, piece.stop)
        second.reflected, second.pieces = talk.path[len(second.asked) :], (*second.pieces, piece.name)
        said = said_by("user", self.plan.said(s.retry, Signals()))
        second.talk = talk.heard([said], AUTHOR, f"{talk.path[-1].id}.told")
        second.asked = second.talk.path
        return [self._sample(name, second.asked)]

    def _second(self, piece: Piece) -> list[Want]:
        second = self.seconds[piece.name]
        second.attempt, second.pieces = piece, (*second.pieces, piece.name)
        second.judged = alone(self.plan.bases[int(second.first)], piece.path[len(second.asked) :])
        return [Look(piece.name, second.judged, piece.stop)]

    def _second_leaf(self, name: str, signals: Signals) -> Leaf:
        second, s = self.seconds[name], self.plan.settings
        piece = second.attempt
        assert piece is not None
        base = self.plan.bases[int(second.first)]
        own = piece.path[len(second.asked) :]
        loud = {n.id for n in (second.reflected if s.train != "second" else ())} | {
            n.id for n in (own if s.train != "reflection" else ())
        }
        path = tuple(node if node.id in loud else silent(node) for node in piece.path)
        cohort = {"joint": "", "own": SECOND, "attempt": f"{SECOND} {second.first}"}[s.cohort]
        return Leaf(
            name,
            path,
            piece.stop,
            second.pieces,
            train_path=(*base, *own) if s.context == "plain" else None,
            seed=piece.seed,
            judged=moved(signals, second.judged, path),
            role=Role.GUIDED,
            cohort=cohort,
        )
