"""`gfcr sample`: one task's rollouts, with the recipe's own parts."""

from __future__ import annotations

import pytest

HARD = ["hint", "--task", "5"]


@pytest.mark.parametrize(
    "args, shown",
    [
        (["grpo", "--task", "300", "-n", "3"], ["of 3 judged right", "advantage", "decoded 48 tokens (16.0 a rollout)"]),
        (["registers_turns", "--task", "5", "-n", "2"], ["observation", "registers:", "env terminated"]),
        (HARD, ["guidance", "guided", "of 4 with help right", "dropped: replaced"]),
    ],
)
def test_what_was_sampled_is_shown_with_its_author(cli, args, shown):
    said = cli("sample", *args).stdout
    assert all(part in said for part in ["prompt", "policy", *shown]), said
    assert cli("sample", *args).stdout.split("; scored")[0] == said.split("; scored")[0]  # the same seed, the same draws


def test_a_trees_shared_tokens_stand_once_and_the_cost_is_the_engines(cli):
    found = cli.json("sample", "treepo", "--task", "3000")
    nodes, rollouts = {n["id"]: n for n in found["nodes"]}, found["rollouts"]
    assert len(rollouts) == 12 and all(nodes[i] for r in rollouts for i in r["path"])
    sampled = sum(n["tokens"] for n in nodes.values() if n["kind"] == "action")
    assert sampled < sum(nodes[i]["tokens"] for r in rollouts for i in r["path"] if nodes[i]["kind"] == "action")
    assert found["cost"]["decoded"] == sum(r["decoded"] for r in rollouts) + sum(found["cost"]["spilled"].values())
    assert found["cost"]["cached"] > found["cost"]["prefilled"]


def test_tokens_come_with_their_log_probabilities(cli):
    found = cli.json("sample", "grpo", "--task", "0", "-n", "2", "--tokens")
    own = [n for n in found["nodes"] if n["kind"] == "action"]
    assert own and all(len(n["ids"]) == len(n["logprobs"]) == n["tokens"] for n in own)
    assert sum(sum(n["logprobs"]) for n in own) == pytest.approx(sum(r["logprob"] for r in found["rollouts"]), abs=1e-4)
    assert "-0." in cli("sample", "grpo", "--task", "0", "-n", "2", "--tokens").stdout


def test_a_prompt_of_ones_own_is_unscored_not_wrong(cli):
    found = cli.json("sample", "grpo", "--prompt", "c-d*?65", "-n", "2")
    assert [(r["correct"], r["reward"]) for r in found["rollouts"]] == [(None, None)] * 2
    assert "unscored" in cli("sample", "grpo", "--prompt", "c-d*?65", "-n", "2").stdout


@pytest.mark.parametrize(
    "args, said",
    [
        (["grpo"], "give --task INDEX"),
        (["grpo", "--task", "0", "--prompt", "c-?65"], "needs one task"),
        (["grpo", "--task", "100000"], "the recipe has 640 tasks"),
        (["grpo", "--task", "nobody"], "no task of the recipe has this id"),
        (["grpo", "--task", "a"], "ids that begin so"),
        (["grpo", "--prompt", "Wie geht's?"], "characters that the tokenizer does not know"),
        (["grpo", "--task", "0", "-n", "1"], "does not compose"),
    ],
)
def test_bad_input_is_told_with_a_remedy(cli, args, said):
    assert said in cli.error("sample", *args)
