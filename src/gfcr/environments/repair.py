"""Code repair: write a program, have it run against the tests that may be seen, read what went wrong, and repair it.

Invariants: programs run in the code verifier's sandboxes; what is shown comes from the public tests alone; the verdict is on the last
program against all tests, by the verifier `code`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from gfcr.context import Build
from gfcr.environments.contract import EnvironmentFault, Fragment, Said, Step
from gfcr.environments.tool import shown
from gfcr.errors import ConfigError, DataError, GfcrError
from gfcr.filter.verdicts import scored, unscorable
from gfcr.filter.verifiers.code.reference import BadTests
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import ArtifactKind, Message, Part, PartKind, StopReason, Task, Verdict, derive_id


@method(
    "repair",
    Slot.ENVIRONMENT,
    title="code repair with feedback from tests",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "plain text turns", "executes code"),
)
class Repair:
    """Each turn is a program; what it does on the public tests is told (kind of error, line, first failing case) until they pass. The
    verdict is on hidden tests, too."""

    class Settings(FrozenModel):
        attempts: int = Field(4, ge=1, le=100)
        """Programs that may be written; the last one ends the episode, truncated."""
        output_chars: int = Field(2000, ge=40)
        """Longest message, in characters."""
        ask: str = "Correct the program and answer with the whole of it."
        """Put after what the tests say."""
        code: Code.Settings = Code.Settings()
        """How programs are run and judged: the settings of the verifier `code`. `hold_back` hides cases of tests without hidden ones;
        `feedback` says how much is told (of hidden cases nothing, at any level)."""

    name, version, snapshots, quick = "repair", "1", True, False
    deterministic = False  # programs may read the clock

    def __init__(self, settings: Settings, code: Code) -> None:
        self.settings, self._code = settings, code
        self._task: Task | None = None
        self._tried: list[dict[str, Any]] = []
        self._over = False

    @classmethod
    def maker(cls, settings: Settings, build: Build | None = None) -> Maker:
        code = Code(settings.code, build)  # type: ignore[arg-type]
        tasks = build.tasks if build is not None else ()
        if tasks and not any(_public(code, task) for task in tasks):
            raise ConfigError(
                "generate.environment 'repair': no task has tests that may be seen",
                "give tests = {public, hidden}, or hide a share of the cases: generate.environment.code = { hold_back = 0.5 }",
            )
        return Maker(settings, code)

    def tools(self, task: Task) -> tuple[str, ...]:
        return ()

    def reset(self, task: Task, seed: int) -> Step:
        """Raises DataError for a task whose tests cannot be used or are all hidden."""
        if not _public(self._code, task):
            raise DataError(f"task {task.id} has no tests that may be seen", "see docs/verifiers/code.md for tests")
        self._task, self._tried, self._over = task, [], False
        return Step(state=self._key())

    def step(self, said: Said) -> Step:
        if self._over or self._task is None:
            return Step(terminated=True, invalid="over: the episode has ended")
        try:
            right, words, fault = self._code.on_public(self._task, said.text)
        except (BadTests, GfcrError) as error:
            raise EnvironmentFault("tests", str(error).partition("\n")[0]) from None
        turn = len(self._tried)
        self._tried.append(
            {"text": said.text, "right": right, "words": shown(words, self.settings.output_chars), "fault": fault, "turn": turn}
        )
        last = not right and len(self._tried) >= self.settings.attempts
        self._over = right or last
        text = f"{self._tried[-1]['words']}\n{self.settings.ask}"
        return Step(
            messages=() if self._over else (Message("user", (Part(PartKind.TEXT, text),)),),
            terminated=right,
            truncated=last,
            state=self._key(),
            info={"public_right": right, "fault": fault},
        )

    def verify(self) -> Verdict:
        if self._task is None:
            return unscorable(self, "no episode has begun")
        if not self._tried:
            return scored(self, 0.0, False, "no program was written")
        found = self._code.judge(self._task, self._tried[-1]["text"], StopReason.EOS)
        return Verdict(
            self.name, self.version, found.status, found.score, found.correct, found.evidence, found.seconds, found.answer
        )

    def fragments(self) -> Sequence[Fragment]:
        """Each program: a failure with what was said of it, or, where it passes the public tests after another did not, a patch."""
        return [
            Fragment(
                ArtifactKind.PATCH
                if each["right"] and n
                else ArtifactKind.TRAJECTORY
                if each["right"]
                else ArtifactKind.FAILURE,
                each["text"],
                each["turn"],
                {"said": each["words"], "fault": each["fault"]},
            )
            for n, each in enumerate(self._tried)
        ]

    def snapshot(self) -> bytes:
        return json.dumps([self._tried, self._over], sort_keys=True).encode()

    def restore(self, task: Task, snapshot: bytes) -> None:
        self._task = task
        self._tried, self._over = json.loads(snapshot)

    def close(self) -> None:
        """The sandboxes of a turn end with the turn."""
        self._over = True

    def _key(self) -> str:
        """Of the last program, and how many may still follow."""
        assert self._task is not None
        last = self._tried[-1]["text"].encode("utf-8", "surrogatepass") if self._tried else None
        return derive_id("repair", self._task.id, last, len(self._tried), int(self._over))


def _public(code: Code, task: Task) -> bool:
    try:
        return bool(code.public(task).sets)
    except BadTests:
        return False


class Maker:
    """Makes environments that share a judge."""

    def __init__(self, settings: Repair.Settings, code: Code) -> None:
        self.settings, self._code = settings, code

    def __call__(self) -> Repair:
        return Repair(self.settings, self._code)

    def close(self) -> None:
        self._code.close()
