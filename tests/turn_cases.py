"""Environments for real runs of several turns: the register machine and the calculator, which break, hang and die where what was said tells
them to, so that a run repeated is a run that breaks at the same places; and which kill the whole run once where a test asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gfcr.context import Build
from gfcr.environments.calculator import Calculator
from gfcr.environments.contract import EnvironmentFault, Said, Step
from gfcr.environments.registers import Maker, Registers
from gfcr.filter.verdicts import scored
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Message, Part, PartKind, Task, ToolCall, Verdict


class _Killed:
    """Kills this process, as `kill -9` does, at the turn whose number stands in the file; the file is gone afterwards."""

    turns = 0

    @classmethod
    def turn(cls, file: str) -> None:
        if not file or not (path := Path(file)).exists():
            return
        cls.turns += 1
        if cls.turns == int(path.read_text()):
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _draw(task: Task, said: Said, turn: int, of: int) -> int:
    """0 to of - 1, by the task and what was said."""
    return zlib.crc32(f"{task.id} {turn} {said.text}".encode()) % of


@method("shaky", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Shaky(Registers):
    """One turn in about `every` breaks each way: a fault, an exception."""

    class Settings(Registers.Settings):
        every: int = 0
        """0 = never."""
        at: int = 0
        """Turn since `broke` was cleared that breaks, whatever is said; 0 = none."""
        kill: str = ""
        """File that says at which turn the run is killed."""

    name = "shaky"
    broke: ClassVar[Counter[str]] = Counter()
    """Faults by how they are told; and `turns`."""

    @classmethod
    def maker(cls, settings: Any, build: Build | None = None) -> Maker:
        Registers.maker(settings, build)
        return _Maker(cls, settings)

    def step(self, said: Said) -> Step:
        _Killed.turn(self.settings.kill)
        self.broke["turns"] += 1
        if self.broke["turns"] == self.settings.at:
            self._break(0)
        if self.settings.every and self._task is not None:
            self._break(_draw(self._task, said, self._turn, self.settings.every))
        return super().step(said)

    def _break(self, drawn: int) -> None:
        if drawn == 0:
            self.broke["environment_fault"] += 1
            raise EnvironmentFault("broke", "as the test wants it")
        if drawn == 1:
            self.broke["environment_raised"] += 1
            raise KeyError("as the test wants it")


@method("mortal", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Mortal(Shaky):
    """Besides, it hangs past its deadline, and the process that it talks to dies."""

    name, quick = "mortal", False

    def reset(self, task: Task, seed: int) -> Step:
        self._echo = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        return super().reset(task, seed)

    def _break(self, drawn: int) -> None:
        super()._break(drawn)
        if drawn == 2:
            self.broke["environment_time_out"] += 1
            time.sleep(1.5)
        if drawn == 3:
            self.broke["environment_fault"] += 1
            self._echo.kill()
            self._echo.wait()
        try:
            self._echo.stdin.write(b"still there?\n")
            if self._echo.stdout.readline() == b"still there?\n":
                return
        except OSError:
            pass
        raise EnvironmentFault("process_died", "the process that it talks to has ended")

    def close(self) -> None:
        self._echo.kill()
        self._echo.communicate()


class _Maker(Maker):
    def __init__(self, cls: type[Shaky], settings: Any) -> None:
        super().__init__(settings)
        self.cls = cls

    def __call__(self) -> Registers:
        return self.cls(self.settings)


@method(
    "sums", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS, traits=("tool calls",)
)
class Sums(Calculator):
    """The calculator as the lab's model can call it: a line like `c-15` is the call 1-5, `#` and more the final answer, which is right where the
    results before it add up to an even number."""

    class Settings(Calculator.Settings):
        every: int = 0
        kill: str = ""

    name = "sums"

    @classmethod
    def reader(cls, settings: Any) -> Callable[[str], Said]:
        return _said

    def step(self, said: Said) -> Step:
        s: Any = self._settings
        _Killed.turn(s.kill)
        if s.every and self._task is not None and _draw(self._task, said, self._turn, s.every) == 0:
            raise EnvironmentFault("broke", "as the test wants it")
        return super().step(said)

    def _message(self, name: str, text: str, call_id: str) -> Message:
        """In the lab's letters."""
        return Message("tool", (Part(PartKind.TEXT, text if text.lstrip("-").isdigit() else "/"),), name)

    def _judge(self, task: Task, answer: str) -> Verdict:
        total = sum(int(each["text"]) for each in self._log)
        return scored(self, float(total % 2 == 0), total % 2 == 0, f"the results add up to {total}")


def _said(text: str) -> Said:
    if text[:1] == "#":
        return Said(text)
    if len(text) == 4 and text[1] in "+-*" and text[2:].isdigit():
        return Said(text, (ToolCall("calculator", {"expression": f"{text[2]}{text[1]}{text[3]}"}),))
    return Said(text, invalid=f"no_line: {text[:12]!r} is no call")
