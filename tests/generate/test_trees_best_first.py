"""The best-first tree: its order, its rules, its budget."""

from __future__ import annotations

import pytest

from gfcr.errors import ConfigError
from gfcr.generate.trees.rules import tail_of
from grove_cases import forks, grove_lab, grown, said

BEST = {"name": "best-first", "k": 2, "segment": 4, "first": 2, "branches": 1}


def texts(group):
    return [said(m.rollout) for m in group.members.values()]


def test_the_most_promising_goes_on_first_and_the_budget_stops_the_other():
    """Pseudo log-probabilities of the scripted engine: mean -.44 for a+00, -.85 for #100."""
    script = {"": ["#100", "a+00"], "a+00": ["#00$"], "#100": ["00$"]}
    made = grove_lab({**BEST, "wide": 1, "tokens": 12}, script, control={"min_members": 1})
    round_, group = grown(made)
    assert texts(group) == ["a+00#00$"] and dict(round_.failed) == {"tree_budget": 4}
    assert made.engine.usage().decoded == 12 == round_.budget.spent
    assert sorted(texts(grown(grove_lab({**BEST, "wide": 1}, script))[1])) == ["#10000$", "a+00#00$"]


def test_a_path_that_says_what_another_says_is_given_up_and_its_place_is_filled():
    script = {"": ["a+00", "a+00", "b+00"], "a+00": ["#00$", "#10$"], "b+00": ["#10$"]}
    round_, group = grown(grove_lab({**BEST, "prune": "duplicate"}, script))
    assert len(set(texts(group))) == 2 and dict(round_.failed) == {"pruned": 4}


def test_paths_in_one_state_go_on_as_one_and_nothing_is_grafted():
    script = {"": ["a+00", "b+00"], "a+00": ["#00$", "#10$"], "b+00": ["#00$", "#10$"]}
    apart = grown(grove_lab(BEST, script))[1]
    assert sorted(t[0] for t in texts(apart)) == ["a", "b"]
    round_, one = grown(grove_lab({**BEST, "branches": 2, "merge": "text", "tail": 3}, script))
    assert len({t[0] for t in texts(one)}) == 1 and len(texts(one)) == 2 and dict(round_.failed) == {"merged": 4}
    assert forks(one)[0] == (texts(one)[0][:4], 2)
    assert tail_of("A  b\n C", 3) == "b c"


def test_what_lies_far_below_the_best_is_given_up():
    script = {"": ["#100", "a+00"], "a+00": ["#00$"], "#100": ["00$"]}
    round_, group = grown(
        grove_lab({**BEST, "prune": "margin", "margin": 0.2, "branches": 2}, {**script, "a+00": ["#00$", "#10$"]})
    )
    assert sorted(texts(group)) == ["a+00#00$", "a+00#10$"] and dict(round_.failed) == {"pruned": 4}
    assert dict(grown(grove_lab({**BEST, "prune": "margin", "margin": 9.0}, script))[0].failed) == {}


def test_value_forks_where_leaves_below_disagree():
    """Two trunks; below a one right and one wrong leaf, below b two wrong ones: the fifth leaf is forked off a's."""
    topology = {**BEST, "k": 5, "branches": 2, "wide": 2, "score": "value", "fork": "segment"}
    script = {
        "": ["a+00", "b+00", *["c+00"] * 3],
        "a+00": ["#00$", "#10$", *["#20$"] * 9],
        "b+00": ["#10$", "#20$", *["#30$"] * 9],
        "c+00": ["#00$"] * 3,
    }
    made = grove_lab({**topology, "wide": 1}, script)
    _, group = grown(made)
    looked = [m for m in group.members.values() if m.signals.verdict is not None]
    assert len(looked) == 5 == len(texts(group))
    assert sum(t.startswith("b") for t in texts(group)) == 2


def test_rules_of_ones_own_and_names_that_are_none():
    script = {"": ["a+00", "a+00"], "a+00": ["#00$", "#10$"]}
    own = {**BEST, "score": "gfcr.generate.trees.rules:by_entropy"}
    assert sorted(texts(grown(grove_lab(own, script))[1])) == ["a+00#00$", "a+00#10$"]
    with pytest.raises(ConfigError, match=r"score = 'valeu'.*\n?.*did you mean 'value'"):
        grove_lab({**BEST, "score": "valeu"})


@pytest.mark.parametrize(
    ("key", "body", "said"),
    [
        ("fork", "def rule(tree, shoot, rng): return 5", "gave 5, which is neither"),
        (
            "fork",
            "def rule(tree, shoot, rng): return shoot, 10**6",
            "gave offset 1000000, and the path's own tokens stand from",
        ),
        ("fork", "def rule(tree): return None", "raised TypeError: rule.. takes 1 positional argument but 3 were given"),
        ("score", "def rule(tree, shoot): return float('nan')", "gave nan, which is no finite number"),
        ("prune", "def rule(tree, shoots, margin, text): return ['x']", "which is no mapping of names to reasons"),
        ("prune", "def rule(tree, shoots, margin, text): raise KeyError('mine')", "raised KeyError: 'mine'"),
        ("merge", "def rule(text, characters): return None", "gave None, which is no text"),
    ],
)
def test_a_rule_of_ones_own_that_goes_wrong_is_named(key, body, said, tmp_path):
    (tmp_path / "rules.py").write_text(body)
    script = {"": ["a+00", "b+00"], "a+00": ["#00$", "#10$"], "b+00": ["#00$", "#10$"]}
    with pytest.raises(ConfigError, match=f"generate.topology.{key} = .*rules.py:rule' .*{said}"):
        grown(grove_lab({**BEST, "k": 4, "branches": 2, key: f"{tmp_path}/rules.py:rule"}, script))
