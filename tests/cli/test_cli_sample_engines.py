"""`gfcr sample` with the engine in several processes, over HTTP, and with the weights of a run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "http"))

import pytest
from front import Front
from real_runs import create

from gfcr.recipe import load
from gfcr.run.directory import RunDirectory
from gfcr.run.one_run import recipe_of, trained_parts
from gfcr.run.one_task import Standing, find_task, sample_task
from gfcr.run.session import Session

TASK = ["sample", "grpo", "--task", "300", "-n", "4"]


def texts(found):
    nodes = {node["id"]: node for node in found["nodes"]}
    return [[nodes[i]["text"] for i in rollout["path"]] for rollout in found["rollouts"]]


def test_two_processes_sample_what_one_does(cli):
    one, two = cli.json(*TASK), cli.json(*TASK, "--set", "engine.workers=2")
    assert texts(two) == texts(one)
    assert [r["logprob"] for r in two["rollouts"]] == pytest.approx([r["logprob"] for r in one["rollouts"]], abs=1e-3)
    assert two["cost"]["decoded"] == two["cost"]["engine"]["decoded"] == one["cost"]["decoded"]


def test_over_http_every_token_is_the_servers(cli):
    front = Front()
    try:
        http = f'{{urls = ["{front.url}"], seconds = 8.0, pause = 0.01}}'
        args = [*TASK, "--set", "engine.name=vllm", "--set", f"engine.http={http}", "--set", "engine.slots=8"]
        found = cli.json(*args)
        nodes = [node for node in found["nodes"] if node["kind"] == "action"]
        assert len(found["rollouts"]) == 4 and all(node["tokens"] for node in nodes)
        assert found["cost"]["decoded"] == sum(node["tokens"] for node in nodes) == found["cost"]["engine"]["decoded"]
        assert front.sampled() >= found["cost"]["decoded"]
        assert all(r["logprob"] < 0 for r in found["rollouts"])
        assert "of 4 judged right" in cli(*args).stdout
    finally:
        front.kill()
    said = cli.error(*args)
    assert front.url in said


@pytest.mark.parametrize("ids", [True, False])
def test_an_endpoint_whose_weights_are_somebody_elses_is_sampled_and_never_trained(cli, ids, tmp_path):
    front = Front()
    try:
        http = f'{{urls = ["{front.url}"], pause = 0.01, token_ids = {str(ids).lower()}}}'
        over = ["--set", "engine.name=openai", "--set", f"engine.http={http}"]
        found = cli.json(*TASK, *over, "--tokens")
        nodes = [node for node in found["nodes"] if node["kind"] == "action"]
        assert len(found["rollouts"]) == 4 and all(node["tokens"] for node in nodes)
        assert {r["correct"] for r in found["rollouts"]} == {True, False}  # both, with this seed
        for one in [*(r["logprob"] for r in found["rollouts"]), *(n["logprobs"] for n in nodes)]:
            assert (one is not None) == ids
        shown = cli(*TASK, *over, "--tokens").stdout
        assert ("log-probability not known" in shown) == (not ids) and "nan" not in shown
        said = cli.error("run", "grpo", "--out", tmp_path / "run", *over)
        assert "`gfcr sample`" in said and ("takes no weights" in said) == ids
        if not ids:
            said = cli.error(*TASK, *over, "--set", "generate.sampling.top_k=5")
            assert "asked for no other law" in said
            assert cli.json(*TASK, *over, "--set", "generate.sampling.top_p=0.9")["rollouts"]
    finally:
        front.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped after two steps, its last checkpoint two steps old."""
    path = tmp_path_factory.mktemp("runs") / "run"
    session = create(path, "budget.steps=4", "run.checkpoint_every=4", "train.lr=3e-3", "evaluate.limit=4")

    def stop(row):
        if row["step"] == 2:
            raise KeyboardInterrupt

    session.progress = stop
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.directory.close()
    with RunDirectory.read(path) as stopped:
        point = stopped.resume_point()
        assert point.step == 2 and len(point.batches) == 2
    return path


def contents(path):
    """Files with what is in them; what SQLite makes for a reader (an empty log, shared memory) holds nothing of the run."""
    files = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return {name: data for name, data in files.items() if data and not name.endswith("-shm")}


def test_a_run_is_sampled_with_its_last_weights_and_left_as_it_was(cli, run):
    before = contents(run)
    found = cli.json("sample", run, "--task", "1")
    assert contents(run) == before
    assert found["step"] == 2
    of_start = cli.json("sample", run / "recipe.json", "--task", "1")
    assert of_start["step"] is None and of_start["task"] == found["task"]
    assert [r["logprob"] for r in of_start["rollouts"]] != [r["logprob"] for r in found["rollouts"]]
    assert "weights of step 2" in cli("sample", run, "--task", "1").stdout


def test_what_is_sampled_is_what_the_resumed_run_would(run):
    session = Session.resume(run)
    try:
        with trained_parts(str(run), recipe_of(str(run)), session.parts.seed) as (parts, standing):
            task = find_task(parts, "1")
            mine = sample_task(parts, task, standing)
            theirs = sample_task(session.parts, task, Standing(session.round, session.version, standing.progress))
            assert parts.slots.memory.state_dict() == session.parts.slots.memory.state_dict()
        assert standing.progress == session.budget.over(session.step, session.recipe.budget.steps) > 0
        for one, two in zip(mine.group.members.values(), theirs.group.members.values(), strict=True):
            assert [n.segment.ids.tolist() for n in one.rollout.path] == [n.segment.ids.tolist() for n in two.rollout.path]
            for a, b in zip(one.rollout.actions(), two.rollout.actions(), strict=True):
                assert a.logprobs.tolist() == b.logprobs.tolist() and a.version == b.version
                assert not one.fresh or a.version == session.version == 2
    finally:
        session.directory.close()


def test_a_changed_recipe_keeps_the_weights_and_says_what_it_left_out(cli, run):
    result = cli("sample", run, "--task", "1", "--set", "generate.max_tokens=32")
    assert "its memory, were left out" in result.stderr and "weights of step 2" in result.stdout
    assert "the weights of" in cli.error("sample", run, "--task", "1", "--set", "train.lr=1e-4")


def test_a_directory_without_weights(cli, run, tmp_path):
    assert "a directory, not a recipe" in cli.error("sample", tmp_path, "--task", "0")
    recipe = load("grpo")
    RunDirectory.create(tmp_path / "new", {"recipe": recipe.frozen(), "seed": 0, "hash": recipe.hash(), "tasks": {}}).close()
    assert "has no weights to sample from: nothing was committed yet" in cli.error("sample", tmp_path / "new", "--task", "0")
