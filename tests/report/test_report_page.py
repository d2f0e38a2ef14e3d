"""Pages stand alone, escape what the model wrote, and say what was measured."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import report_cases
from gfcr.compare.plan import make_plan
from gfcr.errors import DataError
from gfcr.report import samples, write_report
from gfcr.report.charts import axis
from gfcr.report.compare_page import mean_curve
from report_cases import EVIL


class Page(HTMLParser):
    """Collects tags, attributes and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


def stands_alone(html: str, links: bool = False) -> Page:
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form"), tag
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "action", "data", "poster") and not name.startswith("on"), (tag, name)
            if name in ("href", "xlink:href"):
                assert (value or "").startswith("#") or (links and re.fullmatch(r"[\w./=%+-]+/report\.html", value or "")), (
                    value
                )
    assert "://" not in re.sub(r"\s", "", html)
    assert not re.search(r"@import|url\(", html)
    return page


@pytest.fixture
def evil_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_decoder", lambda run: lambda token: EVIL)


def test_run_page_escapes_what_the_model_wrote(tmp_path: Path, evil_tokens: None) -> None:
    of = report_cases.recipe(name=EVIL)
    html = write_report(report_cases.write_run(tmp_path / "r", report_cases.finished_rows(), of, evil=EVIL)).read_text()
    page = stands_alone(html)
    assert len(page.scripts) == 1 and "alert" not in page.scripts[0]
    assert page.text.count(EVIL) > 10


def test_run_page_says_what_happened(tmp_path: Path) -> None:
    page = stands_alone(write_report(report_cases.write_run(tmp_path / "r", report_cases.finished_rows())).read_text())
    text = " ".join(page.text.split())
    assert "Held-out accuracy went from .250 to .750 at temperature 1" in text
    assert "800 generated tokens of a budget of 1,000" in text
    assert "right, injected" in text and "zero variance" in text and "dropped replaced" in text
    assert (
        "log p -0.500 (p 0.607)" in str(page.tags)
        and "advantage +0.500" in str(page.tags)
        and "entropy 0.40 nats" in str(page.tags)
    )
    charts = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert len(charts) == 9


def test_run_page_without_an_evaluation_or_a_step(tmp_path: Path) -> None:
    for name, rows in (("none", []), ("first", [report_cases.row(0, 0)])):
        page = stands_alone(write_report(report_cases.write_run(tmp_path / name, rows)).read_text())
        assert "no held-out figure yet" in page.text and "not finished" in page.text and "nan" not in page.text.lower().split()


def test_compare_page(tmp_path: Path) -> None:
    plan = make_plan(["grpo", "dapo"], [0, 1], tmp_path / "c", budget=10000)
    plan.write()
    for i, cell in enumerate(plan.cells()):
        rows = [
            report_cases.row(0, 0, 0.2),
            report_cases.row(1, 5000, 0.3 + i / 10),
            report_cases.row(2, 9000, 0.4 + i / 10, "budget"),
        ]
        if i < 3:
            report_cases.write_run(cell.directory, rows, cell.variation.recipe, cell.seed)
    page = stands_alone(write_report(tmp_path / "c").read_text(), links=True)
    text = " ".join(page.text.split())
    assert "1 run(s) are not in these figures: dapo seed 1 (not started)" in text
    assert ".500 ± .141" in text and "+.100" in text
    lines = [a["class"] for tag, a in page.tags if tag == "polyline"]
    assert "line thin" in lines and "line main" in lines


def test_a_directory_of_neither_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a run nor a comparison"):
        write_report(tmp_path)


def test_ticks_are_round_and_cover_the_data() -> None:
    found = axis("x", [3.0, 148_912.0])
    assert found.ticks == [0, 25_000, 50_000, 75_000, 100_000, 125_000, 150_000] and found.high == 150_000
    assert axis("x", [-0.07, 0.02], low=None).low == pytest.approx(-0.08)
    assert axis("x", []).high > 0


def test_mean_curve_holds_the_last_value() -> None:
    grid, mean = mean_curve([[(0, 0.0), (50, 0.5)], [(0, 0.5), (100, 0.5)]], 100)
    assert (grid[-1], mean[0], mean[-1]) == (100, 0.25, 0.5)
    assert mean[60] == pytest.approx(0.5)


def test_a_run_that_trained_nothing_says_so(tmp_path: Path) -> None:
    rows = [report_cases.row(0, 0, 0.25), report_cases.row(1, 400, untrained="2 groups all_wrong")]
    page = write_report(report_cases.write_run(tmp_path / "r", rows))
    text = " ".join(Page(page.read_text()).text.split())
    assert "Held-out accuracy was measured once: .250 at temperature 1" in text and "went from" not in text
    assert "Nothing was trained: 2 groups all_wrong." in text and "1 steps, 0 of them trained" in text


def test_the_page_shows_measured_error_rates_with_their_intervals(tmp_path: Path) -> None:
    from gfcr.filter.judging import Judging

    judging = Judging()
    for right, says, n in ((True, True, 80), (True, False, 20), (False, True, 5), (False, False, 95)):
        for _ in range(n):
            judging.said("quick", says).decide(right, 1.0)
    judging.said("gate", False)
    judging.book("quick", True, 200, 1.5, 0)
    judging.skipped["slow"] = 7
    rows = report_cases.finished_rows()
    rows[-1] |= {**judging.metrics(), **judging.use_metrics()}
    page = stands_alone(write_report(report_cases.write_run(tmp_path / "r", rows)).read_text())
    text = "".join(page.text.split())  # cells of a table stand side by side
    found = re.search(r"quickrightanswerscalledwrong20\.0%([\d.]+)to([\d.]+)%100", text)
    assert found and float(found[1]) < 20 < float(found[2]) and float(found[2]) - float(found[1]) < 20
    assert re.search(r"quickwronganswerscalledright5\.0%[\d.]+to[\d.]+%100", text)
    assert "gaterightanswersamongthoserefused–0" in text
    assert "quick2001.50" in text and "slow00.07" in text
    assert "quick:of115answersitcalledwrong,115weredecidedbythedearestverifiertoo" in text
    plain = write_report(report_cases.write_run(tmp_path / "plain", report_cases.finished_rows())).read_text()
    assert 'id="verifiers"' not in plain
