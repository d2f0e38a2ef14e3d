"""Rollouts of several turns without a model: the lab's tokenizer, an engine that says what a table tells it, environments made for tests.

A table gives, by the text of the whole context and by how often it was met, what is said there; `$` is the end token, without it the
answer is cut by its limit.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gfcr.build import make_cascade, make_slots, round_settings, tied
from gfcr.context import Build, View
from gfcr.domains.programs.tokenizer import END_ID, build_tokenizer, encode_answer
from gfcr.drivers.base import Driver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Request, StopSpec
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.environments.contract import EnvironmentFault, Fragment, Said, Step
from gfcr.environments.host import Host
from gfcr.environments.making import make_host, reader
from gfcr.filter.cascade import Cascade
from gfcr.filter.verdicts import scored
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import Recipe, parse
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.slots import Slots
from gfcr.types import Message, Part, PartKind, StopReason, Task, Verdict, derive_id, path_ids

TABLE = Mapping[str, Sequence[str] | str]


@method("talker", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Talker:
    """Answers `b`; what the policy writes steers it: `i` an invalid turn, `c` two calls, `l` truncated, `#` the end, right where `k`
    follows; `n` nothing is to be read, `1` and `2` give the turn to that agent. What fails next stands in `faults`."""

    class Settings(FrozenModel):
        opens: str = ""
        """Said before the first turn."""
        seconds: float = 0.0
        agents: bool = False

    name, version, deterministic, snapshots, quick = "talker", "1", True, True, True
    faults: ClassVar[deque[str]] = deque()
    begun: ClassVar[list[int]] = []
    """Seeds of the resets."""
    closed: ClassVar[Counter[str]] = Counter()

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.said = settings, []

    def _fault(self, where: str) -> None:
        if self.faults and self.faults[0] == where:
            self.faults.popleft()
            raise EnvironmentFault("broke", f"in {where}")

    def tools(self, task: Task) -> tuple[str, ...]:
        return ()

    def reset(self, task: Task, seed: int) -> Step:
        self._fault("reset")
        self.said = []
        self.begun.append(seed)
        return Step(told(self.settings.opens) if self.settings.opens else (), agent="one" if self.settings.agents else "")

    def step(self, said: Said) -> Step:
        self._fault("step")
        self.said.append(said.text)
        text, more = said.text, {}
        if self.settings.agents:
            more["agent"] = {"1": "one", "2": "two"}.get(text[-1:], said.agent)
        return Step(
            () if "n" in text else told("b"),
            {"#": 1.0, "i": None}.get(text[:1], 0.25),
            terminated=text[:1] == "#",
            truncated=text[:1] == "l",
            state=derive_id("talker", *self.said),
            calls=2 * (text[:1] == "c"),
            invalid="no_word: i is none" if text[:1] == "i" else "",
            **more,
        )

    def verify(self) -> Verdict:
        self._fault("verify")
        right = bool(self.said) and self.said[-1][:2] == "#k"
        return scored(self, float(right), right, "as it was said")

    def fragments(self) -> Sequence[Fragment]:
        return ()

    def snapshot(self) -> bytes:
        return "/".join(self.said).encode()

    def restore(self, task: Task, snapshot: bytes) -> None:
        self.said = snapshot.decode().split("/") if snapshot else []

    def close(self) -> None:
        self.closed["closed"] += 1


@method("sleeper", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Sleeper(Talker):
    """In threads; the n-th that was begun sleeps at its n-th turn alone."""

    name, quick = "sleeper", False

    def reset(self, task: Task, seed: int) -> Step:
        step = super().reset(task, seed)
        self.number = len(self.begun) - 1
        return step

    def step(self, said: Said) -> Step:
        if len(self.said) == self.number:
            time.sleep(self.settings.seconds)
        return super().step(said)


def told(text: str) -> tuple[Message, ...]:
    return (Message("environment", (Part(PartKind.TEXT, text),)),)


def table_script(table: TABLE) -> Any:
    """A scripted engine's script: what is said after each context."""
    met: Counter[str] = Counter()

    def said(request: Request) -> tuple[list[int], StopReason]:
        text = TOKENIZER.decode(path_ids(request.path).tolist(), skip_special_tokens=False).removeprefix("<bos>")
        lines = table[text]
        line = lines if isinstance(lines, str) else lines[met[text] % len(lines)]
        met[text] += 1
        ids = encode_answer(line.rstrip("$"))
        return ([*ids, END_ID], StopReason.EOS) if line.endswith("$") else (ids + [3] * 512, StopReason.MAX_TOKENS)

    return said


TOKENIZER = build_tokenizer()


@dataclass
class Turns:
    """The parts of one recipe of turns."""

    recipe: Recipe
    tasks: list[Task]
    table: TABLE | None
    limit: int | None = None
    max_length: int = 512
    number: int = 0
    engine: Any = None
    slots: Slots = field(init=False)
    cascade: Cascade = field(init=False)
    host: Host | None = field(init=False)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.renderer = TokenizerRenderer(TOKENIZER, self.recipe.generate.prompt)
        section = self.recipe.generate
        build = Build(
            0,
            self.tasks,
            self.recipe.control.groups,
            self.recipe.k,
            section.max_tokens,
            {},
            self.renderer.decoder(),
            self.renderer.dialogue,
            reader(section.environment),
            self.max_length,
        )
        self.cascade = make_cascade(self.recipe, build)
        self.slots = tied(make_slots(self.recipe, build), self.cascade)
        self.host = make_host(section.environment, section.host, build)
        self.budget = Budget(self.limit)
        if self.engine is None:
            script = None if self.table is None else table_script(self.table)
            self.engine = ScriptedEngine(script, ScriptedSettings(max_length=self.max_length), decode=self.renderer.codec.text)

    def round(self) -> Round:
        view = View(self.number, self.number, 0, self.slots.posterior, self.slots.memory)
        settings = round_settings(self.recipe, self.max_length)
        made = Round(self.number, self.slots, settings, view, self.budget, self.renderer, StopSpec((END_ID,)))
        self.number += 1
        return made

    def drive(self, driver: type[Driver] | Any = WaveDriver) -> Round:
        made = self.round()
        driver(self.engine, self.cascade, self.slots.judge, self.host).drive(made)
        return made


ONE_LINE = Task("programs", "a+?12", {"final": "32"}, category="one")
RIGHT_AND_LATE = {
    "a+?12": ["a+32", "a+42"],
    "a+?12a+32": "#32$",
    "a+?12a+42?12": "a+32",
    "a+?12a+42?12a+32": "#42$",
}
"""Two rollouts of ONE_LINE with the register machine: right at once, and after a line that is shown again."""


def pulses(driver: WaveDriver, round_: Round, engine: ScriptedEngine, times: int) -> None:
    """A wave driver's work by hand, `times` times, so that a round can be cut in the midst of growing."""
    for _ in range(times):
        asks = round_.ask()
        driver.submit(round_, asks)
        while engine.live():
            driver.grow(round_)
        driver.deliver(round_)
        driver.answer(round_, asks)


def turns(
    table: TABLE | None,
    tasks: list[Task],
    environment: Mapping[str, Any] | None = None,
    topology: Mapping[str, Any] | None = None,
    limit: int | None = None,
    max_length: int = 512,
    engine: Any = None,
    **sections: Mapping[str, Any],
) -> Turns:
    """Turns with `talker` (or another environment) on these tasks."""
    data: dict[str, Any] = {name: dict(section) for name, section in sections.items()}
    data["generate"] = {
        "max_tokens": 64,
        "topology": {"name": "interactive", "k": 2, **(topology or {})},
        "environment": dict(environment or {"name": "interactive_cases:Talker"}),
        **data.get("generate", {}),
    }
    data["filter"] = {"verifiers": [{"name": "environment"}], **data.get("filter", {})}
    data["control"] = {"groups": len(tasks), "min_groups": 1, **data.get("control", {})}
    Talker.faults.clear()
    Talker.begun.clear()
    return Turns(parse({**data, "engine": {"name": "scripted"}}), tasks, table, limit, max_length, engine=engine)
