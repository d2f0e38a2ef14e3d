"""Credit on trees: golden vectors, what it reads of the tree, and its way into the batch."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pack import credit_by_node

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.assemble import build_batch
from gfcr.filter.credit.branches import Tree
from gfcr.registry import Slot, find, settings_of
from gfcr.types import LossRole, Normalise, Rollout, StopReason
from group_cases import action, group, member, plain, rollout
from tree_cases import TOY, credited, leaf, tree

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trees.json").read_text())
BUILD = Build(0, (), 1, 4, 16)
ALL = [
    {"name": "treerl"},
    {"name": "treerl", "form": "code"},
    {"name": "treerpo"},
    {"name": "treerpo", "spread": "std", "count": "leaf"},
    {"name": "treepo", "depth": "forks"},
    {"name": "treepo", "combine": "group_size"},
    {"name": "tree-grpo"},
]
each_credit = pytest.mark.parametrize("spec", ALL, ids=lambda s: "-".join(map(str, s.values())))


def made_credit(spec):
    values = dict(spec)
    found = find(Slot.CREDIT, values.pop("name"))
    return found.cls(settings_of(found, values), BUILD)


def by_path(made, credit):
    """Per member its advantages over own tokens, and those elsewhere."""
    out = []
    for key, one in credited(made, credit).items():
        path = made.members[key].rollout.path
        own = np.concatenate([np.full(len(n.segment), n.segment.role is LossRole.RL) for n in path])
        value = np.broadcast_to(one.advantage, own.shape)
        assert isinstance(one.advantage, float) or not value[~own].any()
        out.append(value[own].astype(float).tolist())
    return out


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: c["name"])
def test_golden_vectors(case):
    """Cutting segments, with an observation between the parts, changes nothing (but TreePO's depths, where segments are those)."""
    by_segment = case["credit"]["name"] == "treepo" and case["credit"].get("depth", "segments") == "segments"
    expected = [[trunk] * 4 + [end] * 2 for trunk, end in zip(case["trunks"], case["leaves"])]
    for split in [False] if by_segment else [False, True]:
        for found, wanted in zip(by_path(tree(TOY, split=split), made_credit(case["credit"])), expected, strict=True):
            assert found == pytest.approx(wanted, abs=GOLDEN["tolerance"])


def test_an_unbranched_stretch_is_a_depth_per_segment_or_none():
    spec = [(4, [(4, [1.0, 0.0])]), (4, [1.0, 1.0])]
    a, _b, c, _d = (values[-1] for values in by_path(tree(spec), made_credit({"name": "treepo"})))
    assert (a, c) == pytest.approx(((0.25 + 0.5 + 0.5) / 3, (0.25 + 0) / 2))
    a, _b, c, _d = (values[-1] for values in by_path(tree(spec), made_credit({"name": "treepo", "depth": "forks"})))
    assert (a, c) == pytest.approx(((0.25 + 0.5) / 2, (0.25 + 0) / 2))


@each_credit
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_an_all_equal_tree_has_advantage_exactly_zero(spec, value):
    assert not any(map(np.any, by_path(tree([(3, [value] * 3), (2, [(1, [value, value]), value])]), made_credit(spec))))


@each_credit
def test_a_tree_of_one_leaf_has_no_baseline_and_no_gradient(spec):
    assert by_path(tree([(3, [1.0])]), made_credit(spec)) == [[0.0] * 5]


SPECS = st.recursive(
    st.sampled_from([0.0, 1.0]),
    lambda below: st.tuples(st.integers(1, 3), st.lists(below, min_size=1, max_size=3)),
    max_leaves=9,
)


@each_credit
@given(spec_tree=st.lists(SPECS, min_size=2, max_size=4))
def test_any_tree_gets_finite_credit_and_ignores_how_segments_are_cut(spec, spec_tree):
    credit = made_credit(spec)
    whole = by_path(tree(spec_tree), credit)
    assert all(np.isfinite(values).all() for values in whole)
    if spec["name"] != "treepo" or "depth" in spec:
        for one, two in zip(whole, by_path(tree(spec_tree, split=True), credit), strict=True):
            assert one == pytest.approx(two, abs=1e-6)


@given(spec_tree=st.lists(SPECS, min_size=1, max_size=4))
def test_branches_partition_every_path(spec_tree):
    made = tree(spec_tree, split=True)
    members = list(made.members.values())
    found = Tree.of(members)
    assert found.branches[0].leaves == tuple(range(len(members))) and found.branches[0].start == 0
    for i, length in enumerate(found.lengths):
        mine = [b for b in found.branches if i in b.leaves]
        assert [b.start for b in mine] == [0, *(b.end for b in mine[:-1])] and mine[-1].end == length
    assert all(
        b.parent is None or set(b.leaves) < set(found.branches[b.parent].leaves) or b.start == b.end for b in found.branches
    )


def test_a_path_that_ends_where_another_goes_on_is_a_leaf_there():
    made = tree([(4, [1.0, 1.0])])
    above = next(iter(made.members.values())).rollout.path[:2]
    leaf(made, above, 0.0)
    values = by_path(made, made_credit({"name": "treerpo", "spread": "none", "count": "leaf"}))
    # children of the trunk: the two leaves and the end of the third path, which has no tokens of its own
    assert [v[-1] for v in values] == pytest.approx([1 / 3, 1 / 3, 0.0]) and len(values[2]) == 4


def test_members_of_the_same_path_are_two_leaves():
    made = tree(TOY)
    leaf(made, made.members["g#3"].rollout.path, 0.0)
    values = by_path(made, made_credit({"name": "treerl"}))
    assert values[3] == values[4] and np.isfinite(values[0]).all()


def test_text_that_is_equal_by_chance_is_no_shared_node():
    """Structure is node ids: independent answers with the same first tokens are a tree of depth one."""
    made = group([1.0, 0.0, 0.0], binary=True)
    values = by_path(made, made_credit({"name": "treerl"}))
    assert [v[0] for v in values] == pytest.approx([2.0, -1.0, -1.0])


def test_the_hint_that_is_not_trained_on_is_no_part_of_the_tree():
    made = group([], "h")
    prompt, hint = plain("prompt", 2), plain("guidance", 3)
    for i, reward in enumerate([1.0, 0.0]):
        one = made.members[f"h{i}"] = member(f"h{i}", reward, bool(reward))
        sampled = rollout(f"h{i}", prompt, hint, action(2)).path
        one.rollout = Rollout(f"h{i}", "t", sampled, StopReason.EOS, train_path=(sampled[0], sampled[2]))
    found = credited(made, made_credit({"name": "treerl"}))
    assert [c.advantage.tolist() for c in found.values()] == [[0, 0, 2.0, 2.0], [0, 0, -2.0, -2.0]]


def test_treerpo_says_which_rewards_its_normaliser_cannot_take():
    made = tree([(4, [1.0, -1.0]), 1.0])
    with pytest.raises(ConfigError, match="needs rewards from 0 to 1, and a step is worth -1"):
        credited(made, made_credit({"name": "treerpo"}))
    assert by_path(made, made_credit({"name": "treerpo", "spread": "std"}))[0][-1] > 0


def test_a_topology_may_name_the_trees():
    made = tree([1.0, 0.0, 1.0, 1.0])
    for i, one in enumerate(made.members.values()):
        old = one.rollout
        one.rollout = Rollout(old.id, old.task_id, old.path, old.stop, meta={"tree": "ab"[i // 2]})
    values = [v[0] for v in by_path(made, made_credit({"name": "tree-grpo", "eps": 0}))]
    assert values == pytest.approx([0.5 + 0.7071, -1.5 - 0.7071, 0.5, 0.5], abs=1e-4)


@each_credit
@pytest.mark.parametrize(("normalise", "constant"), [(Normalise.TOKEN_MEAN, None), (Normalise.CONSTANT, 16.0)])
def test_shared_tokens_trained_once_with_the_sum_have_the_gradient_of_one_row_per_leaf(spec, normalise, constant):
    groups = [tree(TOY, "a"), tree([(2, [(3, [0.0, 1.0, 1.0]), 0.0]), 1.0], "b", split=True)]
    for made in groups:
        credited(made, made_credit(spec))
    rows, packed = (build_batch(groups, normalise, constant, 0, 0, packed=p) for p in (False, True))
    one, two = credit_by_node(groups, rows, False), credit_by_node(groups, packed, True)
    assert one.keys() == two.keys() and any(one.values())
    assert list(two.values()) == pytest.approx([one[key] for key in two], abs=1e-6)
    assert len(packed.input_ids) < len(rows.input_ids)
