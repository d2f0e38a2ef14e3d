"""Packed trees against one row per leaf: the same weighted credit on every token of every path, under every normalisation."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.assemble import build_batch
from gfcr.types import Credit, LossRole, Node, Normalise, Preference, Rollout, SegmentKind, StopReason
from group_cases import action, group, member, plain

MODES = [(Normalise.TOKEN_MEAN, None), (Normalise.SEQUENCE_MEAN, None), (Normalise.CONSTANT, 16.0)]


def tree_group(shape, advantages, weights, name="g"):
    """`shape`: parent index per inner node (-1 = the prompt) and its length; leaves are the nodes without children."""
    made = group([], name)
    root = Node(f"{name}.p", None, plain(SegmentKind.PROMPT, 2))
    nodes, paths = [], []
    for i, (parent, length) in enumerate(shape):
        above = (root,) if parent < 0 else paths[parent]
        segment = action(length) if i % 4 != 3 else plain(SegmentKind.OBSERVATION, length)
        nodes.append(Node(f"{name}.{i}", above[-1].id, segment))
        paths.append((*above, nodes[-1]))
    leaves = [i for i in range(len(shape)) if all(parent != i for parent, _ in shape)]
    for place, leaf in enumerate(leaves):
        one = member(f"{name}/{leaf}", 1.0, True)
        one.rollout = Rollout(one.rollout.id, "t", paths[leaf], StopReason.EOS)
        one.credit = Credit(advantages[place % len(advantages)], weight=weights[place % len(weights)])
        made.members[one.rollout.id] = one
    return made


def credit_by_node(groups, batch, packed):
    """Summed loss weight x advantage x rl weight per (node, token): the coefficient of each token's log-probability."""
    out = defaultdict(float)
    coefficient = np.where(
        batch.rl_mask, batch.token_weights() * np.nan_to_num(batch.advantages) * np.nan_to_num(batch.rl_weights), 0.0
    )
    row = 0
    for made in groups:
        for one in [list(made.members.values())] if packed else [[m] for m in made.members.values()]:
            at, seen = int(batch.offsets[row]), set()
            for part in one:
                for node in part.rollout.path:
                    if node.id in seen:
                        continue
                    seen.add(node.id)
                    for t in range(len(node.segment)):
                        out[node.id, t] += coefficient[at + t]
                    at += len(node.segment)
            row += 1
    return out


@pytest.mark.parametrize(("normalise", "constant"), MODES)
@given(
    parents=st.lists(st.integers(-1, 6), min_size=1, max_size=9),
    lengths=st.lists(st.integers(1, 4), min_size=9, max_size=9),
    advantages=st.lists(st.floats(-2, 2), min_size=1, max_size=5),
    weights=st.lists(st.floats(0.25, 2), min_size=1, max_size=3),
)
def test_packed_and_per_leaf_rows_give_every_token_the_same_credit(normalise, constant, parents, lengths, advantages, weights):
    shape = [(min(parent, i - 1), lengths[i]) for i, parent in enumerate(parents)]
    groups = [tree_group(shape, advantages, weights, "a"), tree_group(shape, advantages[::-1], weights, "b")]
    per_leaf = build_batch(groups, normalise, constant, 0, 0)
    packed = build_batch(groups, normalise, constant, 0, 0, packed=True)
    one, two = credit_by_node(groups, per_leaf, False), credit_by_node(groups, packed, True)
    assert one.keys() == two.keys()
    assert list(two.values()) == pytest.approx([one[key] for key in two], abs=1e-6)
    assert len(packed.input_ids) <= len(per_leaf.input_ids)


def small_tree():
    """Two leaves of 2 and 3 tokens that share 4 tokens after the prompt."""
    return tree_group([(-1, 4), (0, 2), (0, 3)], [1.0, -0.5], [1.0])


def test_shared_tokens_stand_once_with_parents_and_multiplicity():
    batch = build_batch([small_tree()], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)
    assert len(batch) == 1
    assert batch.parents.tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, 5, 8, 9]
    assert batch.multiplicity.tolist() == [2] * 6 + [1] * 5
    assert batch.leaves.tolist() == [2]
    assert batch.position_ids().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8]
    assert batch.rollout_ids == ("g/1+g/2",)
    assert batch.advantages[batch.rl_mask].tolist() == [0.5] * 4 + [1.0] * 2 + [-0.5] * 3
    assert batch.token_weights()[batch.rl_mask] == pytest.approx([1 / 13] * 9)


def test_a_leaf_outside_the_loss_leaves_no_trace():
    made = small_tree()
    made.members["g/1"].in_loss = False
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)
    assert len(batch.input_ids) == 9
    assert batch.multiplicity.tolist() == [1] * 9


def test_a_leaf_without_loss_tokens_is_no_leaf_of_the_denominator():
    made = small_tree()
    made.members["none"] = member("none", 1.0, True)
    made.members["none"].rollout = Rollout("none", "t", (made.members["g/1"].rollout.path[0],), StopReason.EOS)
    made.members["none"].credit = Credit(1.0)
    for normalise, constant in MODES:
        packed = build_batch([made], normalise, constant, 0, 0, packed=True)
        per_leaf = build_batch([made], normalise, constant, 0, 0)
        total = [float((b.token_weights() * np.nan_to_num(b.advantages)).sum()) for b in (packed, per_leaf)]
        assert total[0] == pytest.approx(total[1])


def test_a_node_trained_under_two_contexts_stands_twice():
    made = small_tree()
    first = made.members["g/1"].rollout
    guided = Rollout("g/1", "t", first.path, first.stop, train_path=(first.path[0], first.path[2]))
    made.members["g/1"].rollout = guided
    made.members["again"] = member("again", 1.0, True)
    made.members["again"].rollout = Rollout("again", "t", first.path, first.stop)
    made.members["again"].credit = Credit(2.0)
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)
    assert len(batch.input_ids) == 2 + 2 + 4 + 3 + 2
    assert np.isnan(batch.behaviour[2:4]).all()
    assert not np.isnan(batch.behaviour[4:][batch.rl_mask[4:]]).any()


def test_packing_refuses_what_needs_a_row_of_its_own():
    made = small_tree()
    made.preferences = [Preference("g/1", "g/2")]
    with pytest.raises(ValueError, match="need one row per member"):
        build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)
    other = small_tree()
    other.members["g/1"].credit = Credit(0.0, ce_weight=1.0)
    with pytest.raises(ValueError, match="need one row per member"):
        build_batch([other], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)


def test_an_empty_packed_batch_is_a_batch():
    batch = build_batch([group([])], Normalise.SEQUENCE_MEAN, None, 0, 0, packed=True)
    assert (len(batch), len(batch.input_ids), batch.token_weights().shape) == (0, 0, (0,))


def test_every_path_of_the_cases_holds_loss_and_other_tokens():
    made = tree_group([(-1, 1), (0, 1), (1, 1), (2, 1)], [1.0], [1.0])
    roles = {n.segment.role for m in made.members.values() for n in m.rollout.path}
    assert roles == {LossRole.RL, LossRole.NONE}
