"""Growths in a round: pieces, forks, looks and leaves, with a topology made for the test (a binary tree of two segments)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gfcr.drivers.wave import WaveDriver
from gfcr.generate.growth import Copied, Leaf, Look, Lost, Piece, Sample, Seen, Spill, cut
from gfcr.run.ledger import Ledger
from gfcr.types import Drop, SegmentKind, path_ids, path_length
from lifecycle_cases import Lab, batch_of, lab


@dataclass
class Binary(Copied):
    """One trunk, looked at, then two continuations of it after its third token."""

    base: tuple
    how: object
    lost: list = field(default_factory=list)
    pieces: dict = field(default_factory=dict)

    def start(self):
        return [
            Sample("trunk", self.base, self.how.sampling, 16, retain=True),
            Sample("stray", self.base, self.how.sampling, 16),
        ]

    def tell(self, outcome):
        if isinstance(outcome, Lost):
            self.lost.append(outcome.name)
            return []
        if isinstance(outcome, Piece):
            self.pieces[outcome.name] = outcome
            if outcome.name == "trunk":
                return [Look("look", outcome.path, outcome.stop)]
            if outcome.name == "stray":
                return [Spill("stray", "wandered: off")]
            leaf = Leaf(outcome.name, outcome.path, outcome.stop, ("trunk", outcome.name), seed=outcome.seed)
            return [leaf]
        assert isinstance(outcome, Seen) and outcome.signals.correct is True
        trunk = self.pieces["trunk"]
        at = path_length(self.base) + 3
        head, _ = cut(trunk.path, at)
        return [Sample(name, head, self.how.sampling, 16, fork_of="trunk", fork_at=at) for name in ("left", "right")] + [
            Leaf("whole", head + cut(trunk.path, at)[1], trunk.stop, ("trunk",), judged=outcome.signals)
        ]


class Trees:
    def grow(self, group, bases, how, view):
        return Binary(bases[0], how)


def tree_lab(script="r", **more) -> Lab:
    made = lab(script, k=3, **more)
    made.slots.topology = Trees()
    return made


def test_leaves_share_nodes_and_every_token_is_booked_once():
    made = tree_lab(lambda prompt, n: "rrwr"[n])  # trunk, stray, left, right
    round_ = made.drive()
    batch = batch_of(round_)
    (group,) = round_.groups.values()
    members = list(group.members.values())
    assert len(members) == 3 and [m.signals.correct for m in members].count(True) >= 1
    shared = {n.id for n in members[0].rollout.path} & {n.id for n in members[1].rollout.path}
    assert len(shared) == 2  # the prompt, and the trunk's first three tokens
    heads = [next(n for n in m.rollout.path if n.segment.kind is SegmentKind.ACTION) for m in members]
    assert len({id(h) for h in heads[1:]}) == 1 and all(len(h.segment) == 3 for h in heads)
    generated = sum(m.rollout.cost.generated for m in members)
    assert generated + sum(round_.failed.values()) == made.engine.decoded == round_.budget.spent
    assert dict(round_.failed) == {"wandered": 8}
    ledger = Ledger()
    ledger.settle_round([group], dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded
    assert len(batch) == sum(m.in_loss for m in members)


def test_a_dropped_leaf_does_not_discard_what_another_trains():
    made = tree_lab(lambda prompt, n: "rrwr"[n])
    round_ = made.drive()
    (group,) = round_.groups.values()
    whole = next(m for m in group.members.values() if m.rollout.cost.generated == 8 and m.credit is not None)
    whole.credit, whole.drop = None, Drop.UNSCORABLE
    ledger = Ledger()
    ledger.settle_round([group], {}, round_.failed_context)
    assert ledger.discarded == {"unscorable": 5}  # 8 tokens less the 3 that its siblings train


def test_a_copied_round_goes_on_by_itself_and_ends_alike():
    made = tree_lab(lambda prompt, n: "rrwr"[n])
    one = made.round()
    one.ask()
    other = made.round()
    other.load_state_dict(one.state_dict())
    assert sorted(a.id for a in other.outstanding()) == sorted(a.id for a in one.outstanding())
    (before,) = (w.growing.growth for w in one._work.values())
    (after,) = (w.growing.growth for w in other._work.values())
    assert before is not after and before.pieces is not after.pieces


def test_what_the_budget_refuses_is_told_as_lost():
    made = tree_lab(limit=20)
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"worst": 16})
    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    assert group.reason.startswith("too_few_members") and made.engine.decoded == 8


def test_a_name_twice_is_refused():
    made = tree_lab()
    made.slots.topology.grow = lambda group, bases, how, view: Twice(bases[0], how)
    with pytest.raises(ValueError, match="twice"):
        made.round().ask()


class Twice(Binary):
    def start(self):
        return [*super().start(), *super().start()]


def test_cuts_in_any_order_give_equal_parts():
    made = tree_lab()
    round_ = made.drive()
    path = next(iter(next(iter(round_.groups.values())).members.values())).rollout.path
    n = path_length(path)
    a = cut(cut(path, n - 1)[0], n - 2)
    b = cut(path, n - 2)
    assert [x.id for x in a[0]] == [x.id for x in b[0]] and path_ids(a[0]).tolist() == path_ids(path)[: n - 2].tolist()
    assert cut(path, n)[1] == () and cut(path, 0)[0] == ()
    with pytest.raises(ValueError, match="beyond the end"):
        cut(path, n + 1)
