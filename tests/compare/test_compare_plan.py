"""A comparison that would be unfair or ambiguous is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gfcr.compare.plan import BASE, make_plan, parse_seeds, read_plan, split_values, variations
from gfcr.errors import ConfigError, DataError


def refused(match: str, *args, **more) -> None:
    with pytest.raises(ConfigError, match=match):
        make_plan(*args, **more)


def test_cells_lie_by_recipe_variation_and_seed(tmp_path: Path) -> None:
    plan = make_plan(["grpo", "informative"], [0, 1], tmp_path, vary=["train.lr=3e-4,1e-3"])
    cells = list(plan.cells())
    assert len(cells) == 8 and {c.seed for c in cells[:4]} == {0}
    assert cells[0].directory == tmp_path / "grpo" / "train.lr=3e-4" / "seed-0"
    assert [c.variation.recipe.train.lr for c in cells[:2]] == [3e-4, 1e-3]


def test_without_vary_there_is_one_variation(tmp_path: Path) -> None:
    (arm,) = make_plan(["grpo"], [0], tmp_path).arms
    assert [v.label for v in arm.variations] == [BASE]


def test_two_arms_of_one_name(tmp_path: Path) -> None:
    refused("grpo and grpo both have the name 'grpo'(?s:.*)name = \"...\"(?s:.*)--vary", ["grpo", "grpo"], [0], tmp_path)


def test_unequal_budgets(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('name = "other"\n[tasks]\npool = "B3"\n[budget]\ntokens = 9000\n')
    refused("unequal budgets: 'grpo' has 150000 tokens, 'other' has 9000 tokens", ["grpo", str(other)], [0], tmp_path / "c")
    assert make_plan(["grpo", str(other)], [0], tmp_path / "c", budget=20000).budget == 20000


def test_different_tasks(tmp_path: Path) -> None:
    refused("not measured alike: tasks.pool is 'B3' and 'HARD'", ["grpo", "ar3po"], [0], tmp_path)
    make_plan(["grpo", "ar3po"], [0], tmp_path, overrides=["tasks.pool=HARD"])


def test_no_token_budget(tmp_path: Path) -> None:
    refused("needs a token budget", ["grpo"], [0], tmp_path, overrides=["budget.tokens=none", "budget.steps=3"])


def test_seeds() -> None:
    assert parse_seeds("0, 2,5-7") == [0, 2, 5, 6, 7]
    for bad in ("", "a", "3-1", "1,,2", "-1"):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(bad)


def test_a_seed_twice(tmp_path: Path) -> None:
    refused("names a seed twice", ["grpo"], [0, 0], tmp_path)


def test_values_split_at_outer_commas() -> None:
    assert split_values('1e-3, {name = "a", k = 2},[1,2],"x,y"') == ["1e-3", '{name = "a", k = 2}', "[1,2]", '"x,y"']


def test_variations_are_all_combinations() -> None:
    assert [label for label, _ in variations(["a.b=1,2", "c.d=x"])] == ["a.b=1 c.d=x", "a.b=2 c.d=x"]


@pytest.mark.parametrize(
    "bad", [["train.lr"], ["train.lr="], ["train.lr=1,1"], ["budget.tokens=1,2"], ["name=a,b"], ["a.b=1", "a.b=2"]]
)
def test_bad_variations(bad: list[str]) -> None:
    with pytest.raises(ConfigError, match="--vary"):
        variations(bad)


def test_plan_is_read_back_as_written(tmp_path: Path) -> None:
    plan = make_plan(["grpo", "dapo"], [0, 3], tmp_path / "c", vary=["train.lr=1e-4"])
    plan.write()
    assert [c.directory for c in read_plan(tmp_path / "c").cells()] == [c.directory for c in plan.cells()]
    assert [a.variations[0].recipe.hash() for a in read_plan(tmp_path / "c").arms] == [
        a.variations[0].recipe.hash() for a in plan.arms
    ]


def test_a_changed_recipe_is_refused_and_more_seeds_are_not(tmp_path: Path) -> None:
    out = tmp_path / "c"
    make_plan(["grpo"], [0], out).write()
    make_plan(["grpo", "dapo"], [0, 1], out).write()
    with pytest.raises(ConfigError, match="runs of another recipe 'grpo'"):
        make_plan(["grpo"], [0], out, overrides=["train.lr=1e-5"]).write()


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no comparison"):
        make_plan(["grpo"], [0], tmp_path).write()


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"plan\.json"):
        read_plan(tmp_path)
