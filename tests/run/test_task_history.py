"""What a run did with each task, on a real run: nothing is lost, nothing is counted twice, the posterior is the run's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import real_runs
from typer.testing import CliRunner

from gfcr.cli.main import app
from gfcr.report import write_report
from gfcr.run.directory import RunDirectory
from gfcr.run.task_history import History, Kind, read_history


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven steps of the four-module recipe; it injects."""
    path = tmp_path_factory.mktemp("history") / "run"
    real_runs.create(path).run()
    return path


@pytest.fixture(scope="module")
def history(run: Path) -> History:
    with RunDirectory.read(run) as reader:
        return read_history(reader)


def gfcr(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


def test_the_posterior_is_the_committed_one(run: Path, history: History) -> None:
    with RunDirectory.read(run) as reader:
        state = reader.state(reader.last_step())["slots"]["posterior"]  # type: ignore[arg-type]
    visits = sum(v.right + v.wrong > 0 for t in history.tasks.values() for v in t.visits if v.state == "closed")
    assert visits == state["visits"].sum()
    for task in history.tasks.values():
        assert task.visits[-1].after == pytest.approx(task.mean, abs=0.2) and 0 < task.mean < 1
        for earlier, later in zip(task.visits, task.visits[1:]):
            assert earlier.step <= later.step
    assert any(v.before != v.after for t in history.tasks.values() for v in t.visits)


def test_every_generated_token_is_somebodys(run: Path, history: History) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    spent = [t.tokens() for t in history.tasks.values()]
    assert sum(sum(s.values()) for s in spent) == rows[-1]["tokens_generated"]
    assert sum(s.get("trained on", 0) for s in spent) == rows[-1]["tokens_generated"] - rows[-1]["tokens_discarded"]
    assert sum(v.injected for t in history.tasks.values() for v in t.visits) == sum(r.get("injected") or 0 for r in rows)
    with RunDirectory.read(run) as reader:
        groups = [group for step in reader.steps() for group in reader.groups(step)]
    assert sum(t.right for t in history.tasks.values()) == sum(g.outcomes()[0] for g in groups)
    assert sum(t.wrong for t in history.tasks.values()) == sum(g.outcomes()[1] for g in groups)
    assert sum(n for (name, _), n in history.verdicts.items() if name == "format") == sum(len(g.fresh()) for g in groups)


def test_the_map(run: Path, history: History) -> None:
    data = json.loads(gfcr("tasks", run, "--json"))
    assert data["met"] == len(history.tasks) and data["tasks"] == 4
    assert sum(data["kinds"].values()) == data["met"]
    for row in data["rows"]:
        mean, right, judged = row["posterior_mean"], row["right"], row["right"] + row["wrong"]
        kind = (
            "not judged"
            if not judged
            else "unsolved"
            if not right
            else "easy"
            if mean >= 0.8
            else "hard"
            if mean <= 0.2
            else "boundary"
        )
        assert row["kind"] == kind
    spent = [row["tokens"] for row in data["rows"]]
    assert spent == sorted(spent, reverse=True)
    means = [row["posterior_mean"] for row in json.loads(gfcr("tasks", run, "--sort", "mean", "--ascending", "--json"))["rows"]]
    assert means == sorted(means)
    some = Kind(data["rows"][0]["kind"])
    only = json.loads(gfcr("tasks", run, "--kind", some.replace(" ", "-"), "--limit", 1, "--json"))
    assert {r["kind"] for r in only["rows"]} == {str(some)} and only["listed"] == 1 and only["of"] == data["kinds"][some]
    assert "is no kind of task" in gfcr("tasks", run, "--kind", "nice", code=1)
    shown = gfcr("tasks", run)
    assert f"{data['met']} tasks met" in shown and data["rows"][0]["id"][:10] in shown


def test_the_story_of_a_task(run: Path, history: History) -> None:
    task = next(t for t in history.tasks.values() if t.right and t.wrong)
    data = json.loads(gfcr("why", run, task.task.id, "--json"))
    assert [v["step"] for v in data["story"]] == [v.step for v in task.visits]
    with RunDirectory.read(run) as reader:
        decided = list(reader.decisions(task=task.task.id))
        wrong = [a for a in task.attempts() if a.correct is False]
        failed = data["best_failed"]
        rollout = reader.rollout(failed["rollout"], failed["step"])
    assert [(d["slot"], d["action"], d["reason"]) for d in data["decisions"]] == [(d.slot, d.action, d.reason) for d in decided]
    assert {"select", "allocate", "round"} <= {d["slot"] for d in data["decisions"]}
    assert (failed["reward"] or 0) == max(a.reward or 0 for a in wrong) and failed["tokens"] == rollout.cost.generated
    assert failed["text"] and failed["evidence"]
    shown = " ".join(gfcr("why", run, task.task.id[:8]).split())
    assert "best failed attempt" in shown and "posterior" in shown and decided[0].reason in shown
    assert json.loads(gfcr("why", run, task.task.prompt, "--json"))["id"] == task.task.id
    assert "could be 4 tasks" in gfcr("why", run, "?", code=1)
    assert "has met no task" in gfcr("why", run, "nothing like this", code=1)


def test_the_page_has_the_map_and_every_method(run: Path, history: History) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", write_report(run).read_text()).split())
    assert f"{len(history.tasks)} tasks met of 4" in text
    for title in ("Tasks by difficulty", "Answers that were not simply judged", "could not be judged (UNSCORABLE)"):
        assert title in text
    for name, slot in (("ar3po", "replay.augment"), ("informative", "control.select"), ("format", "filter.gates")):
        assert f"{name} {slot}" in text
    assert re.search(r"inject \d", text) and "different tasks 4" in text
