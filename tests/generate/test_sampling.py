"""n-best and power sampling: what is kept, the chain's law, the books, and from recipe to batch."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.filter.assemble import score_item
from gfcr.generate.growth import Leaf, Lost, Piece, Sample, Spill, Weigh, Weighed
from gfcr.generate.sampling.nbest import NBest
from gfcr.generate.sampling.power import PowerSampling
from gfcr.run.ledger import Ledger
from gfcr.run.seeds import generator
from gfcr.types import Drop, Group, LossRole, Node, Sampling, Segment, SegmentKind, StopReason, Task, path_ids, path_length
from lifecycle_cases import SCORED, batch_of, lab, letters

BUILD = Build(0, [], 1, 4, 16)


def best(n=4, k=2, **settings):
    return {"topology": {"name": "n-best", "k": k, "n": n, **settings}, "max_tokens": 16}


@pytest.mark.parametrize(("by", "kept"), [("short", "wwi"), ("reward", "rri"), ("logprob-sum", "wwi"), ("logprob-mean", "wwi")])
def test_the_best_are_kept_and_the_others_counted_as_surplus(by, kept):
    """r has 8 tokens, w 4, i 2 (refused: reward 0); log-probabilities are -.1, -.2, ..."""
    made = lab("rwriwr", k=3, generate=best(6, 3, by=by), filter={"admission": {"drop_zero_variance": False}})
    round_ = made.drive()
    (group,) = round_.groups.values()
    members = list(group.members.values())
    assert len(members) == 6 and all(m.signals.verdict is not None for m in members)
    want = Counter({"short": "wwi", "reward": "rrr", "logprob-sum": "wwi", "logprob-mean": "wwi"}[by])
    batch = batch_of(round_)
    lengths = Counter({8: "r", 4: "w", 2: "i"}[m.rollout.cost.generated] for m in members if m.in_loss)
    assert lengths == want and len(batch) == 3
    assert [m.drop for m in members].count(Drop.SURPLUS) == 3
    assert group.outcomes() == (3, 3)  # posteriors see all six
    ledger = Ledger()
    ledger.settle_round([group], dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded == 8 * 3 + 4 * 2 + 2
    assert ledger.discarded == {"surplus": sum(m.rollout.cost.generated for m in members if m.drop)}
    assert sum(len(r.path) for r in made.engine.requests) == 6  # asked once each; looked at answers are not judged twice


def test_ties_go_to_the_first_and_lost_pieces_make_the_choice_smaller():
    made = lab(
        "wrfl",
        k=2,
        generate=best(4, 2, by="entropy"),
        control={"retries": 0},
        filter={"admission": {"drop_zero_variance": False}},
    )
    round_ = made.drive()
    (group,) = round_.groups.values()
    assert letters(round_, batch_of(round_)) == ["w", "r"] and len(group.members) == 2


def test_more_are_sampled_than_kept():
    with pytest.raises(ConfigError, match=r"n = 2 answers, of which k = 3"):
        NBest(NBest.Settings(k=3, n=2), BUILD)
    assert NBest.Settings(k=3, n=7).worst_tokens(10) == 70


# ---- power sampling ------------------------------------------------------------------------------------------------------

END = 2
TABLE = np.log(
    np.array([[0.5, 0.2, 0.3], [0.15, 0.6, 0.25], [0.4, 0.4, 0.2]])
)  # row: the token before; 2 is the prompt's and the end
BASE = (Node("p", None, Segment(SegmentKind.PROMPT, np.array([2], np.int32))),)


def law_of(before, temperature):
    scaled = TABLE[before] / temperature
    return scaled - np.log(np.exp(scaled).sum())


def answers(most):
    """Every answer of at most `most` tokens, with its log-probability."""
    out = {}
    for n in range(1, most + 1):
        for ids in product(range(3), repeat=n):
            if END in ids[:-1] or (n < most and ids[-1] != END):
                continue
            before = (2, *ids[:-1])
            out[ids] = sum(law_of(b, 1.0)[t] for b, t in zip(before, ids))
    return out


def played(power, rng):
    """Drive a growth of chains with the table as the model."""
    leaves, spilled, sampled, decoded = {}, Counter(), {}, 0
    todo = list(power.start())
    while todo:
        want = todo.pop(0)
        if isinstance(want, Leaf):
            leaves[want.name] = want
        elif isinstance(want, Spill):
            gone = sampled[want.piece] if want.tokens is None else want.tokens
            spilled[want.reason] += gone
            sampled[want.piece] -= gone
        elif isinstance(want, Weigh):
            ids = path_ids(want.path)
            logs = np.array([np.nan, *[law_of(b, want.law.temperature)[t] for b, t in pairwise(ids)]], np.float32)
            todo += power.tell(Weighed(want.name, logs))
        else:
            assert isinstance(want, Sample)
            ids, logs, before = [], [], int(path_ids(want.path)[-1])
            while len(ids) < want.max_tokens:
                law = law_of(before, want.sampling.temperature)
                before = int(rng.choice(3, p=np.exp(law)))
                ids.append(before)
                logs.append(law[before])
                if before == END:
                    break
            segment = Segment(
                SegmentKind.ACTION,
                np.array(ids, np.int32),
                np.array(logs, np.float32),
                sampling=want.sampling,
                role=LossRole.RL,
            )
            sampled[want.name] = len(ids)
            decoded += len(ids)
            stop = StopReason.EOS if before == END else StopReason.MAX_TOKENS
            todo += power.tell(Piece(want.name, (*want.path, Node(want.name, want.path[-1].id, segment)), stop, 1))
    return leaves, spilled, decoded, sampled


def chains(n, most=3, **settings):
    made = PowerSampling(PowerSampling.Settings(k=n, **settings), BUILD)
    group = Group("g", Task("d", "p"), 0, 0)
    return made.grow(group, [BASE] * n, Configuration(Sampling(), most), View(0, 0, 5, None, None))


def distance(leaves, want):
    found = Counter(tuple(path_ids(leaf.path)[1:].tolist()) for leaf in leaves.values())
    return sum(abs(found[ids] / len(leaves) - p) for ids, p in want.items()) / 2


def test_answers_come_from_the_power_of_their_probability():
    """Every answer of three tokens at most counted; alpha = 2, one block, ten proposals. By the exact matrix of transitions such a chain
    is .010 from p^2 (total variation), without L / L' .177, and sampling at half the temperature .204; 600 chains add .05."""
    want = {ids: np.exp(2 * log) for ids, log in answers(3).items()}
    want = {ids: p / sum(want.values()) for ids, p in want.items()}
    found = [
        distance(played(chains(600, alpha=2.0, blocks=1, **more), np.random.default_rng(0))[0], want)
        for more in ({"steps": 10}, {"steps": 10, "exact": False}, {"steps": 0})
    ]
    assert found[0] < 0.09 and min(found[1:]) > 0.13, found


def test_every_token_is_in_an_answer_or_spilled_and_segments_keep_their_law():
    leaves, spilled, total, sampled = played(chains(40, most=9, alpha=2.0, blocks=3, steps=4), np.random.default_rng(1))
    assert len(leaves) == 40 and set(spilled) == {"rejected", "replaced"}
    assert total == sum(spilled.values()) + sum(sampled[name] for leaf in leaves.values() for name in leaf.pieces)
    assert total == sum(spilled.values()) + sum(path_length(leaf.path) - 1 for leaf in leaves.values())
    for leaf in leaves.values():
        ids = path_ids(leaf.path)
        assert len(ids) - 1 <= 9 and END not in ids[1:-1].tolist()
        assert leaf.stop is (StopReason.EOS if ids[-1] == END else StopReason.MAX_TOKENS)
        assert path_ids(leaf.train_path).tolist() == ids.tolist()
        for path, heat in ((leaf.path, 0.5), (leaf.train_path, 1.0)):
            own = [n.segment for n in path[1:]]
            assert {s.sampling.temperature for s in own} == {heat} and {s.role for s in own} == {LossRole.RL}
            logs = np.concatenate([s.logprobs for s in own])
            assert logs == pytest.approx([law_of(b, heat)[t] for b, t in pairwise(ids)], abs=1e-5)
        names = {n.id for n in leaf.path}
        assert len(names) == len(leaf.path) and all(n.parent in names for n in leaf.path[1:])


def test_forks_leave_the_answer_where_the_proposal_does():
    power = chains(1, most=8, alpha=2.0, blocks=2, steps=6)
    seen = []
    tell = power.tell
    power.tell = lambda outcome: seen.append(outcome) or tell(outcome)
    wants = []
    start = power.start
    power.start = lambda: wants.extend(start()) or list(wants)
    played(power, np.random.default_rng(3))
    assert wants[0].fork_of == "" and all(isinstance(o, (Piece, Weighed)) for o in seen)
    last: dict = {}
    for outcome in seen:
        if isinstance(outcome, Piece):
            last[outcome.name] = outcome
    again = chains(1, most=8, alpha=2.0, blocks=2, steps=6)
    todo, by_name = list(again.start()), {}
    for outcome in seen:
        for want in todo:
            if isinstance(want, Sample):
                by_name[want.name] = want
        todo = again.tell(outcome)
    forked = [w for w in by_name.values() if w.fork_of]
    assert len(forked) >= 6
    for want in forked:
        parent = last[want.fork_of].path
        assert want.fork_at == path_length(want.path)
        assert path_ids(parent)[: want.fork_at].tolist() == path_ids(want.path).tolist()


def test_a_power_of_one_accepts_every_proposal_of_equal_length():
    table, TABLE[:, END] = TABLE[:, END].copy(), -60.0  # nobody ends, so all answers have one length
    try:
        _, spilled, _, _ = played(chains(20, alpha=1.0, blocks=1, steps=5), np.random.default_rng(0))
    finally:
        TABLE[:, END] = table
    assert set(spilled) == {"replaced"}


def test_what_the_budget_refuses_ends_a_chain_with_what_it_has():
    power = chains(2, most=4, alpha=2.0, blocks=1, steps=1)
    wants = power.start()
    segment = Segment(
        SegmentKind.ACTION, np.array([0, 2], np.int32), np.array([-1, -1], np.float32), sampling=power.law, role=LossRole.RL
    )
    out = power.tell(Piece(wants[0].name, (*BASE, Node("a", "p", segment)), StopReason.EOS, 1))
    out = power.tell(Weighed(out[0].name, np.array([np.nan, -1, -1], np.float32)))
    (leaf,) = power.tell(Lost(out[0].name, "budget: no room"))
    assert isinstance(leaf, Leaf) and leaf.stop is StopReason.EOS
    assert power.tell(Lost(wants[1].name, "budget: no room")) == []


def test_from_recipe_to_batch_by_hand():
    """One chain, one block, one proposal: a wrong answer first (4 tokens), then what the script says from the drawn index on."""
    power = {"topology": {"name": "power", "k": 1, "alpha": 2.0, "blocks": 1, "steps": 1}, "max_tokens": 16}
    made = lab("wr", k=1, generate=power, filter={"admission": {"drop_zero_variance": False}})
    made.engine.features |= {"fork"}
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"min_members": 1})
    from gfcr.drivers.wave import WaveDriver

    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    first, second = made.engine.requests
    index = int(generator(0, "power", group.id, 0, "0.0.1", "index").integers(4))
    uniform = generator(0, "power", group.id, 0, "0.0.1", "accept").random()
    q = -0.1 * np.arange(1, 9)
    log = 2.0 * SCORED * (8 - (4 - index)) + q[index:4].sum() - q.sum() + np.log(4 / (index + 8))
    assert first.sampling.temperature == second.sampling.temperature == 0.5
    assert path_length(second.path) == path_length(first.path) + index and second.max_new_tokens == 16 - index
    accepted = uniform < np.exp(min(0.0, log))
    batch = batch_of(round_)
    own = batch.rl_mask
    assert own.sum() == (index + 8 if accepted else 4)
    assert (batch.temperature[own] == 1.0).all() and np.isnan(
        batch.behaviour[own]
    ).all()  # the trainer recomputes; nobody drew from there
    (member,) = group.members.values()
    assert [s[2].temperature for s in score_item(member.rollout).spans] == [1.0]
    assert dict(round_.failed) == {"replaced" if accepted else "rejected": 4 - index if accepted else 8}
    ledger = Ledger()
    ledger.settle_round([group], dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded == 12
    assert ledger.total.generated == own.sum() + ledger.total.discarded
