"""The tests of a task, as they stand in its reference.

    {"type": "call", "fn": "add", "cases": [{"args": [2, 3], "expected": 5}], "float_tol": 1e-6}
    {"type": "stdio", "cases": [{"input": "3\\n", "output": "6\\n"}], "entry": "main.py"}
    {"type": "asserts", "code": "assert add(2, 3) == 5\\n"}          {"type": "unittest", "code": "class T(unittest.TestCase): ..."}

Either may stand there as JSON text, as files whose columns have one type hold it. Around them, or beside `type`: `limits` ({"time_s", "memory_mb", "procs", "file_mb"}), `solution` (a right program, for the check with
perturbed inputs). A case may be `hidden`; `{"public": TESTS, "hidden": TESTS}` are two sets. Invariant: what is not understood in full
is refused, and the answer is then unscorable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gfcr.sandbox.settings import Limits
from gfcr.types.ids import derive_id

_LIMITS = {"time_s": "seconds", "memory_mb": "memory_mb", "procs": "procs", "file_mb": "file_mb"}
_KEYS = {
    "call": {"type", "fn", "cases", "float_tol", "entry"},
    "stdio": {"type", "cases", "float_tol", "entry"},
    "asserts": {"type", "code", "entry", "defines"},
    "unittest": {"type", "code", "entry", "defines"},
}
_BESIDE = {"limits", "solution"}


class BadTests(ValueError):
    """Tests that cannot be used; the text says why."""


@dataclass(frozen=True)
class Case:
    """One call or one program run."""

    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    expected: Any = None
    """The value, or the output."""
    hidden: bool = False


@dataclass(frozen=True)
class Tests:
    """One set of tests of one type."""

    type: str
    fn: str = ""
    cases: tuple[Case, ...] = ()
    code: str = ""
    entry: str | None = None
    tolerance: float | None = None
    hidden: bool = False
    """Whether all of it is hidden."""
    defines: tuple[str, ...] = ()
    """Names of builtins that the answer is asked to define itself."""


@dataclass(frozen=True)
class Reference:
    """What a task says about right answers."""

    sets: tuple[Tests, ...]
    limits: Mapping[str, float]
    solution: str | dict[str, str] | None = None

    @property
    def entry(self) -> str | None:
        return next((tests.entry for tests in self.sets if tests.entry), None)


def reference(data: Any) -> Reference:
    """The reference of a task. Raises BadTests."""
    data = _parsed(data)
    if not isinstance(data, Mapping):
        raise BadTests(f"the reference is {type(data).__name__}, not tests")
    inner = _parsed(data.get("tests", data))
    beside = {key: data[key] for key in _BESIDE if key in data}
    if isinstance(inner, Mapping) and "type" not in inner and ("public" in inner or "hidden" in inner):
        _known(inner, {"public", "hidden", *_BESIDE})
        sets = [_tests(inner[key], key == "hidden") for key in ("public", "hidden") if inner.get(key)]
    else:
        sets = [_tests(inner, False)]
    limits = beside.get("limits") or {}
    if not isinstance(limits, Mapping) or set(limits) - set(_LIMITS):
        raise BadTests(f"limits: known are {', '.join(_LIMITS)}")
    solution = beside.get("solution")
    if solution is not None and not isinstance(solution, (str, dict)):
        raise BadTests("solution: wanted text, or a map of files")
    return Reference(tuple(sets), dict(limits), solution)


def limited(limits: Limits, own: Mapping[str, float]) -> Limits:
    """The limits with a task's own put first. Raises BadTests."""
    if not own:
        return limits
    values = {_LIMITS[key]: float(value) if key == "time_s" else int(value) for key, value in own.items()}
    if values.get("seconds", 0) > limits.total_seconds:
        values["total_seconds"] = values["seconds"]
    try:
        return Limits.model_validate({**limits.model_dump(), **values})
    except ValueError as error:
        raise BadTests(f"limits: {error}") from None


def held_back(tests: Tests, share: float, key: str) -> Tests:
    """The tests with a share of the cases hidden, the same ones every time; at least one stays public."""
    if share <= 0 or len(tests.cases) < 2:
        return tests
    n = min(len(tests.cases) - 1, max(1, round(share * len(tests.cases))))
    order = sorted(range(len(tests.cases)), key=lambda i: derive_id("held back", key, str(i)))
    hidden = set(order[:n])
    return replace(tests, cases=tuple(replace(c, hidden=True) if i in hidden else c for i, c in enumerate(tests.cases)))


def public(known: Reference, share: float, key: str) -> Reference:
    """The reference without what is hidden in it, or held back (`held_back`)."""
    sets = [held_back(tests, share, key) for tests in known.sets if not tests.hidden]
    seen = [replace(tests, cases=tuple(case for case in tests.cases if not case.hidden)) for tests in sets]
    return replace(known, sets=tuple(tests for tests in seen if tests.cases or tests.code))


def _parsed(data: Any) -> Any:
    """What a text that is a JSON object says; anything else as it is."""
    if not isinstance(data, str) or not data.lstrip().startswith("{"):
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadTests(f"the tests are a text that is no JSON: {error}") from None


def _tests(data: Any, hidden: bool) -> Tests:
    if not isinstance(data, Mapping):
        raise BadTests(f"tests: {type(data).__name__} instead of a map with a `type`")
    kind = data.get("type")
    if kind not in _KEYS:
        raise BadTests(f"tests.type: {kind!r}; known: {', '.join(_KEYS)}")
    _known(data, _KEYS[kind] | _BESIDE)
    tolerance = data.get("float_tol")
    if tolerance is not None and (not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1):
        raise BadTests(f"tests.float_tol: {tolerance!r}, wanted a number from 0 up to 1")
    entry = data.get("entry")
    if entry is not None and (not isinstance(entry, str) or not entry.endswith(".py") or entry.startswith(("/", "."))):
        raise BadTests(f"tests.entry: {entry!r}, wanted a Python file's name")
    common: dict[str, Any] = {"entry": entry, "tolerance": tolerance, "hidden": hidden}
    if kind in ("asserts", "unittest"):
        code = data.get("code")
        if not isinstance(code, str | None):
            raise BadTests(f"tests.code: {type(code).__name__}, wanted one text (lines joined by line ends)")
        if not code or not code.strip():
            raise BadTests("tests.code: there is none")
        defines = data.get("defines", [])
        if not isinstance(defines, (list, tuple)):
            raise BadTests("tests.defines: wanted a list of names")
        return Tests(kind, code=code, defines=tuple(map(str, defines)), **common)
    cases = data.get("cases")
    if not isinstance(cases, Sequence) or isinstance(cases, str) or not cases:
        raise BadTests("tests.cases: there are none")
    if kind == "call" and (not isinstance(data.get("fn"), str) or not data["fn"]):
        raise BadTests("tests.fn: no function is named")
    make = _call_case if kind == "call" else _program_case
    return Tests(kind, fn=data.get("fn", ""), cases=tuple(make(i, case, hidden) for i, case in enumerate(cases)), **common)


def _call_case(i: int, case: Any, hidden: bool) -> Case:
    where = f"tests.cases[{i}]"
    if not isinstance(case, Mapping) or "expected" not in case:
        raise BadTests(f"{where}: no `expected`")
    _known(case, {"args", "kwargs", "expected", "hidden"}, where)
    args, named = case.get("args", []), case.get("kwargs", {})
    if not isinstance(args, (list, tuple)) or not isinstance(named, Mapping):
        raise BadTests(f"{where}: `args` is no list, or `kwargs` no map")
    return Case(tuple(args), dict(named), expected=case["expected"], hidden=hidden or bool(case.get("hidden")))


def _program_case(i: int, case: Any, hidden: bool) -> Case:
    where = f"tests.cases[{i}]"
    if not isinstance(case, Mapping) or not isinstance(case.get("output"), str) or not isinstance(case.get("input", ""), str):
        raise BadTests(f"{where}: `input` and `output` are no texts")
    _known(case, {"input", "output", "hidden"}, where)
    return Case(input=case.get("input", ""), expected=case["output"], hidden=hidden or bool(case.get("hidden")))


def _known(data: Mapping[str, Any], keys: set[str], where: str = "tests") -> None:
    if unknown := sorted(set(data) - keys):
        raise BadTests(f"{where}: unknown {', '.join(map(repr, unknown))}; known: {', '.join(sorted(keys))}")
