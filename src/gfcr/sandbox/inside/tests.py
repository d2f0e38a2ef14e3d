"""Runs test code against an answer that lives in another sandbox, and reports.

Invariants: the report goes over a line that the judged side does not have; nothing the judged side sends can name a test tool, shadow
a builtin the tests use (unless the task says the answer defines it), skip a test or end the run early with success: only reaching
the end of every test counts.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys

from gfcr.sandbox.inside.link import Gone, Link
from gfcr.sandbox.inside.objects import Objects
from gfcr.sandbox.inside.standins import FORWARDED

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any

HOME = "tests"
_TOOLS = {"pytest", "_pytest", "hypothesis", "nose", "mock", "numpy", "scipy", "pandas", "sympy", "torch"}
"""Modules that tests compare with: never the answer's, should it have files of that name."""
_SHORT = {"np": "numpy", "pd": "pandas", "sp": "sympy"}
_MAKERS = {
    **dict.fromkeys(("isclose", "isnan", "isinf", "isfinite", "sqrt", "floor", "ceil", "pi", "e", "inf", "nan"), "math"),
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections"),
    **dict.fromkeys(("datetime", "date", "timedelta"), "datetime"),
    **dict.fromkeys(("approx", "raises"), "pytest"),
    "Decimal": "decimal",
    "Fraction": "fractions",
    "deepcopy": "copy",
}
"""Names of standard modules with which tests compare or make what they expect, and may leave to the answer to import."""
_HIDDEN = ("gi_", "cr_", "ag_", "f_", "tb_", "co_", "func_", "im_")


class Side(Objects):
    """The tests' end of the line."""

    strict = True

    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__(3, plan["longest"])
        self.strict = plan["strict"]
        self.stops = "StopIteration" in plan["code"]  # they look for it

        self.watches = "AssertionError" not in plan["code"]
        self.lost: AssertionError | None = None
        """A failed assert of the tests that went through the answer's code, which may have swallowed it (a decorator, a callback, the
        end of a `with`); where the tests name that error, that is for them to judge."""

    def allow(self, op: str, target: Any, name: str) -> None:
        kind = target if isinstance(target, type) else type(target)
        ours = kind.__module__ == HOME and not hasattr(kind, "assertEqual")
        mocked = kind.__module__ == "unittest.mock"
        public = not name.startswith(("_", *_HIDDEN))
        if op == "call" or (op == "get" and public and (ours or mocked)):
            return
        if op == "dunder" and name in FORWARDED and (ours or name in ("__iter__", "__next__")):
            return
        if op in ("set", "del") and ours and public and kind is not target:
            return
        raise PermissionError(f"the tests' {kind.__name__} does not give {name or op} to the answer")

    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        if op == "input":
            return [builtins.input(rest[0])]
        if op == "stdin":
            return [(sys.stdin.read if rest[0] == "read" else sys.stdin.readline)(rest[1])]
        if op in ("load", "names", "module"):
            raise PermissionError(f"{op!r} is the tests' question")
        try:
            return super().answer(op, rest)
        except AssertionError as error:
            self.lost = error if self.watches else None
            raise

    def dunder(self, proxy: Any, name: str, args: tuple[Any, ...]) -> Any:
        if name == "__exit__" and self.watches and isinstance(args[1], AssertionError):
            self.lost = args[1]
        return super().dunder(proxy, name, args)

    def printed(self, text: str) -> None:
        if text:
            sys.stdout.write(text)

    def load(self) -> dict[str, Any] | None:
        """Have the answer loaded; what is wrong with it, or None."""
        try:
            self.ask("load")
        except Gone as gone:
            return {"kind": "died", "text": str(gone), "where": None}
        except BaseException as error:
            kind, name, text = [*error.args, "", "", ""][:3]
            return {"kind": kind, "error": name, "text": str(text)[:2000], "where": self.where}
        return None

    def names(self, code: ast.AST, allowed: list[str]) -> dict[str, Any]:
        """What the answer's module has of the names that the tests use."""
        used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        wanted = [n for n in used if not n.startswith("__") and (n in allowed or not hasattr(builtins, n))]
        told = self.ask("names", sorted(wanted))[0]
        out = {}
        for name in wanted:
            if name in told:
                try:
                    found = tool(name, code, name in allowed)
                except ImportError:
                    continue  # what stands there is no tool: the tests go without
                out[name] = self.value(told[name]) if found is None else found
        return out


def tool(name: str, code: ast.AST, asked: bool) -> Any:
    """The standard module or test tool that tests mean by a name they do not define, lest the answer puts its own there; None for
    another name. `asked`: the task wants the answer to define it. Raises ImportError for a tool that is not there."""
    nodes = [node for node in ast.walk(code) if isinstance(node, ast.Attribute)]
    used = [node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name]
    if used and (name in _TOOLS or name in _SHORT):
        return __import__(_SHORT.get(name, name))
    if used and name in sys.stdlib_module_names:
        __import__(name)
        if all(hasattr(sys.modules[name], attribute) for attribute in used):
            return sys.modules[name]
    if name in _MAKERS and not asked:
        return getattr(__import__(_MAKERS[name]), name)
    return None


class Here:
    """The answer in this very process, for tests that need its objects themselves: nothing then keeps it from fooling them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        from gfcr.sandbox.inside.judged import Solution

        self.solution = Solution(plan)
        self.where: tuple[str, int] | None = None
        self.lost: AssertionError | None = None

    def load(self) -> dict[str, Any] | None:
        try:
            self.solution.load()
        except BaseException as error:
            found = self.solution.fault(error)
            return {"kind": found.kind, "error": found.name, "text": found.text, "where": found.where}
        return None

    def names(self, code: ast.AST, allowed: list[str]) -> dict[str, Any]:
        return {name: value for name, value in self.solution.module.__dict__.items() if not name.startswith("__")}


class Finder:
    """Imports the answer's modules as stand-ins; standard modules stay the tests' own."""

    def __init__(self, side: Side, names: list[str]) -> None:
        self.side, self.known = side, {name for name in names if name.partition(".")[0] not in _TOOLS}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.known:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        return self.side.value(self.side.ask("module", spec.name)[0])

    def exec_module(self, module: Any) -> None:
        pass


class Case:
    """The outcome of one test."""

    def __init__(self, side: Side | Here) -> None:
        self.side, self.total, self.passed = side, 0, 0
        self.failure: dict[str, Any] | None = None

    def begin(self) -> None:
        self.side.where = self.side.lost = None

    def end(self) -> None:
        """Raises the failed assert that was swallowed on its way."""
        if self.side.lost is not None:
            raise self.side.lost

    def failed(self, name: str, error: BaseException, line: int | None) -> None:
        if self.failure is not None:
            return
        said = isinstance(error, AssertionError)
        kind = "wrong" if said else "died" if isinstance(error, Gone) else "runtime"
        text = "" if said and not error.args else str(error)[:2000]
        where = None if said else self.side.where
        if isinstance(self.side, Here) and not said:
            where = self.side.solution.fault(error).where
        self.failure = {"kind": kind, "error": type(error).__name__, "text": text, "where": where, "test": name, "line": line}
        self.failure["case"] = max(self.total, 1) - 1


def run(plan: dict[str, Any]) -> Any:
    """Run the tests and report. Never returns."""
    report = Link(3 if plan["together"] else 4, 1 << 24)
    try:
        report.send(["=", _outcome(plan)])
    finally:
        os._exit(0)


def _outcome(plan: dict[str, Any]) -> dict[str, Any]:
    try:
        tree = ast.parse(plan["code"], HOME + ".py")
        compile(tree, HOME + ".py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return {"invalid": f"the tests do not compile: {error}"}
    side: Side | Here = Here(plan) if plan["together"] else Side(plan)
    wrong = side.load()
    if wrong is not None:
        return {"load": wrong}
    module = type(sys)(HOME)
    module.__dict__["__builtins__"] = builtins
    sys.modules[HOME] = module
    if isinstance(side, Side):
        sys.meta_path.append(Finder(side, plan["importable"]))
    case = Case(side)
    try:
        module.__dict__.update(side.names(tree, plan["allowed"]))
    except BaseException as error:
        case.total = 1
        case.failed("the answer's names", error, None)
        return _told(case)
    whole = _statements(tree, module.__dict__, case, plan)
    if whole:
        _functions(module.__dict__, case, plan)
        _unittests(module.__dict__, case, plan)
    if not case.total:
        return {"invalid": "there is nothing in the tests that could fail"}
    return _told(case)


def _told(case: Case) -> dict[str, Any]:
    return {"total": case.total, "passed": case.passed, "failure": case.failure}


def _statements(tree: ast.Module, names: dict[str, Any], case: Case, plan: dict[str, Any]) -> bool:
    """The module's statements in turn; an assert or a bare call is a test. False where the rest of the tests cannot run."""
    lines = plan["code"].splitlines()
    for statement in tree.body:
        acts = not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))
        test = acts and any(isinstance(node, (ast.Assert, ast.Call, ast.Raise)) for node in ast.walk(statement))
        case.total += test
        code = compile(ast.Module([statement], []), HOME + ".py", "exec", dont_inherit=True)
        case.begin()
        try:
            exec(code, names)
            case.end()
        except BaseException as error:
            case.total += not test
            case.failed(lines[statement.lineno - 1].strip()[:200], error, statement.lineno)
            if plan["all"] and isinstance(statement, ast.Assert) and not isinstance(error, Gone):
                continue
            rest = tree.body[tree.body.index(statement) + 1 :]
            case.total += sum(isinstance(later, ast.Assert) for later in rest)
            return False
        case.passed += test
    return True


def _functions(names: dict[str, Any], case: Case, plan: dict[str, Any]) -> None:
    """Test functions without arguments, as pytest would find them."""
    plain = type(_functions)
    for name, function in list(names.items()):
        if name.startswith("test") and type(function) is plain and function.__module__ == HOME:
            if function.__code__.co_argcount:
                continue
            case.total += 1
            case.begin()
            if case.failure is not None and not plan["all"]:
                continue
            try:
                function()  # type: ignore[call-arg]
                case.end()
            except BaseException as error:
                case.failed(name, error, function.__code__.co_firstlineno)
            else:
                case.passed += 1


def _unittests(names: dict[str, Any], case: Case, plan: dict[str, Any]) -> None:
    """TestCase classes, if the tests have imported unittest."""
    unittest = sys.modules.get("unittest")
    if unittest is None:
        return
    kinds = [k for k in names.values() if isinstance(k, type) and issubclass(k, unittest.TestCase) and k.__module__ == HOME]
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(kind) for kind in dict.fromkeys(kinds))

    class Result(unittest.TestResult):  # type: ignore[name-defined, misc]
        def startTest(self, test: Any) -> None:
            case.begin()
            case.total += 1
            super().startTest(test)

        def addSkip(self, test: Any, reason: str) -> None:
            case.total -= 1
            super().addSkip(test, reason)

        def addSuccess(self, test: Any) -> None:
            if (lost := case.side.lost) is not None:
                self.addFailure(test, (AssertionError, lost, lost.__traceback__))
            else:
                case.passed += 1

        def addExpectedFailure(self, test: Any, err: Any) -> None:
            case.passed += 1

        def addError(self, test: Any, err: Any) -> None:
            self.failed(test, err)
            super().addError(test, err)

        def addFailure(self, test: Any, err: Any) -> None:
            self.failed(test, err)
            super().addFailure(test, err)

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            if err is not None:
                self.failed(test, err)
            super().addSubTest(test, subtest, err)

        def addUnexpectedSuccess(self, test: Any) -> None:
            self.failed(test, (AssertionError, AssertionError("an expected failure did not fail"), None))
            super().addUnexpectedSuccess(test)

        def failed(self, test: Any, err: Any) -> None:
            line = None
            trace = err[2]
            while trace is not None:
                line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == HOME + ".py" else line
                trace = trace.tb_next
            case.failed(str(getattr(test, "_testMethodName", test)), err[1], line)

    result = Result()
    result.failfast = not plan["all"]
    planned = suite.countTestCases()
    try:
        suite.run(result)
    except BaseException as error:  # KeyboardInterrupt and what else unittest lets through
        case.failed("unittest", error, None)
    case.total += planned - max(result.testsRun, len(result.skipped))
    if planned > len(result.skipped) and not result.testsRun and case.failure is None:
        case.failed("unittest", AssertionError("no test ran"), None)  # a fixture of the class or the module failed
