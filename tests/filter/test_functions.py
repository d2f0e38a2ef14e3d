"""Plain functions as verifiers, gates and selectors: what they are given, what their answers become, how each mistake is told."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gfcr.context import Build, View
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.control.select.function import SelectorError
from gfcr.errors import ConfigError
from gfcr.filter.killable import contained
from gfcr.functions import code_hash, load_place, place_of
from gfcr.registry import Slot, find, settings_of
from gfcr.types import Message, Part, PartKind, Status, StopReason, Task, Verdict

CHAT = (Message("user", (Part(PartKind.TEXT, "2+3?"),)),)
CASES = Path(__file__).parents[1] / "function_cases.py"


def make(place: str, slot: Slot = Slot.VERIFIER, tasks: tuple[Task, ...] = (), **settings: Any) -> Any:
    found = find(slot, place if ":" in place else f"function_cases:{place}")
    assert found.cls is not None
    return found.cls(settings_of(found, settings), Build(0, tasks, 4, 2, 8))


def ask(place: str, text: str, task: Task, slot: Slot = Slot.VERIFIER, **settings: Any) -> Verdict:
    return make(place, slot, **settings).judge(task, text, StopReason.EOS)


def test_a_function_of_its_own_form() -> None:
    for place in ("function_cases:right", f"{CASES}:right"):
        verdict = ask(place, "x#5", Task("t", "p", "5"))
        assert (verdict.verifier, verdict.score, verdict.correct) == ("function_cases:right", 1.0, True)
        assert verdict.version == code_hash("function_cases:right")
    assert ask("right", "x#6", Task("t", "p", "5")).correct is False
    assert find(Slot.VERIFIER, "function_cases:right").title == "Right iff the last pair is the reference."


def test_trl_reward_functions() -> None:
    assert ask("trl_accuracy", "it is 5", Task("t", "p", "5")).correct is True
    assert ask("trl_accuracy", "it is 6", Task("t", CHAT, "5")).correct is False
    verdict = ask("trl_async", "abc", Task("t", CHAT, "5", meta={"level": 2}), right_at="never")
    assert (verdict.score, verdict.correct) == (2.3, None)
    assert ask("trl_async", "abc", Task("t", CHAT, "5", meta={"level": 2}), right_at=2.0).correct is True
    verdict = ask("trl_async", "abc", Task("t", CHAT, "5"))
    assert verdict.status is Status.UNSCORABLE and "no 'level'" in verdict.evidence


def test_a_verl_reward_function() -> None:
    verdict = ask("compute_score", "5", Task("t", "p", "5", meta={"data_source": "gsm8k"}))
    assert (verdict.score, verdict.correct, verdict.evidence) == (0.5, True, "gsm8k")


@pytest.mark.parametrize(
    ("returned", "score", "correct"),
    [
        ("True", 1.0, True),
        ("np.bool_(False)", 0.0, False),
        ("1", 1.0, True),
        ("0.5", 0.5, False),
        ("np.float32(0.5)", 0.5, False),
        ("np.array(2.0)", 2.0, True),
        ("{'score': 0.2, 'correct': True}", 0.2, True),
        ("{'score': 0.2, 'correct': None, 'acc': np.bool_(True)}", 0.2, True),
        ("{'score': 0.2, 'acc': 0}", 0.2, False),
    ],
)
def test_what_becomes_a_score(returned: str, score: float, correct: bool) -> None:
    verdict = ask("says", "x", Task("t", returned))
    assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, score, correct)


@pytest.mark.parametrize(
    ("returned", "evidence"),
    [
        ("None", "abstains"),
        ("float('nan')", "returned nan"),
        ("float('inf')", "returned inf"),
        ("np.float64('nan')", "returned nan"),
        ("'yes'", "returned 'yes' (str), not a number"),
        ("[1.0]", "returned [1.0] (list), not a number"),
        ("{'reward': 1}", "without 'score'"),
        ("{'score': None}", "abstains"),
        ("{'score': 0.0, 'correct': 'False'}", "'False' (str) for correctness"),
        ("{'score': 0.0, 'acc': float('nan')}", "for correctness"),
        ("{'score': 0.2, 'acc': 0.2}", "for correctness"),
        ("{'score': 'high'}", "'high' (str)"),
        ("1j", "not a number"),
        ("raise", "RuntimeError: the grader is broken"),
        ("loop", "no verdict within 0.5 s; killed"),
        ("sleep", "no verdict within 0.5 s; killed"),
    ],
)
def test_what_is_unscorable_and_never_zero(returned: str, evidence: str, killable: Any) -> None:
    verdict = killable.judge(Task("t", returned), "x", StopReason.EOS)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)
    assert evidence in verdict.evidence
    assert killable.judge(Task("t", "1"), "x", StopReason.EOS).score == 1.0


@pytest.fixture(scope="module")
def killable() -> Any:
    made = contained(make("says"), 0.5)
    made.start()
    yield made
    made.close()


def test_a_gate_passes_or_refuses() -> None:
    assert ask("polite", "please", Task("t", "p"), Slot.GATE).status is Status.SCORED
    refused = ask("polite", "now", Task("t", "p"), Slot.GATE)
    assert (refused.status, refused.score, refused.evidence) == (Status.INVALID, None, "function_cases:polite refuses it")
    assert ask("says", "x", Task("t", "1"), Slot.GATE).status is Status.UNSCORABLE


@pytest.mark.parametrize(
    ("slot", "place", "what"),
    [
        (Slot.VERIFIER, "no_such_module_of_mine:right", "there is no module 'no_such_module_of_mine'"),
        (Slot.VERIFIER, "function_cases:wrong_name", "has no 'wrong_name'"),
        (Slot.VERIFIER, "no/such/file.py:right", "there is no file no/such/file.py"),
        (Slot.VERIFIER, "function_cases:", "names no function"),
        (Slot.VERIFIER, "function_cases:NUMBER", "is int, not a function"),
        (Slot.VERIFIER, "function_cases:no_answer", "does not ask for the answer"),
        (Slot.VERIFIER, "function_cases:wants_ids", "asks for completion_ids"),
        (Slot.VERIFIER, "function_cases:by_position", "by position only"),
        (Slot.CREDIT, "function_cases:right", "which is no method"),
        (Slot.SELECT, "function_cases:wants_more", "asks for 'weather'"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused(slot: Slot, place: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(slot, place)
    assert what in caught.value.what and caught.value.remedy


def test_a_column_that_no_task_has_is_refused_before_the_first_token() -> None:
    with pytest.raises(ConfigError, match="asks for 'level', which no task has") as caught:
        make("needs_column", tasks=(Task("t", "p", meta={"topic": 1}),))
    assert "topic" in caught.value.remedy
    assert make("needs_column", tasks=(Task("t", "p", meta={"level": 1}),))


def test_files_that_cannot_be_run(tmp_path: Path) -> None:
    for name, text, what in (
        ("syntax", "def right(text:\n", "SyntaxError"),
        ("raises", "1/0\n", "ZeroDivisionError"),
        ("ends", "raise SystemExit(3)\n", "SystemExit"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(ConfigError, match=rf"{name}\.py cannot be run: {what}"):
            load_place(f"{tmp_path / name}.py:right")
    (tmp_path / "sibling_of_mine.py").write_text("WORD = 'yes'\n")
    (tmp_path / "good.py").write_text("from sibling_of_mine import WORD\ndef right(text): return text == WORD\n")
    judge = contained(make(f"{tmp_path / 'good.py'}:right"), 5)
    try:
        assert judge.judge(Task("t", "p"), "yes", StopReason.EOS).correct is True
    finally:
        judge.close()


def test_a_place_of_a_function_leads_back_to_it() -> None:
    import function_cases

    assert place_of(function_cases.right) == "function_cases:right"
    by_file = load_place(f"{CASES}:right")
    assert load_place(place_of(by_file)) is by_file
    for nameless in (lambda text: 1.0, lambda: None, np.float64(1).item):
        with pytest.raises(ConfigError, match="has no name"):
            place_of(nameless)


def test_a_class_by_its_place_fills_its_slot(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gfcr.registry import Faithfulness, Slot, method\n"
        "@method('raw', Slot.CREDIT, title='raw', criterion='cost', faithfulness=Faithfulness.OURS)\n"
        "class Raw:\n    def __init__(self, settings, build): pass\n"
    )
    assert find(Slot.CREDIT, f"{tmp_path / 'mine.py'}:Raw").title == "raw"
    with pytest.raises(ConfigError, match=r"is a method of filter\.credit, named in filter\.shape"):
        find(Slot.SHAPE, f"{tmp_path / 'mine.py'}:Raw")


TASKS = tuple(Task("t", "p" * n, "5") for n in (4, 1, 3, 2))


def view(round_: int = 0) -> View:
    return View(round_, 0, 7, PosteriorTable(TASKS, PosteriorSettings()), None)  # type: ignore[arg-type]


def test_a_selector_ranks_and_the_rest_is_left_out() -> None:
    chosen = make("shortest_first", Slot.SELECT, TASKS).select(2, {TASKS[1].id}, view())
    assert [pick.task.prompt for pick in chosen] == ["pp", "ppp"] and chosen[0].reason == "function_cases:shortest_first"


def test_a_selectors_draws_repeat_and_differ_by_round() -> None:
    made = make("drawn", Slot.SELECT, TASKS)
    drawn = [[p.task.prompt for p in made.select(3, set(), view(r))] for r in (0, 1, 2, 3, 0)]
    again = make("drawn", Slot.SELECT, TASKS)
    assert [[p.task.prompt for p in again.select(3, set(), view(r))] for r in range(4)] == drawn[:4]
    assert drawn[0] == drawn[4] and len({tuple(d) for d in drawn}) > 1 and made.state_dict() == {}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("hangs", "no verdict within 0.5 s; killed"),
        ("strange", "'no such id', which is no task"),
        ("nothing", "returned None, not tasks"),
    ],
)
def test_a_selector_that_names_no_tasks_ends_the_run_with_a_reason(name: str, what: str) -> None:
    with pytest.raises(SelectorError, match=f"the selector function_cases:{name} gave no tasks in round 0: .*{what}"):
        make(name, Slot.SELECT, TASKS, seconds=0.5).select(2, set(), view())


EVEN = """
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Status, Verdict


@method("even-length", Slot.VERIFIER, title="even", criterion="cost", faithfulness=Faithfulness.OURS)
class Even:
    name, version, bounded = "even-length", "1", True

    def __init__(self, settings, build):
        pass

    def judge(self, task, text, stop):
        return Verdict(self.name, "1", Status.SCORED, 1.0, len(text) % 2 == 0)
"""


def test_a_really_installed_package_of_methods(tmp_path: Path) -> None:
    """A wheel, installed by pip into a folder of its own, is found through its entry point."""
    wheel = tmp_path / "gfcr_test_dist-0.1-py3-none-any.whl"
    info = "gfcr_test_dist-0.1.dist-info"
    files = {
        "gfcr_test_dist.py": EVEN,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: gfcr-test-dist\nVersion: 0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[gfcr.methods]\nfilter.verifiers.even-length = gfcr_test_dist:Even\n",
    }
    with zipfile.ZipFile(wheel, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
        out.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    done = subprocess.run([*command, "--target", str(tmp_path / "site"), str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "import sys; from gfcr.cli.main import app; app(['methods', '--slot', 'filter.verifiers', '--json'])"
    source = str(Path(__file__).parents[2] / "src")
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path / 'site'}:{source}", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    assert '"name": "even-length"' in said.stdout
