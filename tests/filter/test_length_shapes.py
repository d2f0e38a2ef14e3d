"""Length rewards: golden values, and the trap of groups without a right answer."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.registry import INDEX, Slot, find
from gfcr.types import Drop, SegmentKind, Signals, StopReason
from group_cases import action, group, plain, rollout
from lifecycle_cases import batch_of, lab, row_advantages

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "length.json").read_text())
SHAPES = sorted(name for name in INDEX[Slot.SHAPE] if "on" in find(Slot.SHAPE, name).settings.model_fields)  # of length
each_shape = pytest.mark.parametrize("shape", SHAPES)
each_reach = pytest.mark.parametrize("on", ["right", "mixed", "all"])
LONG_AND_SHORT = ["=#10", "=a+10#10", "=a+10a+10#10", "t"]  # all wrong, of 4, 8, 12 and 16 tokens


def made(shape, max_tokens=16, **settings):
    found = find(Slot.SHAPE, shape)
    return found.cls(found.settings(**settings), Build(0, (), 1, 8, max_tokens))


def of(lengths, right):
    """A closed group of answers of these lengths and outcomes."""
    out = group([float(r) for r in right], binary=True)
    for one, n in zip(out.members.values(), lengths):
        one.rollout = rollout(one.rollout.id, plain(SegmentKind.PROMPT, 2), action(n))
    return out


def shaped(shape, lengths, right, number=0, **settings):
    """Reward of each answer as credit would read it."""
    the_group = of(lengths, right)
    found = made(shape, **settings).shape(the_group, View(number, 0, 0, None, None))
    return [found.get(i, m.signals.reward) for i, m in the_group.members.items()]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: c["name"])
def test_shaped_rewards_equal_the_golden_vector(case):
    lengths, right = zip(*case["answers"])
    settings = {k: v for k, v in case["shape"].items() if k != "name"}
    assert shaped(case["shape"]["name"], lengths, right, **settings) == pytest.approx(case["shaped"], abs=1e-5)


@pytest.mark.parametrize("case", GOLDEN["batch"], ids=lambda c: c["name"])
def test_advantages_through_the_recipe_equal_the_golden_vector(case):
    run = lab(case["answers"], k=len(case["answers"]), filter={"credit": {"name": "dr-grpo"}, "shape": case["shape"]})
    assert row_advantages(batch_of(run.drive())) == pytest.approx(case["advantages"], abs=1e-6)


@each_shape
@each_reach
@pytest.mark.parametrize("credit", ["grpo", "dr-grpo", "rloo"])
def test_wrong_metric_for_admission_an_all_wrong_group_is_admitted_by_no_shape(shape, on, credit):
    """verl-project/verl-recipe#125. Admission reads raw correctness: lengths differ, the group is dropped as it would be without a shape."""
    run = lab(lambda p, nth: LONG_AND_SHORT[nth], filter={"credit": {"name": credit}, "shape": {"name": shape, "on": on}})
    round_ = run.drive()
    assert len(batch_of(round_)) == 0
    (only,) = round_.groups.values()
    assert {m.drop for m in only.members.values()} == {Drop.ZERO_VARIANCE}
    assert only.composition == "all_wrong"


@each_shape
@each_reach
def test_dynamic_sampling_refills_all_wrong_groups_whatever_their_lengths(shape, on):
    run = lab(
        lambda p, nth: LONG_AND_SHORT[nth % 4] if p == "a+?00" else "rw"[nth % 2],
        n_tasks=3,
        filter={"credit": {"name": "dr-grpo"}, "shape": {"name": shape, "on": on}},
        control={"groups": 2, "refill": {"name": "dynamic-sampling"}},
    )
    batches = [run.drive() for _ in range(3)]
    seen = [g for round_ in batches for g in round_.groups.values()]
    assert any(g.composition == "all_wrong" for g in seen)
    for round_ in batches:
        trained = {round_.groups[g].composition for g in batch_of(round_).group_ids if _in_loss(round_.groups[g])}
        assert trained == {"mixed"}


def _in_loss(the_group):
    return any(m.in_loss for m in the_group.members.values())


@each_shape
@pytest.mark.parametrize("on", ["right", "mixed"])
def test_kept_in_the_batch_an_all_wrong_group_learns_nothing_about_length(shape, on):
    """The trap is shut by the default: even a std finds no variance to divide by."""
    run = lab(
        lambda p, nth: LONG_AND_SHORT[nth],
        filter={"credit": {"name": "grpo"}, "shape": {"name": shape, "on": on}, "admission": {"drop_zero_variance": False}},
    )
    assert row_advantages(batch_of(run.drive())) == [0.0] * 4


@each_shape
def test_the_trap_is_real_where_it_is_asked_for(shape):
    """As published, kept in the batch and divided by its std, an all-wrong group pays full-size advantages for length: what the
    composition check refuses (tests/test_compose_reward.py)."""
    settings = {"max_tokens": 16, "buffer": 12} if shape == "soft-overlong" else {}
    run = lab(
        lambda p, nth: LONG_AND_SHORT[nth],
        filter={
            "credit": {"name": "grpo"},
            "shape": {"name": shape, "on": "all", **settings},
            "admission": {"drop_zero_variance": False},
        },
    )
    assert max(map(abs, row_advantages(batch_of(run.drive())))) > 1


@each_shape
@given(lengths=st.lists(st.integers(0, 16), min_size=2, max_size=8), data=st.data())
def test_what_a_shape_leaves_alone(shape, lengths, data):
    right = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    rewards = [float(r) for r in right]
    only_right = shaped(shape, lengths, right, on="right")
    assert all(value == 0.0 for value, ok in zip(only_right, right) if not ok)
    mixed, everywhere = (shaped(shape, lengths, right, on=on) for on in ("mixed", "all"))
    assert mixed == (everywhere if any(right) else rewards)
    assert [v for v, ok in zip(only_right, right) if ok] == [v for v, ok in zip(mixed, right) if ok]


@pytest.mark.parametrize("shape", ["soft-overlong", "kimi-length"])
@given(lengths=st.lists(st.integers(1, 16), min_size=2, max_size=8))
def test_among_right_answers_a_longer_one_never_gains(shape, lengths):
    values = shaped(shape, lengths, [True] * len(lengths))
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    assert all(values[a] >= values[b] for a, b in pairwise(order))
    assert max(values) - min(values) <= 1 + 1e-9


def test_among_wrong_answers_the_shortest_is_the_worst_under_the_cosine():
    values = shaped("cosine-length", [1, 5, 9, 15], [False] * 4, on="all")
    assert values == sorted(values) and len(set(values)) == 4


def test_kimi_starts_at_its_round():
    assert shaped("kimi-length", [1, 9], [True, True], number=4, from_round=5) == [1.0, 1.0]
    assert shaped("kimi-length", [1, 9], [True, True], number=5, from_round=5) == [1.5, 0.5]


def test_length_is_what_the_policy_wrote():
    """Tool output and forced tokens are nobody's verbosity."""
    the_group = of([2, 2], [True, True])
    one, two = the_group.members.values()
    one.rollout = rollout("g0", plain(SegmentKind.PROMPT, 2), action(1), plain(SegmentKind.OBSERVATION, 99), action(1, turn=1))
    found = made("kimi-length").shape(the_group, View(0, 0, 0, None, None))
    assert found == {"g0": 1.0, two.rollout.id: 1.0}


@each_shape
def test_a_member_outside_the_baseline_moves_nobody(shape):
    """Invariant 12: neither an unscorable answer nor a dropped one is anybody's shortest or longest."""
    settings = {"on": "all"}
    base = shaped(shape, [2, 5, 9], [True, False, True], **settings)
    the_group = of([2, 5, 9, 1, 16], [True, False, True, True, False])
    *_, unscorable, dropped = the_group.members.values()
    unscorable.signals, unscorable.in_baseline = Signals(), False
    dropped.in_baseline, dropped.drop = False, Drop.PRUNED
    found = made(shape, **settings).shape(the_group, View(0, 0, 0, None, None))
    assert list(found.values()) == base
    assert set(found) == {"g0", "g1", "g2"}


def test_overlong_masking_and_soft_punishment_go_together():
    run = lab(
        "rwt",
        k=3,
        filter={
            "credit": {"name": "dr-grpo"},
            "shape": {"name": "kimi-length"},
            "admission": {"overlong": "mask"},
        },
    )
    assert row_advantages(batch_of(run.drive())) == pytest.approx([0.25, -0.25])  # the cut answer's 16 tokens are no longest


@pytest.mark.parametrize("shape", ["kimi-length", "cosine-length"])
def test_a_shape_that_reads_correctness_says_so_when_nobody_decides_it(shape, monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "scored", "lifecycle_methods:Scored")
    rule = {"verifiers": [{"name": "scored"}], "shape": {"name": shape}}
    run = lab(lambda p, nth: ["=#10", "=#20"][nth], k=2, filter=rule)
    with pytest.raises(ConfigError, match=f"filter.shape '{shape}' needs right and wrong answers"):
        run.drive()


def test_soft_overlong_on_all_answers_needs_no_correctness(monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "scored", "lifecycle_methods:Scored")
    shape = {"name": "soft-overlong", "on": "all", "max_tokens": 4, "buffer": 4}
    filter_ = {"verifiers": [{"name": "scored"}], "credit": {"name": "dr-grpo"}, "shape": shape}
    run = lab(lambda p, nth: ["=#10", "=#90"][nth], k=2, filter=filter_)
    assert row_advantages(batch_of(run.drive())) == pytest.approx([-0.4, 0.4])  # both lose 1: 4 tokens


def test_a_buffer_longer_than_the_answer_is_refused():
    with pytest.raises(ConfigError, match="buffer = 17 exceeds max_tokens = 16"):
        made("soft-overlong", buffer=17)


def test_an_injected_answer_is_shaped_among_the_answers_it_joined():
    """Not by what it was worth in the round it came from."""
    run = lab(
        lambda p, nth: "rw"[nth] if nth < 2 else "w",
        k=2,
        filter={"credit": {"name": "dr-grpo"}, "shape": {"name": "kimi-length", "on": "right"}},
        replay={"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]},
    )
    first = run.drive()
    assert row_advantages(batch_of(first)) == pytest.approx([0.25, -0.25])  # the right one is the longer: 1 - 1/2
    second = run.drive()
    (only,) = second.groups.values()
    injected = next(m for m in only.members.values() if m.source)
    assert injected.rollout.stop is StopReason.EOS
    assert injected.signals.shaped == pytest.approx(0.5)
    assert sorted(row_advantages(batch_of(second))) == pytest.approx([-0.25, 0.25])
