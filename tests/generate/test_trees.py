"""Trees of samples: shared nodes, tokens booked once, order, copies, budgets; what each topology does at its edges."""

from __future__ import annotations

import pytest

from gfcr.build import group_tokens
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.errors import ConfigError
from gfcr.recipe import parse
from gfcr.registry import Slot, find, settings_of
from gfcr.types import StopReason, path_length
from grove_cases import forks, grove_lab, grown, said
from interactive_cases import pulses
from lifecycle_cases import decoder

TREEPO = {"name": "treepo", "k": 6, "segment": 5, "depth": 5}
BEST = {"name": "best-first", "k": 6, "segment": 5}
TOPOLOGIES = [
    TREEPO,
    {**TREEPO, "budget": "softmax", "fallback": "softmax", "prefer": "unlikely"},
    {**TREEPO, "budget": "fixed", "fallback": "min_logprob", "first": [1, 2]},
    {"name": "treerl", "trees": 2, "forks": 2, "rounds": 2, "continuations": 1},
    {"name": "treerpo", "children": 2, "depth": 3, "step": 6},
    {**BEST, "fork": "segment", "score": "logprob"},
    {**BEST, "fork": "surprisal", "score": "value", "wide": 1},
    {**BEST, "fork": "random", "score": "entropy", "branches": 3},
]
each = pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: "-".join(str(v) for v in t.values() if isinstance(v, str)))


def drawn(topology, n_tasks=3, limit=None):
    """A lab whose engine draws streams of its own, about 14 tokens long."""
    made = grove_lab(topology, max_tokens=24, n_tasks=n_tasks, limit=limit)
    made.engine = ScriptedEngine(settings=ScriptedSettings(mean_length=14.0), decode=decoder)
    made.engine.max_length = 1 << 20
    return made


def leaves(round_):
    """Every leaf by its id: text, stop, node ids, log-probabilities."""
    return {
        m.rollout.id: (
            said(m.rollout),
            m.rollout.stop,
            tuple(n.id for n in m.rollout.path),
            tuple(s.logprobs.tobytes() for s in m.rollout.actions()),
        )
        for g in round_.groups.values()
        for m in g.members.values()
    }


@each
def test_leaves_share_node_objects_and_every_token_is_booked_once(topology):
    made = drawn(topology)
    round_ = made.round()
    WaveDriver(made.engine, made.cascade).drive(round_)
    booked = shared = 0
    for group in round_.groups.values():
        nodes = {}
        for member in group.members.values():
            path = member.rollout.path
            booked += member.rollout.cost.generated
            assert [n.parent for n in path[1:]] == [n.id for n in path[:-1]]
            assert path_length(path) - len(path[0].segment) <= 24
            shared += sum(n.id in nodes for n in path[1:])
            assert all(nodes.setdefault(n.id, n) is n for n in path)
        assert len(group.members) <= made.recipe.k
    assert shared > 3
    assert booked + sum(round_.failed.values()) == made.engine.usage().decoded == round_.budget.spent
    assert not round_.failed and not round_.budget.reserved
    assert round_.settings.group_tokens == group_tokens(made.recipe) >= booked / len(round_.groups)


@each
def test_neither_the_order_of_ends_nor_a_copy_in_mid_growth_changes_a_leaf(topology):
    made = drawn(topology)
    one = made.round()
    WaveDriver(made.engine, made.cascade).drive(one)
    other = drawn(topology)
    two = other.round()
    StreamDriver(other.engine, other.cascade, other.engine.now).drive(two)
    assert leaves(two) == leaves(one)
    third = drawn(topology)
    cut, whole = third.round(), drawn(topology).round()
    driver = WaveDriver(third.engine, third.cascade)
    pulses(driver, cut, third.engine, 2)
    whole.load_state_dict(cut.state_dict())
    fresh = drawn(topology)
    WaveDriver(fresh.engine, fresh.cascade).drive(whole)
    assert leaves(whole) == leaves(one)


@each
def test_what_the_budget_refuses_ends_the_trees_and_nothing_is_lost(topology):
    made = drawn(topology, n_tasks=1, limit=60)
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"worst": 24})
    WaveDriver(made.engine, made.cascade).drive(round_)
    booked = sum(m.rollout.cost.generated for g in round_.groups.values() for m in g.members.values())
    assert round_.done and booked + sum(round_.failed.values()) == made.engine.usage().decoded <= 60


def test_treepo_regrows_from_a_segment_when_its_paths_end_early():
    topology = {"name": "treepo", "k": 3, "segment": 4, "first": [1, 1], "divide": 1}
    script = {"": ["a+00", *["a+20"] * 2], "a+00": ["#00$", "#10$", "#20$"], "a+20": ["#20$"] * 2}
    _, group = grown(grove_lab(topology, script))
    texts = [said(m.rollout) for m in group.members.values()]
    assert len(texts) == 3 and texts[0] == "a+00#00$" and len({t[4:] for t in texts}) > 1
    none = grown(grove_lab({**topology, "fallback": "none"}, script, control={"min_members": 1}))[1]
    assert [said(m.rollout) for m in none.members.values()] == ["a+00#00$"]


def test_treepo_ends_what_repeats_itself_and_what_is_deep_enough():
    topology = {"name": "treepo", "k": 2, "segment": 4, "first": [2, 2], "divide": 1, "depth": 3, "fallback": "none"}
    loop = {"": ["abab", "abcd"], "abab": ["abab"], "abcd": ["efgh"], "abcdefgh": ["ijkl"]}
    _, group = grown(grove_lab({**topology, "repeat_chars": 2, "repeat_times": 4}, loop))
    assert [(said(m.rollout), m.rollout.stop) for m in group.members.values()] == [
        ("abababab", StopReason.EARLY_EXIT),
        ("abcdefghijkl", StopReason.MAX_TOKENS),
    ]


def test_treepo_gives_extra_branches_evenly_or_to_the_likely():
    topology = {"name": "treepo", "k": 8, "segment": 2, "first": [2, 2], "divide": 4, "fallback": "none"}
    script = {"": ["00", "#3"], "00": ["1$"] * 8, "#3": ["1$"] * 8}
    assert [n for _, n in forks(grown(grove_lab(topology, script))[1])][1:] == [4, 1, 1, 1, 1, 4, 1, 1, 1, 1]
    likely = forks(grown(grove_lab({**topology, "budget": "softmax", "temperature": 0.01}, script))[1])
    unlikely = forks(grown(grove_lab({**topology, "budget": "softmax", "temperature": 0.01, "prefer": "unlikely"}, script))[1])
    assert sorted(n for _, n in likely if n > 1) == sorted(n for _, n in unlikely if n > 1) == [7, 8]
    assert {t for t, n in likely if n == 7} != {t for t, n in unlikely if n == 7}


def test_treerl_forks_at_no_first_token_and_not_after_a_stop_word():
    topology = {"name": "treerl", "trees": 1, "forks": 3, "rounds": 1, "continuations": 1, "stop_words": ["b"]}
    _, group = grown(grove_lab(topology, {"": ["ab00#00$"], "a": ["b11#11$"] * 3}))
    assert forks(group)[0] == ("a", 4)  # one token may be forked at; it is forked at three times
    _, group = grown(grove_lab({**topology, "stop_words": ["a"]}, {"": ["ab00#00$"]}, control={"min_members": 1}))
    assert len(group.members) == 1  # none may be


def test_sizes_that_settings_tell():
    def of(name, **values):
        return settings_of(find(Slot.TOPOLOGY, name), values)

    assert of("treerl").k == 30 and of("treerpo").k == 512 and of("treepo").k == 16
    assert of("treerpo", children=2, depth=3, step=10).worst_tokens(25) == 2 * 10 + 4 * 10 + 8 * 5
    assert of("treepo", k=4, segment=10, first=[1, 2], fallback="none").worst_tokens(25) == 2 * 10 + 4 * 10 + 4 * 5
    assert of("treepo", k=4).worst_tokens(25) == 100
    assert of("treerl", trees=2, forks=1, continuations=1).worst_tokens(25) == 2 * (25 + 24)
    with pytest.raises(ConfigError, match="at most 4096"):
        of("treerpo", children=9, depth=5)
    with pytest.raises(ConfigError, match="no range of branches"):
        of("treepo", first=[3, 2])
    recipe = parse({"generate": {"topology": {"name": "treerpo", "children": 2, "depth": 3, "step": 10}, "max_tokens": 25}})
    assert group_tokens(recipe) == 100 and recipe.k == 8
