"""Trees of turns through recipe, scripted engine, environment and batch: shared steps, draws, pruning, merging, failures."""

from __future__ import annotations

import pytest

from gfcr.build import group_tokens
from gfcr.domains.programs.tokenizer import END_ID, decode
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import StopSpec
from gfcr.environments.contract import EnvironmentFault, Said
from gfcr.environments.registers import Registers
from gfcr.errors import ConfigError
from gfcr.filter.credit.branches import Tree
from gfcr.generate.trees.agents import AgentTree
from gfcr.recipe import parse
from gfcr.registry import Faithfulness, Slot, method
from gfcr.run.evaluate_turns import evaluate_turns
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import step_metrics
from gfcr.types import LossRole, SegmentKind, StopReason, Task
from interactive_cases import Talker, pulses, turns
from lifecycle_cases import batch_of, tasks

TASK = Task("programs", "a+?12", {"final": "32"}, category="one")
AGAIN, RIGHT, WRONG = "a+42", "a+32", "#42$"
TABLE = {  # a wrong line is answered by `?12`, and tried again
    "a+?12": [AGAIN, RIGHT],
    "a+?12a+42?12": [RIGHT, AGAIN],
    "a+?12a+32": ["#32$", WRONG],
    "a+?12a+42?12a+32": [WRONG, "#32$"],
    "a+?12a+42?12a+42?12": RIGHT,
    "a+?12a+42?12a+42?12a+32": "#32$",
}


def grown(table=TABLE, environment=None, limit=None, sections=None, **topology):
    shape = {"name": "tree-grpo", "turn_tokens": 4, "turns": 6, **topology}
    more = {"filter": {"credit": {"name": "tree-grpo"}}, **(sections or {})}
    return turns(table, [TASK], environment or {"name": "registers"}, generate={"topology": shape}, limit=limit, **more)


def leaves(round_):
    """Every leaf by its id."""
    return {
        m.rollout.id: (
            text(m),
            m.rollout.stop,
            m.rollout.meta["tree"],
            tuple(n.id for n in m.rollout.path),
            m.rollout.state_keys,
        )
        for g in round_.groups.values()
        for m in g.members.values()
    }


def members(round_):
    return [m for g in round_.groups.values() for m in g.members.values()]


def text(member):
    return "".join(decode(n.segment.ids.tolist()) for n in member.rollout.path[1:])


def acts(monkeypatch):
    """Steps that register machines play from now on."""
    played = []
    real = Registers.step
    monkeypatch.setattr(Registers, "step", lambda self, said: played.append(said.text) or real(self, said))
    return played


@pytest.mark.parametrize("packed", [False, True])
def test_golden_trees_through_recipe_engine_environment_and_batch(packed, monkeypatch):
    """Two trees of three chains, as in the paper's script; rewards 0 1 1 and 1 0 1, so each tree has the group's mean or one above."""
    played = acts(monkeypatch)
    made = grown(sections={"loss": {"packed": packed}})
    round_ = made.drive()
    found = members(round_)
    assert [(text(m), m.rollout.meta["tree"]) for m in found] == [
        ("a+42?12a+32#42", "0.0"),
        ("a+42?12a+32#32", "0.0"),
        ("a+42?12a+42?12a+32#32", "0.0"),
        ("a+32#32", "0.1"),
        ("a+32#42", "0.1"),
        ("a+32#32", "0.1"),
    ]
    rewards = [m.signals.reward for m in found]
    assert rewards == [0, 1, 1, 1, 0, 1]
    # sample std of 0 1 1 1 0 1 is .5164, of 0 1 1 it is .5774: 1 gets .3333 / .5164 + .3333 / .5774, 0 gets twice that and negative
    for member in found:
        assert member.credit.advantage == pytest.approx([-2.445699, 1.222849][int(member.signals.reward)], abs=1e-5)
    branches = [(len(b.leaves), b.end - b.start, b.own) for b in Tree.of(found).branches]
    assert (
        branches
        == [  # leaves below, tokens, own ones: the prompt; `a+42 ?12 a+32` and its two ends; a chain; `a+32` and its three
            (6, 6, 0),
            (2, 11, 8),
            (1, 4, 4),
            (1, 4, 4),
            (1, 22, 16),
            (3, 4, 4),
            (1, 4, 4),
            (1, 4, 4),
            (1, 4, 4),
        ]
    )
    decoded = sum(own for _, _, own in branches)
    usage = made.engine.usage()
    assert usage.decoded == made.budget.spent == decoded == sum(m.rollout.cost.generated for m in found)
    assert usage.prefilled == sum(m.rollout.cost.prefilled for m in found) and not round_.failed
    assert len(played) == sum(m.rollout.cost.env_steps for m in found) and len(made.host) == 0
    batch = batch_of(round_)
    assert len(batch) == (1 if packed else 6)
    assert batch.rl_mask.sum() == (decoded if packed else sum(m.rollout.response_length for m in found))


def test_a_leaf_is_what_its_turns_come_to_in_an_environment_of_their_own():
    for merge in ("none", "state"):
        for pick in ("uniform", "value"):
            round_ = grown(expand=3, rounds=3, keep=10, merge=merge, pick=pick).drive()
            assert len(members(round_)) == 20
            for member in members(round_):
                env = Registers(Registers.Settings())
                env.reset(TASK, 0)
                path = member.rollout.path
                said = [
                    decode(n.segment.ids[n.segment.ids != END_ID].tolist())
                    for n in path
                    if n.segment.kind is SegmentKind.ACTION
                ]
                assert [env.step(Said(s)).state for s in said] == list(member.rollout.state_keys)
                assert env.verify().correct is member.signals.correct
                assert [n.segment.turn for n in path[1:] if n.segment.kind is SegmentKind.ACTION] == list(range(len(said)))
                assert all(n.segment.role is LossRole.NONE for n in path if n.segment.kind is SegmentKind.OBSERVATION)


def test_what_is_pruned_is_discarded_and_what_it_shares_is_not(monkeypatch):
    played = acts(monkeypatch)
    made = grown(trees=3, expand=4, rounds=2, keep=2)
    round_ = made.drive()
    found = members(round_)
    assert len(found) == 6 == made.recipe.k and {m.rollout.meta["tree"] for m in found} == {"0.0", "0.1", "0.2"}
    own = {n.id: len(n.segment) for m in found for n in m.rollout.path if n.segment.kind is SegmentKind.ACTION}
    decoded = made.engine.usage().decoded
    assert dict(round_.failed) == {"pruned": decoded - sum(own.values())} and round_.failed["pruned"] > 20
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == decoded == made.budget.spent and ledger.total.env_steps == len(played)
    assert ledger.total.prefilled == made.engine.usage().prefilled and len(made.host) == 0
    notes = [d.reason for d in round_.decisions if d.action == "prune"]
    assert notes == ["drawn: 2 of 9 leaves are kept"] * 3
    assert decoded <= group_tokens(made.recipe) == 3 * 9 * 64


def begun(monkeypatch):
    """What is begun at: (places to begin at, the place, the chains that had ended), chain by chain."""
    found = []
    real = AgentTree._chain

    def watched(self, at):
        if at is not None:
            found.append((self.steps(), at, [c for c in self.chains if c.ended]))
        return real(self, at)

    monkeypatch.setattr(AgentTree, "_chain", watched)
    return found


def test_steps_are_drawn_uniformly_the_root_included(monkeypatch):
    found = begun(monkeypatch)
    grown(trees=1, expand=400, rounds=1, keep=1).drive()
    steps = found[0][0]
    assert len(steps) == 3 and [len(s.mark.pieces) for s in steps] == [0, 1, 2]
    drawn = [at.mark.pieces for _, at, _ in found]
    counts = [drawn.count(s.mark.pieces) for s in steps]
    assert sum(counts) == 400 and all(abs(n - 400 / 3) < 4 * (400 * 2 / 9) ** 0.5 for n in counts)


def test_equal_states_are_begun_at_once_and_share_their_value(monkeypatch):
    found = begun(monkeypatch)
    round_ = grown(trees=1, expand=4, rounds=3, keep=1, merge="state", pick="value").drive()
    several = 0
    for steps, at, ended in found:
        same = [s for s in steps if s.state == at.state]
        several += len(same) > 1
        assert at.mark.used == min(s.mark.used for s in same)
        worth = {}
        for state in dict.fromkeys(s.state for s in steps):
            told = [c.verdict.correct for c in ended if state in (ended[0].initial, *c.states)]
            p = (sum(told) + 1) / (len(told) + 2)
            worth[state] = p * (1 - p)
        at_least = sorted(worth.values())[-4:][0]
        assert worth[at.state] >= at_least - 1e-12
    merges = [d for d in round_.decisions if d.action == "merge"]
    assert several > 2 and merges and all(d.reason.startswith("same_state: turn") for d in merges)
    assert len({d.reason for d in merges}) == len(merges)
    assert step_metrics(list(round_.groups.values()), round_.decisions)["merged"] == len(merges)
    apart = grown(trees=1, expand=4, rounds=3, keep=1).drive()
    assert not [d for d in apart.decisions if d.action == "merge"]


@pytest.mark.parametrize("shape", [{}, {"rounds": 3, "keep": 5, "merge": "state", "pick": "value"}], ids=["plain", "merging"])
def test_neither_the_order_of_ends_nor_a_copy_in_mid_growth_changes_a_leaf(shape):
    def made():
        return grown(None, {"name": "registers", "tries": 8}, **shape)

    one = made().drive()
    two = made().drive(lambda engine, *parts: StreamDriver(engine, parts[0], engine.now, *parts[1:]))
    assert leaves(one) and leaves(two) == leaves(one)
    third = made()
    cut = third.round()
    driver = WaveDriver(third.engine, third.cascade, None, third.host)
    pulses(driver, cut, third.engine, 5)
    whole = made().round()
    whole.load_state_dict(cut.state_dict())
    WaveDriver(third.engine, third.cascade, None, third.host).drive(whole)
    assert leaves(whole) == leaves(one)


@method("fragile", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Fragile(Talker):
    """Breaks at the verdict, or at the snapshot, of what was begun from a snapshot."""

    where = "verify"

    def restore(self, task, snapshot):
        if self.where == "restore":
            raise EnvironmentFault("broke", "in restore")
        super().restore(task, snapshot)
        self.restored = True

    def verify(self):
        if getattr(self, "restored", False):
            raise EnvironmentFault("broke", "in verify")
        return super().verify()


@pytest.mark.parametrize("where", ["verify", "restore"])
def test_a_branch_that_breaks_takes_its_own_tokens_alone(where, monkeypatch):
    """Three tries of the one branch, from the root or after `a$`; the chain it leaves keeps what both share."""
    monkeypatch.setattr(Fragile, "where", where)
    table = {"a+?00": "a$", "a+?00a$b": "#k$"}
    shape = {"name": "tree-grpo", "trees": 1, "expand": 6, "keep": 7}
    made = turns(
        table, tasks(1), {"name": "test_agent_trees:Fragile"}, generate={"topology": shape}, control={"min_members": 1}
    )
    round_ = made.drive()
    (member,) = members(round_)
    assert text(member) == "ab#k" and member.rollout.cost.generated == 5 and member.signals.correct
    failed = dict(round_.failed)
    if where == "restore":
        assert failed == {} and made.engine.usage().decoded == 5
    else:
        assert set(failed) == {"environment_fault"} and failed["environment_fault"] % 3 == 0
        assert 6 * 3 * 3 < failed["environment_fault"] < 6 * 3 * 5  # some began at the root, some after the first turn
    assert made.engine.usage().decoded == 5 + sum(failed.values()) == made.budget.spent and len(made.host) == 0


def test_what_the_budget_refuses_ends_the_trees_and_nothing_is_lost():
    made = grown(rounds=3, keep=1, limit=200, sections={"control": {"min_members": 1}})
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"worst": 64})
    WaveDriver(made.engine, made.cascade, None, made.host).drive(round_)
    booked = sum(m.rollout.cost.generated for m in members(round_))
    assert round_.done and booked + sum(round_.failed.values()) == made.engine.usage().decoded <= 200
    assert len(made.host) == 0


def test_settings_say_how_many_leaves_there_are():
    recipe = parse({"generate": {"topology": {"name": "tree-grpo"}, "environment": {"name": "registers"}}})
    assert recipe.k == 6
    with pytest.raises(ConfigError, match="keep = 4 leaves of a tree that has 3"):
        parse({"generate": {"topology": {"name": "tree-grpo", "keep": 4}}}).methods()


def test_limits_count_what_was_before_the_branch():
    round_ = grown(turns=2, rounds=2, keep=5).drive()
    stops = {(m.rollout.meta["turns"], m.rollout.stop) for m in members(round_)}
    assert stops == {("2", StopReason.MAX_TURNS), ("2", StopReason.ENV_TERMINATED)}
    made = turns(
        TABLE,
        [TASK],
        {"name": "registers"},
        generate={"topology": {"name": "tree-grpo", "turn_tokens": 4, "rounds": 3, "keep": 7}, "max_tokens": 10},
    )
    lengths = [
        sum(len(n.segment) for n in m.rollout.path if n.segment.kind is SegmentKind.ACTION) for m in members(made.drive())
    ]
    assert len(lengths) == 14 and max(lengths) <= 10


def test_held_out_rollouts_are_independent():
    made = grown()
    stop = StopSpec((END_ID,))
    parts = (made.engine, made.cascade, made.renderer, [TASK], 2, False, 64, stop, made.slots, made.host)
    found = evaluate_turns(*parts)
    assert found.tokens == made.engine.usage().decoded == 12 + 8 and found.accuracy == 0.5
