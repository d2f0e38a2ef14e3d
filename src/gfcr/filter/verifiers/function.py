"""A user's plain function as a verifier or a gate.

    def right(text, reference): return text.strip() == reference                     # its own way
    def accuracy(completions, answer, **kwargs): return [float(...) for ...]          # a TRL reward function
    def compute_score(data_source, solution_str, ground_truth, extra_info): ...       # a verl reward function

Invariants: arguments are given by name, so a function asks for what it needs and is refused, before the first token, for what no
task has; it runs in a child process that is killed at its deadline; what it returns that is no finite number, a truth value, or a
`Verdict` makes the answer unscorable, with what it was, and never reward 0; None abstains.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verifiers.said import RightAt, plain, shown
from gfcr.filter.verifiers.said import said as verdict_said
from gfcr.functions import code_hash, load_place, parameters, short_name
from gfcr.registry import Faithfulness, FrozenModel, Method, Slot
from gfcr.types import PartKind, Status, StopReason, Task, Verdict

TEXT = ("text", "completion", "response", "solution_str")
REFERENCE = ("reference", "ground_truth", "answer", "solution", "label", "target")
"""Names under which a function may ask for the reference; a column of that name goes first."""
OTHERS = ("task", "prompt", "meta", "stop", "data_source", "extra_info")
BATCH = ("prompts", "completions", "trainer_state", "log_extra", "log_metric", "environments")
"""What TRL gives besides columns."""


class FunctionVerifier:
    """Calls one function."""

    place = ""
    slot = Slot.VERIFIER
    name: str

    class Settings(FrozenModel):
        right_at: RightAt = 1.0
        """A number of at least this counts as a right answer; "never": the numbers say nothing about correctness (a format bonus, a
        length reward), so neither posteriors nor zero-variance tests read them. A truth value speaks for itself."""

        def traits(self) -> frozenset[str]:
            return frozenset() if self.right_at == "never" else frozenset({"binary correctness"})

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        self.function: Callable[..., Any] = load_place(self.place)
        self.version = code_hash(self.place)
        self.parameters = parameters(self.function, self.place)
        self.batch = "completions" in self.parameters
        _refuse_unfit(self.place, self.parameters, self.batch, build)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.slot, self.place, self.settings)

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if stop in (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED):
            return self._unscorable(f"ended by us ({stop}): nobody knows what would have come")
        known = _batch(task, text) if self.batch else _single(task, text, stop)
        names = self.parameters if not self._keywords or not self.batch else {**known, **self.parameters}
        given = {}
        for name in names:
            if name in known:
                given[name] = known[name]
            elif (parameter := self.parameters[name]).default is inspect.Parameter.empty and parameter.kind not in _VARIABLE:
                return self._unscorable(f"the task has no {name!r}, which {self.name} asks for")
        value = self.function(**given)
        if inspect.isawaitable(value):
            value = asyncio.run(_wait(value))
        if self.batch:
            if not hasattr(value, "__len__") or isinstance(value, (str, Mapping)) or len(value) != 1:
                return self._unscorable(f"returned {shown(value)} for one completion, not a list of one reward")
            value = value[0]
        return self._gate(value) if self.slot is Slot.GATE else self._verdict(value)

    @property
    def _keywords(self) -> bool:
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self.parameters.values())

    def _verdict(self, value: Any) -> Verdict:
        if isinstance(value, Verdict):
            said: object = value.correct  # the function's word: its type is not checked yet
            if said is not None and not isinstance(said, bool):
                return self._unscorable(f"returned a Verdict with correct = {shown(said)}, not True, False or None")
            return replace(value, verifier=self.name, version=self.version)
        return verdict_said(value, self.name, self.version, self.settings.right_at)

    def _gate(self, value: Any) -> Verdict:
        value = plain(value)
        if isinstance(value, Verdict):
            return replace(value, verifier=self.name, version=self.version)
        if value is None:
            return self._unscorable("returned None: it abstains")
        if not isinstance(value, bool):
            return self._unscorable(f"returned {shown(value)}, not True (passes) or False (refused)")
        if value:
            return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence="passes")
        return Verdict(self.name, self.version, Status.INVALID, evidence=f"{self.name} refuses it")

    def _unscorable(self, evidence: str) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=evidence)


_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def verifier(place: str) -> Method:
    """The verifier that calls the function at `place`."""
    return _method(Slot.VERIFIER, place)


def gate(place: str) -> Method:
    """The gate that calls the function at `place`: True passes, False makes the answer INVALID."""
    return _method(Slot.GATE, place)


def _method(slot: Slot, place: str) -> Method:
    function = load_place(place)
    found = parameters(function, place)
    _refuse_unfit(place, found, "completions" in found, None)
    title = (inspect.getdoc(function) or "your own function").splitlines()[0]
    cls = type("FunctionVerifier", (FunctionVerifier,), {**_known(slot, place), "__doc__": inspect.getdoc(function)})
    return Method(place, slot, title, "reliability", Faithfulness.OURS, settings=FunctionVerifier.Settings, cls=cls)


def _known(slot: Slot, place: str) -> dict[str, Any]:
    """What the class of a function's verifiers has of its own."""
    return {"place": place, "slot": slot, "name": short_name(place)}


def _again(slot: Slot, place: str, settings: FunctionVerifier.Settings) -> FunctionVerifier:
    """In the child process: the same verifier from its place."""
    made = type("FunctionVerifier", (FunctionVerifier,), _known(slot, place))(settings)
    assert isinstance(made, FunctionVerifier)
    return made


def _refuse_unfit(place: str, found: Mapping[str, inspect.Parameter], batch: bool, build: Build | None) -> None:
    """Raise ConfigError for a function that could never be called, or whose parameters no task can fill."""
    if bad := [n for n, p in found.items() if p.kind is inspect.Parameter.POSITIONAL_ONLY]:
        raise ConfigError(f"{place} takes {bad[0]!r} by position only; arguments are given by name", "take the `/` out")
    needed = [n for n, p in found.items() if p.default is inspect.Parameter.empty and p.kind not in _VARIABLE]
    if "completion_ids" in needed:
        raise ConfigError(
            f"{place} asks for completion_ids; a verifier sees the answer's text only", "give that parameter a default"
        )
    if not batch and not {*TEXT, "task"} & set(found):
        raise ConfigError(
            f"{place}({', '.join(found)}) does not ask for the answer",
            f"name a parameter {', '.join(TEXT)} for one answer, or completions for a list of them (TRL)",
        )
    if build is None or not build.tasks:
        return
    columns = sorted({name for task in build.tasks for name in task.meta})
    known = {*(BATCH if batch else (*TEXT, *OTHERS)), *REFERENCE, *columns}
    if unknown := [name for name in needed if name not in known]:
        raise ConfigError(
            f"{place} asks for {unknown[0]!r}, which no task has",
            f"it can have {', '.join(BATCH if batch else (*TEXT, *OTHERS))}, {', '.join(REFERENCE)} (the reference)"
            + (f", or a column: {', '.join(columns)}" if columns else ""),
        )


def _columns(task: Task) -> dict[str, Any]:
    return {**dict.fromkeys(REFERENCE, task.reference), **task.meta}


def _single(task: Task, text: str, stop: StopReason) -> dict[str, Any]:
    own: dict[str, Any] = {"task": task, "prompt": _prompt(task), "meta": dict(task.meta), "stop": str(stop)}
    own |= {name: task.meta.get(name) for name in ("data_source", "extra_info")}
    return {**_columns(task), **dict.fromkeys(TEXT, text), **own}


def _batch(task: Task, text: str) -> dict[str, Any]:
    """A batch of one, as TRL 1.16 gives it: lists, and messages where the prompt is messages."""
    answer: Any = text if isinstance(task.prompt, str) else [{"role": "assistant", "content": text}]
    columns = {name: [value] for name, value in _columns(task).items()}
    nothing: dict[str, Any] = {"log_extra": _ignore, "log_metric": _ignore, "trainer_state": None, "environments": None}
    return {**columns, **nothing, "prompts": [_prompt(task)], "completions": [answer]}


def _prompt(task: Task) -> str | list[dict[str, str]]:
    if isinstance(task.prompt, str):
        return task.prompt
    return [{"role": m.role, "content": "".join(p.text or "" for p in m.parts if p.kind is PartKind.TEXT)} for m in task.prompt]


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


def _ignore(*args: Any, **kwargs: Any) -> None:
    """TRL's logging hooks, which a verifier has no use for."""
