"""`gfcr sample`: one task's rollouts, with the recipe's own parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"
HARD = ["hint", "--task", "5"]
SMALL_TREES = {
    "treepo": ["--task", "3", "--set", "generate.topology.k=4"],
    "treerl": ["--task", "3", "--set", "generate.topology.trees=2"],
    "tree_grpo": ["--task", "5", "--set", "generate.topology.trees=2", "--set", "generate.topology.keep=2"],
}
EVERY = {
    **SMALL_TREES,
    "treerpo": ["--task", "9"],
    "best_first": ["--task", "5"],
    "grpo": ["--task", "300", "-n", "3"],
    "registers_turns": ["--task", "5", "-n", "3"],
    "hint": ["--task", "5", "-n", "4"],
    "reference": ["--task", "5", "-n", "4"],
    "reflect": ["--task", "5", "-n", "2"],
    "power_rft": ["--task", "3", "-n", "2"],
    "oracle": ["--task", "5", "--set", "generate.partial={tokens=8}"],
}


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d\d s\b", "_ s", text)


@pytest.mark.parametrize(
    "args, shown",
    [
        (["grpo", "--task", "300", "-n", "3"], ["of 3 judged right", "advantage", "decoded 48 tokens (16.0 a rollout)"]),
        (["registers_turns", "--task", "5", "-n", "2"], ["observation", "registers:", "env terminated", " steps, "]),
        (HARD, ["guidance", "guided", "of 4 with help right", "not in the loss: replaced", "guidance told beside the task"]),
    ],
)
def test_what_was_sampled_is_shown_with_its_author(cli, args, shown):
    said = cli("sample", *args).stdout
    assert all(part in said for part in ["prompt", "policy", "who wrote a piece", *shown]), said
    assert without_seconds(cli("sample", *args).stdout) == without_seconds(said)  # the same seed, the same draws


@pytest.mark.parametrize("recipe", SMALL_TREES)
def test_a_tree_of_a_real_run_as_it_is_printed(cli, recipe):
    said = without_seconds(cli("sample", recipe, *SMALL_TREES[recipe]).stdout)
    file = GOLDEN / f"sample_{recipe}.txt"
    assert said == file.read_text("utf-8"), f"if this is meant: write it to {file}\n{said}"


@pytest.mark.parametrize("recipe", EVERY)
def test_pieces_stand_once_and_what_they_cost_adds_up_to_ledger_and_engine(cli, recipe):
    found = cli.json("sample", recipe, *EVERY[recipe])
    nodes, rollouts, cost = {n["id"]: n for n in found["nodes"]}, found["rollouts"], found["cost"]
    assert len(nodes) == len(found["nodes"])
    for node in nodes.values():
        assert node["parent"] is None or node["parent"] in nodes
    pieces = sum(n["tokens"] for n in nodes.values() if n["kind"] == "action")
    assert pieces + sum(cost["spilled"].values()) == cost["decoded"] == cost["engine"]["decoded"] > 0
    for what in ("decoded", "prefilled", "cached", "env_steps", "judged"):
        aside = sum(cost["spilled"].values()) if what == "decoded" else cost["spilled_context"].get(what, 0)
        assert sum(r["cost"][what] for r in rollouts) + aside == cost[what]
    assert {w: cost[w] for w in ("prefilled", "cached", "scored")} == {
        w: cost["engine"][w] for w in ("prefilled", "cached", "scored")
    }
    assert cost["trained_on"] + sum(cost["discarded"].values()) + cost["parked"] == cost["decoded"]
    assert sum(r["cost"]["tool_seconds"] for r in rollouts) == pytest.approx(cost["tool_seconds"], abs=1e-3)
    assert (cost["env_steps"] > 0) == (recipe in ("registers_turns", "tree_grpo"))


def test_a_trees_shared_tokens_stand_once_in_the_drawing(cli):
    args = ["sample", "treerl", *SMALL_TREES["treerl"]]
    said, found = cli(*args).stdout, cli.json(*args)
    drawn = [int(n) for n in re.findall(r"^[│├└─ ]*policy (\d+) ", said, re.MULTILINE)]
    assert sum(drawn) == found["cost"]["decoded"]
    shared = sum(
        n["tokens"] for r in found["rollouts"] for n in found["nodes"] if n["id"] in r["path"] and n["kind"] == "action"
    )
    assert shared > sum(drawn)


def test_tokens_come_with_their_log_probabilities(cli):
    found = cli.json("sample", "grpo", "--task", "0", "-n", "2", "--tokens")
    own = [n for n in found["nodes"] if n["kind"] == "action"]
    assert own and all(len(n["ids"]) == len(n["logprobs"]) == n["tokens"] for n in own)
    assert sum(sum(n["logprobs"]) for n in own) == pytest.approx(sum(r["logprob"] for r in found["rollouts"]), abs=1e-4)
    said = cli("sample", "grpo", "--task", "0", "-n", "2", "--tokens").stdout
    assert len(re.findall(r"\[-\d\.\d\d\]", said)) == sum(n["tokens"] for n in own)


def test_a_prompt_of_ones_own_is_unscored_not_wrong(cli):
    found = cli.json("sample", "grpo", "--prompt", "c-d*?65", "-n", "2")
    assert [(r["correct"], r["reward"]) for r in found["rollouts"]] == [(None, None)] * 2
    result = cli("sample", "hint", "--prompt", "c-d*?65", "-n", "2")
    said = " ".join(re.sub("[│├└─]", "", result.stdout).split())
    assert "unscored" in said and "nothing was judged" in said and "the task has no reference" in said and "None" not in said
    assert "hint would help with its solution, and has none" in result.stderr


def test_a_prompt_of_the_recipe_is_the_recipes_task(cli):
    task = cli.json("sample", "grpo", "--task", "0", "-n", "2")["task"]
    from gfcr.recipe import load
    from gfcr.task_sets import load_tasks

    prompt = load_tasks(load("grpo").tasks).tasks[0].prompt
    assert cli.json("sample", "grpo", "--prompt", prompt, "-n", "2")["task"] == task != {}


@pytest.mark.parametrize(
    "args, said",
    [
        (["grpo"], "give --task INDEX"),
        (["grpo", "--task", "0", "--prompt", "c-?65"], "needs one task"),
        (["grpo", "--task", "100000"], "the recipe has 640 tasks"),
        (["grpo", "--task", "nobody"], "no task of the recipe has this id"),
        (["grpo", "--task", ""], "no task of the recipe has this id"),
        (["grpo", "--task", "a"], "ids that begin so"),
        (["grpo", "--prompt", "Wie geht's?"], "characters that the tokenizer does not know"),
        (["grpo", "--prompt", ""], "--prompt '' has no words"),
        (["grpo", "--prompt", " \n\t"], "has no words"),
        (
            ["registers_turns", "--prompt", "hello"],
            "'hello' is not a register program remedy: the environment 'registers' cannot",
        ),
        (["grpo", "--task", "0", "-n", "1"], "does not compose"),
        (
            ["treerpo", "--task", "0", "-n", "4"],
            "'treerpo' has no number of rollouts to set; its 27 follow from children = 3, depth = 3",
        ),
        (["treerl", "--task", "0", "-n", "4"], "follow from trees = 3, forks = 2, rounds = 2, continuations = 1"),
        (
            ["tree_grpo", "--task", "0", "-n", "4"],
            "follow from trees = 2, keep = 4 remedy: leave -n out, or change the shape, for example",
        ),
        (
            ["ppo", "--task", "0", "-n", "4", "--set", "generate.topology=linear"],
            "makes one rollout of a task remedy: leave -n out",
        ),
        (["smollm2_plan", "--task", "0"], "run `make smollm2`"),
    ],
)
def test_bad_input_is_told_with_a_remedy(cli, args, said, monkeypatch, tmp_path):
    monkeypatch.setenv("GFCR_SMOLLM2", str(tmp_path / "none"))
    assert said in cli.error("sample", *args)
