"""What `gfcr sample` draws of hostile texts, on narrow terminals, without colour, into a pipe."""

from __future__ import annotations

import io
import re

import pytest
from test_cli_shown import ACTS, COLOUR, HOSTILE

from gfcr.cli import sampled
from gfcr.cli.sampled_data import as_data
from gfcr.cli.shown import SafeConsole
from gfcr.recipe import load
from gfcr.run.one_task import find_task, sample_task, sampling_parts

VERDICT = "\nwrong  reward 9\n└── policy 3  x"
RTL = "שלום مرحبا"
GUIDES = re.compile("^[│├└─ ]*")


@pytest.fixture(scope="module")
def found():
    """A real tree of the lab model: forks, shared pieces."""
    recipe = load("treerl", ["generate.topology.trees=2"])
    with sampling_parts(recipe, 0) as parts:
        yield sample_task(parts, find_task(parts, "3"))


def drawn(found, text: str, width: int = 100, tokens: bool = False, full: bool = False, **how) -> str:
    """What stands on the terminal where every piece of text is `text`; nothing in it acts."""
    stream = io.StringIO()
    console = SafeConsole(
        file=stream, width=width, highlight=False, **{"force_terminal": True, "color_system": "truecolor", **how}
    )
    sampled.show(console, found, lambda ids: text, tokens, full)
    said = COLOUR.sub("", stream.getvalue())
    assert set(ACTS.findall(said)) <= {"\u200c", "\u200d"}  # joiners, which scripts need
    return said


def pieces(found) -> int:
    """Pieces of text that stand on the terminal."""
    return len({node.id for m in found.group.members.values() for node in m.rollout.path})


@pytest.mark.parametrize("tokens", [False, True])
def test_hostile_answers_are_shown_and_not_obeyed(found, tokens):
    said = drawn(found, HOSTILE + "\r\0\x08\x7f", tokens=tokens, width=400)
    assert "\\x1b]0;owned\\x07\\x1b[2J" in said and "\\u202eevil" in said and "\\r" not in said
    assert "[/bold][link=x] end\\x0d\\x00\\x08\\x7f" in said  # markup stands there, and what a terminal would act on


def test_an_answer_that_looks_like_a_verdict_stays_in_its_column(found):
    said = drawn(found, VERDICT)
    labels = [len(f"{n.segment.kind} {len(n.segment)}") for m in found.group.members.values() for n in m.rollout.path]
    forged = [line for line in said.splitlines() if "reward 9" in line or "policy 3  x" in line]
    assert len(forged) == 2 * pieces(found)
    for line in forged:
        before = line[: re.search("wrong|└── policy 3", line).start()]
        assert before.endswith(" " * (min(labels) + sampled.GAP))


def test_right_to_left_wide_and_joined_characters_are_whole(found):
    for text in (RTL, "数学の答え", "👩\u200d👧 नि\u200cर"):
        assert drawn(found, text, width=200).count(text) == pieces(found)


def test_long_answers_are_cut_in_their_middle_and_full_shows_them(found):
    text = "begin " + "\u00fe" * 9_000 + " end"
    cut, whole = drawn(found, text), drawn(found, text, full=True)
    assert whole.count("\u00fe") == 9_000 * pieces(found) and cut.count("\u00fe") == (sampled.LONGEST - 10) * pieces(found)
    assert "[7,810 characters left out]" in " ".join(cut.split()) and "--full" in cut and "--full" not in whole


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_loses_nothing(found, width):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    said = drawn(found, letters, width=width)
    one = "".join(GUIDES.sub("", line).strip() for line in said.splitlines())
    for part in (letters[:12], letters[-4:]):
        assert one.count(part) >= pieces(found)
    longest = max(len(line) for line in said.splitlines()[: said.count("\n") // 2])
    assert longest <= max(width, 60)


def test_no_colour_says_the_same(found, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    sampled.show(SafeConsole(file=stream, width=100, highlight=False, force_terminal=True), found, lambda ids: "x", False)
    codes = set(re.findall("\x1b\\[([0-9;]*)m", stream.getvalue()))
    assert not {c for code in codes for c in code.split(";")} & {str(n) for n in (*range(30, 38), *range(90, 98))}
    assert COLOUR.sub("", stream.getvalue()) == drawn(found, "x")


def test_into_a_pipe_there_are_no_codes_and_no_blanks_at_the_ends_of_lines(found):
    stream = io.StringIO()
    sampled.show(SafeConsole(file=stream, width=140, highlight=False), found, lambda ids: "x", False)
    assert "\x1b" not in stream.getvalue() and not re.search(r" $", stream.getvalue(), re.MULTILINE)


def test_json_has_the_texts_as_they_are(found):
    data = as_data(found, lambda ids: HOSTILE, False)
    assert {node["text"] for node in data["nodes"]} == {HOSTILE}
