"""The lab's register machine, played line by line: a task of many turns for a model of 85 thousand parameters.

A turn is one trace line of four characters (`c-15`), the last one `#` and the final pair; the shipped checkpoint writes lines of exactly
four tokens, so a turn of at most four tokens (`#55` and the end token are four, too) is one line. What follows a wrong line is the
setting `answer`; everything shown is in the lab's alphabet, and nothing is shown after a right line, so that an episode without a mistake
is token by token the answer that the model would have given in one piece.

Invariants: pure and quick; the machine goes on from the true state only; the verdict is on the final pair against the task's reference,
as the `exact` verifier's.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.domains.programs.language import DOMAIN, PAIR, Program, parse_prompt, trace_lines
from gfcr.domains.programs.verify import expected_final, no_final
from gfcr.environments.contract import Fragment, Said, Step
from gfcr.errors import ConfigError, DataError
from gfcr.filter.verdicts import scored, unscorable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import ArtifactKind, Message, Part, PartKind, Task, Verdict, derive_id


@method(
    "registers",
    Slot.ENVIRONMENT,
    title="register machine, line by line",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "plain text turns", "turn rewards"),
)
class Registers:
    """Each turn is one line of the trace; a wrong one is answered, a right one goes on. For the lab's pools and model, with turns of at most
    four tokens."""

    class Settings(FrozenModel):
        answer: Literal["back", "mark", "correct", "silent"] = "back"
        """What follows a wrong line: `back`, the last right line (or `?` and the start values) is shown again and the line is to be tried
        again; `mark`, a `/`, and again; `correct`, the right line is shown and the next one is due; `silent`, nothing is shown and the
        next one is due. Success of the shipped checkpoint on D's held-out tasks at temperature 1, three tries: .40, .29, .72, .32."""
        tries: int = Field(3, ge=1, le=16)
        """Times one line may be tried; after that the episode is over, and wrong."""
        line_reward: float = 0.1
        """Reward of a turn with the right line, 0 with a wrong one."""
        outcome_reward: float = 1.0
        """Reward of the last turn with the right final pair, 0 with a wrong one."""
        invalid_reward: float = 0.0
        """Reward of a turn that is neither a line nor a final pair (RAGEN, arXiv:2504.20073: -0.1)."""

    name, version, deterministic, snapshots, quick = "registers", "1", True, True, True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        self._task: Task | None = None
        self._fragments: list[list[Any]] = []
        self._at = self._tried = self._turn = 0
        self._final: str | None = None
        self._over = False

    @classmethod
    def maker(cls, settings: Settings, build: Build | None = None) -> Maker:
        for task in build.tasks if build is not None else ():
            if task.domain != DOMAIN:
                raise ConfigError(
                    f"generate.environment 'registers' plays register programs, and task {task.id} is of the domain {task.domain!r}",
                    "set tasks.source = 'programs', or name another environment",
                )
        return Maker(settings)

    def tools(self, task: Task) -> tuple[str, ...]:
        return ()

    def reset(self, task: Task, seed: int) -> Step:
        """The seed changes nothing. Raises DataError for a prompt that is no register program."""
        self._begin(task)
        self._fragments, self._at, self._tried, self._turn, self._final, self._over = [], 0, 0, 0, None, False
        return Step(state=self._key())

    def _begin(self, task: Task) -> None:
        self._task, self._program = task, _program(task)
        self._lines = trace_lines(self._program)

    def step(self, said: Said) -> Step:
        if self._over:
            return Step(terminated=True, state=self._key(), invalid="over: the episode has ended")
        text, s = said.text, self.settings
        turn, self._turn = self._turn, self._turn + 1
        if text[:1] == "#" and PAIR.fullmatch(text, 1):
            assert self._task is not None
            self._final, self._over = text[1:], True
            return Step(
                reward=s.outcome_reward * (self._final == expected_final(self._task)), terminated=True, state=self._key()
            )
        due = self._lines[self._at] if self._at < len(self._lines) else None
        if text == due:
            self._at, self._tried = self._at + 1, 0
            return Step(reward=s.line_reward, state=self._key())
        formed = len(text) == 4 and text[0].isalpha() and text[1] in "+-*s" and PAIR.fullmatch(text, 2) is not None
        invalid = "" if formed else f"no_line: {text[:12]!r} is neither a trace line nor `#` and a pair"
        reward = 0.0 if formed else s.invalid_reward
        self._tried += 1
        if formed and due is not None:
            self._fragments.append([ArtifactKind.FAILURE.value, text, turn, due])
        if due is None or self._tried >= s.tries or (not formed and s.answer == "silent"):
            self._over = True
            return Step(reward=reward, terminated=True, state=self._key(), invalid=invalid)
        shown = self._answered(due)
        return Step((_message(shown),) if shown else (), reward, state=self._key(), invalid=invalid)

    def _answered(self, due: str) -> str:
        """What follows a wrong line; moves on where the next one is due."""
        how = self.settings.answer
        if how == "mark":
            return "/"
        if how == "back":
            return self._lines[self._at - 1] if self._at else f"?{self._program.x}{self._program.y}"
        self._at, self._tried = self._at + 1, 0
        return due if how == "correct" else ""

    def verify(self) -> Verdict:
        if self._task is None:
            return unscorable(self, "no episode has begun")
        wanted = expected_final(self._task)
        if wanted is None:
            return unscorable(self, no_final(self._task))
        if self._final is None:
            return scored(self, 0.0, False, f"no final pair after {self._at} of {len(self._lines)} right lines")
        right = self._final == wanted
        return scored(self, float(right), right, f"final {self._final!r}, the reference is {wanted!r}", self._final)

    def fragments(self) -> list[Fragment]:
        """Wrong lines, with the right one."""
        return [Fragment(ArtifactKind(kind), text, turn, {"right": right}) for kind, text, turn, right in self._fragments]

    def snapshot(self) -> bytes:
        return json.dumps([self._at, self._tried, self._turn, self._final, self._over, self._fragments]).encode()

    def restore(self, task: Task, snapshot: bytes) -> None:
        self._begin(task)
        self._at, self._tried, self._turn, self._final, self._over, self._fragments = json.loads(snapshot)

    def close(self) -> None:
        """Nothing to let go of."""

    def _key(self) -> str:
        task = self._task
        assert task is not None
        return derive_id("registers", task.id, self._at, self._tried, self._final, int(self._over))


class Maker:
    """Makes them."""

    def __init__(self, settings: Registers.Settings) -> None:
        self.settings = settings

    def __call__(self) -> Registers:
        return Registers(self.settings)


def _program(task: Task) -> Program:
    if not isinstance(task.prompt, str):
        raise DataError(f"task {task.id} has chat messages as prompt", "give register programs as text, like `c-d*?65`")
    return parse_prompt(task.prompt)


def _message(text: str) -> Message:
    return Message("environment", (Part(PartKind.TEXT, text),))
