"""Python as a tool: cells that are executed one after the other in a sandbox.

Invariants: code runs in the sandbox or not at all; what a cell defines, later cells of the episode find; an interpreter that dies (time,
memory, output, its own doing) is followed by an empty one, and the policy is told; a snapshot is the cells, and going on from it executes
them again: what they give must be what they gave, or it is the environment's fault. At most `live` interpreters are kept; others are
brought back in the same way.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from pydantic import Field

from gfcr.context import Build
from gfcr.domains.answers import Extract
from gfcr.environments.calculator import no_answer, owned
from gfcr.environments.calls import Format
from gfcr.environments.contract import EnvironmentFault, Said, Step
from gfcr.environments.interpreter import Interpreter, Outcome
from gfcr.environments.tool import Result, Tool, ToolEnvironment, ToolSettings
from gfcr.errors import GfcrError
from gfcr.filter.verifiers.answer import Answer
from gfcr.registry import Faithfulness, Slot, method
from gfcr.sandbox.box import works
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.sandbox.stock import close_all
from gfcr.types import StopReason, Task, Verdict, derive_id

_GONE = "The interpreter was ended and an empty one takes its place: what was defined before is gone."


@method(
    "python",
    Slot.ENVIRONMENT,
    title="Python in a sandbox",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "tool calls", "executes code"),
)
class Python(ToolEnvironment):
    """The tool `python(code)` executes a cell and gives what it printed and its last expression; definitions stay. A turn without a call is
    the final answer, compared with the task's reference."""

    class Settings(ToolSettings):
        format: Format = "hermes"
        """How calls are written, where they do not come read already; `python`: a fenced block is a call."""
        sandbox: Sandbox = Sandbox(warm=1)
        """Where cells run. `warm`: sandboxes started in advance; 1 or more, since a sandbox ends with the thread that started it."""
        limits: Limits = Limits()
        """What an interpreter may use: `seconds` a cell, `total_seconds` all of its cells."""
        live: int = Field(32, ge=1, le=4096)
        """Interpreters kept running; further ones are ended and brought back by executing their cells again."""
        extract: Extract = Extract.LAST_NUMBER
        """Where the final answer stands in the last turn (as in the verifier `answer`)."""

    name, version, quick = "python", "1", False
    deterministic = False  # code may read the clock
    tool = Tool(
        "python",
        "code",
        "Executes Python code. Variables and functions stay defined between calls. Returns what is printed and the last expression's value.",
        "Python code",
    )

    def __init__(self, settings: Settings, live: Live, verifier: Answer) -> None:
        super().__init__(settings)
        self.settings, self._live, self._verifier = settings, live, verifier
        self._cells: list[list[str]] = []
        self._interpreter: Interpreter | None = None

    @classmethod
    def maker(cls, settings: Settings, build: Build | None = None) -> Maker:
        if settings.sandbox.kind == "bwrap":
            works(settings.sandbox)
        if settings.sandbox.warm < 1:
            settings = settings.model_copy(update={"sandbox": settings.sandbox.model_copy(update={"warm": 1})})
        return Maker(settings)

    @classmethod
    def unjudged(cls, settings: Settings, task: Task) -> str:
        """As the calculator's."""
        return no_answer(task, settings.extract)

    def _begin(self, task: Task, seed: int) -> None:
        self._end()
        self._cells = []

    def step(self, said: Said) -> Step:
        with self._live.using(self):
            return super().step(said)

    def _do(self, argument: str) -> Result:
        try:
            outcome = self._started().run(len(self._cells), argument)
        except GfcrError as error:
            self._end()
            raise EnvironmentFault("sandbox", error.what) from None
        if outcome.dead:
            self._end()
            self._cells = []
            return Result(f"Error: {outcome.words}\n{_GONE}", outcome.error)
        self._cells.append([argument, _digest(outcome)])
        parts = [outcome.text.rstrip("\n"), outcome.words and f"Error: {outcome.words}"]
        return Result("\n".join(part for part in parts if part), outcome.error)

    def _started(self) -> Interpreter:
        """The interpreter, brought to where the episode is. Raises SandboxError, EnvironmentFault."""
        if self._interpreter is None:
            self._interpreter = Interpreter(self.settings.sandbox, self.settings.limits, self._seed)
            for number, (code, digest) in enumerate(self._cells):
                if _digest(self._interpreter.run(number, code)) != digest:
                    self._end()
                    raise EnvironmentFault(
                        "not_repeatable", f"cell {number + 1} gave something else when it was executed again"
                    )
        return self._interpreter

    def _end(self) -> None:
        interpreter, self._interpreter = self._interpreter, None
        if interpreter is not None:
            interpreter.close()

    def _judge(self, task: Task, answer: str) -> Verdict:
        return owned(self, self._verifier.judge(task, answer, StopReason.EOS))

    def _dump(self) -> Any:
        return self._cells

    def _load(self, state: Any) -> None:
        self._cells = state

    def _key(self) -> str:
        return self._key_of([f"{n} {code}" for n, (code, _) in enumerate(self._cells)])

    def close(self) -> None:
        super().close()
        self._live.forget(self)
        self._end()


def _digest(outcome: Outcome) -> str:
    return derive_id(
        "cell", outcome.text.encode("utf-8", "surrogatepass"), outcome.error, outcome.words.encode("utf-8", "surrogatepass")
    )


class Live:
    """Which environments hold an interpreter, the ones longest unused first; keeps their number down."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Python] = OrderedDict()
        self._busy: set[int] = set()

    def using(self, env: Python) -> _Using:
        return _Using(self, env)

    def begin(self, env: Python) -> None:
        with self._lock:
            self._busy.add(id(env))
            self._known[id(env)] = env
            self._known.move_to_end(id(env))
            idle = [key for key in self._known if key not in self._busy]
            over = [self._known.pop(key) for key in idle[: max(0, len(self._known) - self._most)]]
            for other in over:
                other._end()

    def done(self, env: Python) -> None:
        with self._lock:
            self._busy.discard(id(env))

    def forget(self, env: Python) -> None:
        with self._lock:
            self._known.pop(id(env), None)


class _Using:
    def __init__(self, live: Live, env: Python) -> None:
        self._live, self._env = live, env

    def __enter__(self) -> None:
        self._live.begin(self._env)

    def __exit__(self, *_: object) -> None:
        self._live.done(self._env)


class Maker:
    """Makes environments that share their count of interpreters."""

    def __init__(self, settings: Python.Settings) -> None:
        self.settings, self._live = settings, Live(settings.live)
        self._verifier = Answer(Answer.Settings(mode=settings.extract), None)  # type: ignore[arg-type]

    def __call__(self) -> Python:
        return Python(self.settings, self._live, self._verifier)

    def close(self) -> None:
        """End the sandboxes that were started in advance."""
        close_all()
