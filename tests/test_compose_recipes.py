"""The composition check on whole recipes: what is used in practice composes, what cannot work is found early."""

from pathlib import Path

import pytest

from gfcr.build import check_recipe
from gfcr.recipe import load, parse
from gfcr.registry import INDEX, find

RECIPES = Path(__file__).parents[1] / "recipes"
REAL_LIFE = {
    "plain GRPO": {},
    "Dr.GRPO": {"filter": {"credit": {"name": "dr-grpo"}}, "loss": {"normalise": "constant"}},
    "RLOO": {"filter": {"credit": {"name": "rloo"}}, "loss": {"normalise": "sequence-mean"}},
    "DAPO": {"control": {"refill": {"name": "dynamic-sampling"}}, "filter": {"shape": {"name": "soft-overlong"}}},
    "overlong filtering": {"filter": {"admission": {"overlong": "mask"}}},
    "Kimi k1.5's length penalty": {"filter": {"credit": {"name": "dr-grpo"}, "shape": {"name": "kimi-length", "on": "all"}}},
    "REINFORCE++ on single answers": {
        "generate": {"topology": {"name": "linear"}},
        "filter": {
            "credit": {"name": "reinforce-pp"},
            "credit_batch": {"name": "whiten"},
            "admission": {"drop_zero_variance": False},
        },
    },
    "GDPO": {
        "filter": {
            "credit": {"name": "gdpo"},
            "credit_batch": {"name": "whiten", "over": "answers", "eps": 1e-4, "eps_on": "std"},
        }
    },
    "TreePO": {"filter": {"credit": {"name": "treepo"}, "credit_batch": {"name": "whiten"}}},
    "XRPO's sharpening, evidence, whitening": {
        "filter": {"credit_batch": [{"name": "xrpo-sharpening"}, {"name": "evidence"}, {"name": "whiten"}]}
    },
    "noise that differs by verifier": {
        "filter": {
            "credit": {"name": "dr-grpo"},
            "shape": {"name": "noise-correction", "by": {"a": {"false_negative": 0.4}}},
            "verifiers": [{"name": "noisy", "label": "a", "share": 0.5, "false_negative": 0.4}, {"name": "exact"}],
        }
    },
    "pass@k with MoPPS": {"control": {"select": {"name": "mopps"}}, "filter": {"credit": {"name": "pass-at-k"}}},
    "AR3PO, both halves": {
        "control": {"allocate": {"name": "staged"}},
        "replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]},
    },
    "informative and greedy on one posterior": {"control": {"select": {"name": "informative"}, "allocate": {"name": "greedy"}}},
    "truncated importance sampling": {"train": {"tis_cap": 2.0}},
    "bypass": {"train": {"ratio_base": "behaviour"}},
    "top-p on the embedded engine": {"generate": {"sampling": {"top_p": 0.9}}},
}


@pytest.mark.parametrize("name", REAL_LIFE)
def test_recipes_of_real_life_compose(name):
    assert check_recipe(parse(REAL_LIFE[name])) == []


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_recipes_compose(path):
    assert check_recipe(load(path)) == []


@pytest.mark.parametrize(
    ("recipe", "rule"),
    [
        ({"budget": {"tokens": None}}, "no_budget"),
        ({"budget": {"tokens": 100}}, "budget_too_small"),
        ({"control": {"groups": 4, "min_groups": 5}}, "min_groups"),
        ({"generate": {"topology": {"name": "group", "k": 1}}}, "group_of_one"),
        (
            {
                "control": {
                    "select": {"name": "informative"},
                    "refill": {"name": "dynamic-sampling"},
                    "allocate": {"name": "staged"},
                }
            },
            "refill_with_early_stop",
        ),
    ],
)
def test_recipes_that_cannot_work_are_found_before_anything_is_loaded(recipe, rule):
    assert [f.rule for f in check_recipe(parse(recipe))] == [rule]


def test_metadata_of_every_method_is_complete():
    for slot, names in INDEX.items():
        for name in names:
            found = find(slot, name)
            assert (found.name, found.slot) == (name, slot)
            assert found.title
            assert found.criterion in {"reliability", "coverage", "cost"}
            assert found.cls is not None and found.cls.__doc__
            assert all(field.description for field in found.settings.model_fields.values()), name
