"""What models, files and users write is shown on the terminal and never obeyed."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest
from rich.progress import Progress, TextColumn
from rich.text import Text

from gfcr.cli import boundary, catalog, progress, tables, tasks
from gfcr.cli.shown import SafeConsole, visible
from gfcr.recipe import parse
from gfcr.run.task_history import Attempt, History, TaskHistory, Visit
from gfcr.types import GroupState, Status, Task

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u202c\u2066\u200b\u2028\ud800 [/bold][link=x] end"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")
PROMPT = HOSTILE.replace("\ud800", "")
"""A task's text has no halves of characters: its id could not be made."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The console's own styles."""


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal that every command prints to."""
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, width=200, highlight=False)
    for module in (boundary, tasks, catalog):
        for name in ("out", "err"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, console)
    return stream


def said(screen: io.StringIO) -> str:
    """What stands on the screen; nothing in it acts."""
    text = COLOUR.sub("", screen.getvalue())
    assert not ACTS.findall(text)
    return text


def history() -> TaskHistory:
    attempt = Attempt("r", 1, Status.SCORED, False, 0.0, None, f"wanted 3{HOSTILE}", 12, "trained on")
    visit = Visit(1, 0, "g", GroupState.CLOSED, HOSTILE, 8, 1, (attempt,), 0, 0.5, 0.4)
    return TaskHistory(Task("t", f"prompt {PROMPT}", f"3 {PROMPT}", category=f"kind {PROMPT}"), [visit], 0.4)


def test_every_character_that_acts_is_shown_as_its_escape_and_no_other_is_touched() -> None:
    assert visible("\x1b[31m\x07\u202e\u2028\x9b\U000e0041\ud800") == ("\\x1b[31m\\x07\\u202e\\u2028\\x9b\\U000e0041\\ud800")
    for number in range(0x11000):
        char, kind = chr(number), unicodedata.category(chr(number))
        shown = visible(char)
        directs = unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        if directs or (kind in ("Cc", "Zl", "Zp", "Cs") and char not in "\t\n"):
            assert shown.startswith("\\"), hex(number)
        if kind not in ("Cc", "Cf", "Zl", "Zp", "Cs") and number != 0x180E:
            assert shown == char or not char.isprintable(), hex(number)
    family = "👩\u200d👧 नि\u200cर é ا"
    assert visible(family) == family and visible(visible(HOSTILE)) == visible(HOSTILE)


def test_why_and_tasks_show_prompts_answers_evidence_and_categories(screen: io.StringIO) -> None:
    found = history()
    decision = {"step": 1, "slot": "filter", "action": "unscorable", "reason": HOSTILE, "subject": "r", "data": {"x": HOSTILE}}
    data = {
        **tasks._row(found),
        "story": [tasks._visit(v) for v in found.visits],
        "decisions": [decision],
        "best_failed": {**tasks._attempt(found.visits[0].attempts[0]), "text": f"answer {HOSTILE}\nline two"},
    }
    tasks._print_story(found, data)
    text = said(screen)
    for part in ("prompt", "3", "kind", "answer"):
        assert f"{part} \\x1b]0;owned" in text
    assert "wanted 3\\x1b]0;owned" in text and "unscorable: \\x1b" in text and "\\u202eevil" in text and "\n  line two" in text
    screen.seek(0), screen.truncate()
    tasks._print_map(History({found.task.id: found}, 1, {}, {}), [found], 5)
    assert "prompt \\x1b]0;owned\\x07\\x1b[2J" in said(screen)


def test_equal_decisions_about_a_task_are_one_line_with_their_number(screen: io.StringIO) -> None:
    found = history()
    fault = {"step": 1, "slot": "environment", "action": "fault", "reason": "environment_raised: mine", "data": {}}
    decisions = [{**fault, "subject": f"s{i}"} for i in range(24)]
    decisions.insert(3, {**fault, "reason": "environment_time_out: 60 s", "subject": "x"})
    data = {**tasks._row(found), "story": [], "decisions": decisions, "best_failed": None}
    tasks._print_story(found, data)
    text = said(screen)
    assert text.count("environment_raised: mine") == 1 and re.search(r"environment_raised: mine  × 24 *\n", text)
    assert text.count("environment_time_out: 60 s") == 1 and "60 s  ×" not in text


def test_errors_notes_and_recipes(screen: io.StringIO) -> None:
    with pytest.raises(boundary.typer.Exit):
        boundary._fail(1, "ConfigError", f"the task {HOSTILE}", f"look at {HOSTILE}", False, False)
    boundary.print_notes(boundary.out, [HOSTILE])
    catalog._print_check(parse({"name": PROMPT, "model": {"path": "[red]x\x1b[0m"}}), [], None)
    text = said(screen)
    assert "the task \\x1b]0;owned" in text and "look at \\x1b" in text and "note: \\x1b" in text
    assert "[/bold][link=x] end" in text and "[red]x\\x1b[0m" in text


def test_a_debug_traceback_too(screen: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        with pytest.raises(boundary.typer.Exit):
            boundary._fail(70, "ValueError", "a bug", "report it", True, False)
    error = capsys.readouterr().err
    assert "Traceback" in error and "ValueError: \\x1b]0;owned" in error and not ACTS.findall(error)


def test_names_with_markup_on_progress_lines_and_tables(screen: io.StringIO) -> None:
    console = SafeConsole(file=screen, force_terminal=True, width=200, highlight=False)
    bar = progress.progress_bar(console)
    bar.add_task("run [/bold]\x1b[2J", total=1, limit=1, unit="tokens", figures="")
    console.print(bar.get_renderable())
    with Progress(TextColumn("{task.description}", markup=False), console=console, disable=True):
        console.print(Text("\u202edone"))
    spread = {"mean": 0.5, "sd": None}
    best = {"label": "lr=[x]", "start": spread, "final": spread, "final_greedy": spread, "auc": {**spread, "n": 1}, "tokens": spread,
            "discarded_share": spread, "seconds": spread, "runs": []}  # fmt: skip
    arm = {"name": "a[/b]", "best": "lr=[x]", "variations": [best, {**best, "label": "two"}]}
    console.print(tables._variations_table({"arms": [arm]}))
    text = said(screen)
    assert "run [/bold]\\x1" in text and "\\u202edone" in text and "a[/b]" in text and "lr=[x]" in text


def test_the_kinds_and_reasons_of_a_verified_file(screen: io.StringIO) -> None:
    from gfcr.cli.verify import tables as verified
    from gfcr.filter.judge_file import Summary, Tally

    summary = Summary()
    summary.reasons[f"broken {HOSTILE}"] += 1
    summary.total = Tally(rows=2, expected=2, right=1)
    summary.kinds[f"kind {PROMPT}"] = Tally(rows=2, expected=2, right=1)
    for part in verified(summary):
        tasks.out.print(part)
    text = said(screen)
    assert "broken \\x1b]0;owned" in text and "kind \\x1b]0;owned" in text and "[/bold][link=x] end" in text
