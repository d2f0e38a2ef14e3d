"""Rollouts of several turns, through recipe, scripted engine and batch."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gfcr.build import preflight
from gfcr.context import Configuration
from gfcr.domains.programs.tokenizer import decode
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.recipe import parse
from gfcr.run.ledger import Ledger
from gfcr.types import Drop, Sampling, SegmentKind, StopReason, Task, path_ids
from interactive_cases import ONE_LINE, RIGHT_AND_LATE, TOKENIZER, Talker, turns
from lifecycle_cases import batch_of, tasks

ONE = tasks(1)  # a+?00
ONCE = {"failures": {"name": "retry", "attempts": 0}}


def members(round_):
    return [m for g in round_.groups.values() for m in g.members.values()]


def talk(*said, **more):
    """One rollout that says this, turn by turn, with `talker`, and its round."""
    table, context = {}, "a+?00"
    for line in said:
        table[context] = line
        context += line + more.pop("between", "b")
    made = turns(table, more.pop("tasks", ONE), topology={"k": 1, **more.pop("topology", {})}, **more)
    return made, made.drive()


def booked(round_):
    ledger = Ledger()
    parts = round_.failed_context, round_.booked, round_.failed_steps
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), *parts)
    return ledger


def only(round_):
    (member,) = members(round_)
    return member


def text(member):
    return "".join(decode(n.segment.ids.tolist()) for n in member.rollout.path[1:])


def test_golden_registers_through_recipe_engine_and_batch():
    """Two rollouts of `a+?12` with the register machine: right at once, and after a line that is shown again."""
    made = turns(RIGHT_AND_LATE, [ONE_LINE], {"name": "registers"}, {"turn_tokens": 4, "turns": 6})
    round_ = made.drive()
    right, wrong = members(round_)
    assert text(right) == "a+32#32" and text(wrong) == "a+42?12a+32#42"
    assert (right.rollout.stop, wrong.rollout.stop) == (StopReason.ENV_TERMINATED,) * 2
    assert right.signals.correct is True and wrong.signals.correct is False
    assert [(s.start, s.end, s.kind, s.value) for s in right.signals.steps] == [(6, 10, "turn", 0.1), (10, 14, "turn", 1.0)]
    assert [(s.start, s.end, s.value) for s in wrong.signals.steps] == [(6, 10, 0.0), (13, 17, 0.1), (17, 21, 0.0)]
    assert [n.segment.turn for n in wrong.rollout.path[1:]] == [0, 1, 1, 2]
    assert len(wrong.rollout.state_keys) == 3 and wrong.rollout.state_keys[0] != wrong.rollout.state_keys[1]
    batch = batch_of(round_)
    assert len(batch) == 2 and made.host is not None and len(made.host) == 0
    for row, member in enumerate((right, wrong)):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        trained = batch.input_ids[span][batch.rl_mask[span]]
        assert trained.tolist() == member.rollout.own_tokens().tolist()
        advantage = batch.advantages[span]
        assert np.allclose(advantage[batch.rl_mask[span]], [0.9998, -0.9998][row], atol=1e-5)  # .5 / (.5 + 1e-4)
        assert np.isnan(advantage[~batch.rl_mask[span]]).all() and np.isnan(batch.behaviour[span][~batch.rl_mask[span]]).all()
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context)
    usage = made.engine.usage()
    assert ledger.total.generated == usage.decoded == made.budget.spent == 20
    assert ledger.total.prefilled == usage.prefilled and ledger.total.cached == usage.cached
    assert ledger.total.env_steps == 5 and ledger.total.discarded == 0
    # a turn computes what the one before it did not: the prompt once per wave, then what was read
    assert usage.prefilled == 6 + 3 and usage.cached == 6 + 10 + 10 + 17


def test_nothing_is_trained_that_was_not_sampled():
    _, round_ = talk("a$", "cc$", "#k$")
    rollout = only(round_).rollout
    kinds = [n.segment.kind for n in rollout.path]
    assert kinds == [SegmentKind.PROMPT] + [SegmentKind.ACTION, SegmentKind.OBSERVATION] * 2 + [SegmentKind.ACTION]
    assert all(n.segment.logprobs is None and n.segment.author == "environment" for n in rollout.path[2::2])
    assert decode(rollout.own_tokens().tolist()) == "acc#k" and rollout.response_length == 8
    assert rollout.cost.generated == 8 and rollout.meta == {"turns": "3"}
    shown = TOKENIZER.decode(path_ids(rollout.path).tolist())
    assert shown.replace(" ", "") == "<bos>a+?00a$bcc$b#k$"


def test_the_answer_in_an_observation_is_neither_trained_nor_judged():
    """The environment shows the right final pair; a verifier that reads the text sees the policy's own alone."""
    task = Task("programs", "a+?12", {"final": "32"}, category="one")
    table = {"a+?12": "a+42", "a+?12a+42a+32": "#42$"}
    made = turns(
        table,
        [task],
        {"name": "registers", "answer": "correct"},
        {"k": 1, "turn_tokens": 4},
        filter={"verifiers": [{"name": "exact"}]},
    )
    member = only(made.drive())
    assert text(member) == "a+42a+32#42" and "a+32" not in decode(member.rollout.own_tokens().tolist())
    assert member.signals.correct is False and "32" not in (member.signals.verdict.answer or "")


LIMITS = [
    (StopReason.ENV_TERMINATED, ["a$", "#k$"], {}, {}),
    (StopReason.ENV_TRUNCATED, ["a$", "l$"], {}, {}),
    (StopReason.MAX_TURNS, ["a$", "a$"], {"turns": 2}, {}),
    (StopReason.MAX_TOOL_CALLS, ["c$", "c$"], {"calls": 3}, {}),
    (StopReason.MAX_TOKENS, ["a$", "aaaaaa"], {}, {"generate": {"max_tokens": 6}}),
    (StopReason.MAX_TOKENS, ["aa$", "aa$"], {}, {"generate": {"max_tokens": 6}}),
    (StopReason.MAX_TOKENS, ["aaaa"], {"turn_tokens": 4, "cut": "end"}, {}),
    (StopReason.CONTEXT_FULL, ["a$", "aaaaaaa"], {}, {"max_length": 14, "generate": {"max_tokens": 8}}),
    (StopReason.CONTEXT_FULL, ["aaaaaa$"], {}, {"max_length": 14, "generate": {"max_tokens": 8}}),
    (StopReason.EARLY_EXIT, ["i$"], {"invalid": "end"}, {}),
    (StopReason.MAX_SECONDS, ["a$"], {"seconds": 1e-9}, {}),
]


@pytest.mark.parametrize(("stop", "said", "topology", "more"), LIMITS, ids=[f"{s}-{i}" for i, (s, *_) in enumerate(LIMITS)])
def test_every_limit_ends_a_rollout_with_its_own_reason(stop, said, topology, more):
    made, round_ = talk(*said, topology=topology, **more)
    member = only(round_)
    assert member.rollout.stop is stop
    assert member.signals.correct is (said[-1] == "#k$")  # the environment is asked what it came to, whatever ended it
    assert made.engine.usage().decoded == member.rollout.cost.generated and len(made.host) == 0
    assert member.rollout.path[-1].segment.kind is SegmentKind.ACTION  # nobody reads on, so nothing is put there


def test_a_turn_cut_by_its_own_limit_is_played():
    _, round_ = talk("aaa", "#k$", topology={"turn_tokens": 3})
    assert text(only(round_)) == "aaab#k" and only(round_).signals.correct


def test_the_last_turn_of_a_budget_that_holds_the_turns_exactly_is_played():
    _, round_ = talk("aaa", "#kk", topology={"turn_tokens": 3, "turns": 2}, generate={"max_tokens": 6})
    assert only(round_).rollout.stop is StopReason.ENV_TERMINATED and only(round_).signals.correct
    _, round_ = talk("aaa", "aaa", topology={"turn_tokens": 3}, generate={"max_tokens": 6})
    assert only(round_).rollout.stop is StopReason.MAX_TOKENS and only(round_).rollout.meta["turns"] == "2"


def test_a_budget_that_does_not_hold_the_turns_is_noted():
    def noted(most, turn_tokens):
        topology = {"name": "interactive", "turns": 6, "turn_tokens": turn_tokens}
        generate = {"environment": {"name": "registers"}, "topology": topology, "max_tokens": most}
        recipe = {"generate": generate, "filter": {"verifiers": [{"name": "environment"}]}}
        return list(preflight(parse(recipe)).notes)

    assert noted(24, 4) == noted(23, None) == []
    (note,) = noted(23, 4)
    assert (
        "generate.max_tokens = 23 is less than 6 turns of 4 tokens" in note
        and "cut after 5 of them" in note
        and "24 hold all" in note
    )


def test_laws_laid_out_for_a_turn_count_its_own_tokens_those_of_the_rollout_all():
    first, second, third, last = (Sampling(heat) for heat in (1.2, 0.9, 0.6, 0.3))
    of_turn = Configuration(third, 64, ((1, last),))

    class Laid:
        def configure(self, group, view):
            return Configuration(first, 64, ((6, second),), ((2, of_turn),))

    made = turns(
        {"a+?00": "aaa$", "a+?00aaa$b": "aaa$", "a+?00aaa$baaa$b": "aaa$", "a+?00aaa$baaa$baaa$b": "#k$"},
        ONE,
        topology={"k": 1},
    )
    made.slots.configure = Laid()
    segments = [n.segment for n in only(made.drive()).rollout.path if n.segment.kind is SegmentKind.ACTION]
    seen = [(s.turn, s.sampling, len(s)) for s in segments]
    assert seen[:3] == [(0, first, 4), (1, first, 2), (1, second, 2)]  # the end token is the turn's own
    assert seen[3:] == [(2, third, 1), (2, last, 3), (3, third, 1), (3, last, 2)]


def test_an_invalid_turn_is_answered_and_costs_its_penalty():
    _, round_ = talk("i$", "a$", "#m$", topology={"penalty": -0.1})
    assert [s.value for s in only(round_).signals.steps] == [-0.1, 0.25, 1.0]
    _, round_ = talk("i$", "#m$")
    assert [s.value for s in only(round_).signals.steps] == [1.0]  # no reward was given: that is not 0


def test_going_back_after_an_invalid_turn_discards_it():
    table = {"a+?00": "a$", "a+?00a$b": ["i$", "#k$"]}
    made = turns(table, ONE, topology={"k": 1, "back": "invalid"})
    round_ = made.drive()
    member = only(round_)
    assert text(member) == "ab#k" and member.signals.correct and member.rollout.meta["taken_back"] == "1"
    assert dict(round_.failed) == {"taken_back": 2} and len(member.rollout.state_keys) == 2
    assert made.engine.usage().decoded == 7 == made.budget.spent and member.rollout.cost.generated == 5
    table = {"a+?00": "a$", "a+?00a$b": "i$", "a+?00a$bi$b": "#m$"}  # it goes back so often, and then goes on
    made = turns(table, ONE, topology={"k": 1, "back": "invalid", "back_most": 3})
    assert text(only(made.drive())) == "abib#m" and made.engine.usage().decoded == 2 + 4 * 2 + 3


def test_going_back_at_a_wrong_verdict():
    table = {"a+?00": ["a$", "o$"], "a+?00a$b": "#m$", "a+?00o$b": "#k$"}
    made = turns(table, ONE, topology={"k": 1, "back": "wrong", "back_turns": 2})
    round_ = made.drive()
    assert text(only(round_)) == "ob#k" and only(round_).signals.correct and dict(round_.failed) == {"taken_back": 5}
    assert made.recipe.methods()[0][1].traits() == {"breaks: iid group", "needs: snapshots"}


def test_a_dead_session_begins_anew_and_its_tokens_are_discarded():
    made = turns({"a+?00": "a$", "a+?00a$b": "#k$"}, ONE, topology={"k": 1})
    Talker.faults.extend(["reset", "step", "verify"])
    round_ = made.drive()
    assert not members(round_) and dict(round_.failed) == {"environment_fault": 2 + 5}  # given up after two tries more
    faults = [d.reason for d in round_.decisions if d.action == "fault"]
    assert [f.split(": ")[:2] for f in faults] == [["environment_fault", "broke"]] * 3
    ledger = booked(round_)  # the verdict's failure alone came after turns that had been played
    assert ledger.total.env_steps == 2 and ledger.lost_steps == {"environment_fault": 2} and ledger.total.tool_seconds > 0
    made = turns({"a+?00": "a$", "a+?00a$b": "#k$"}, ONE, topology={"k": 1})
    Talker.faults.extend(["step", "verify"])
    round_ = made.drive()
    ledger = booked(round_)
    assert ledger.total.env_steps == 4 and only(round_).rollout.cost.env_steps == 2
    assert ledger.lost_steps == {"environment_fault": 2, "zero_variance": 2}
    assert only(round_).signals.correct and only(round_).rollout.meta["restarts"] == "2"
    assert made.engine.usage().decoded == 2 + 5 + 5 == made.budget.spent and dict(round_.failed) == {"environment_fault": 7}
    assert len(set(Talker.begun)) == 1 and len(made.host) == 0


def test_a_tree_without_a_leaf_books_what_was_played_for_it():
    tree = {"name": "tree-grpo", "trees": 1, "expand": 1, "rounds": 1, "keep": 1}
    made = turns({"a+?00": "a$", "a+?00a$b": "#k$"}, ONE, generate={"topology": tree}, control=ONCE)
    Talker.faults.append("verify")
    round_ = made.drive()
    assert not members(round_) and dict(round_.failed) == {"environment_fault": 5}
    ledger = booked(round_)
    assert ledger.total.env_steps == 2 and ledger.lost_steps == {"environment_fault": 2} and ledger.total.tool_seconds > 0
    again = Ledger()
    again.load_state_dict(ledger.state_dict())
    assert again.lost_steps == ledger.lost_steps


@pytest.mark.parametrize("back", ["never", "wrong"])
def test_nobody_is_asked_for_fragments_that_nothing_keeps(monkeypatch, back):
    def fragments(self):
        raise RuntimeError("asked")

    monkeypatch.setattr(Talker, "fragments", fragments)
    table = {"a+?00": ["#o$", "#k$"]}
    round_ = turns(table, ONE, topology={"k": 1, "back": back}).drive()
    assert only(round_).signals.correct is (back == "wrong") and not any(d.action == "fault" for d in round_.decisions)


def test_a_groups_rollouts_begin_alike_or_each_for_itself():
    table = {"a+?00": "#k$"}
    turns(table, ONE, topology={"k": 3}).drive()
    assert len(Talker.begun) == 3 and len(set(Talker.begun)) == 1
    turns(table, ONE, topology={"k": 3, "initial": "rollout"}).drive()
    assert len(Talker.begun) == len(set(Talker.begun)) == 3


def test_what_is_said_before_the_first_turn_is_read_and_not_trained():
    made = turns({"a+?00bb": "#k$"}, ONE, {"name": "interactive_cases:Talker", "opens": "bb"}, {"k": 1})
    member = only(made.drive())
    kinds = [n.segment.kind for n in member.rollout.path]
    assert kinds == [SegmentKind.PROMPT, SegmentKind.OBSERVATION, SegmentKind.ACTION] and text(member) == "bb#k"


def test_agents_speak_in_turn_and_only_the_trained_ones_learn():
    agents = [{"name": "one", "says": "/"}, {"name": "two", "says": ":", "trained": False}]
    table = {"a+?00/": "a2$", "a+?00/a2$b:": "o$", "a+?00/a2$b:o$b": "o1$", "a+?00/a2$b:o$bo1$b/": "#k$"}
    made = turns(
        table,
        ONE,
        {"name": "interactive_cases:Talker", "agents": True},
        {"k": 2, "agents": agents},
        filter={"admission": {"drop_zero_variance": False}},
    )
    round_ = made.drive()
    member = members(round_)[0]
    actions = list(member.rollout.actions())
    assert [(a.author, a.role.value, a.turn) for a in actions] == [
        ("one", "rl", 0),
        ("two", "none", 1),
        ("two", "none", 2),
        ("one", "rl", 3),
    ]
    batch = batch_of(round_)
    assert decode(batch.input_ids[: batch.offsets[1]][batch.rl_mask[: batch.offsets[1]]].tolist()) == "a2#k"


def test_a_slow_environment_holds_up_its_own_rollout_alone():
    """Four rollouts of five turns, each asleep at a turn of its own: in waves everybody waits for all of them, completion by completion
    nobody waits for another; what is said and learnt is the same."""
    line, table = "a+?00", {}
    for turn in range(5):
        said = "#k$" if turn == 4 else "a$"
        table[line] = said
        line += said + "b"
    took, said = {}, {}
    for kind, driver in (("waves", WaveDriver), ("stream", lambda e, c, j, h: StreamDriver(e, c, e.now, j, h))):
        environment = {"name": "interactive_cases:Sleeper", "seconds": 0.4}
        made = turns(table, ONE, environment, topology={"k": 4}, control={"groups": 1})
        started = time.monotonic()
        round_ = made.drive(driver)
        took[kind] = time.monotonic() - started
        said[kind] = {m.rollout.id: (text(m), m.signals.correct) for m in members(round_)}
        made.host.close()
    assert said["waves"] == said["stream"] and len(said["stream"]) == 4
    assert took["waves"] > 1.6 and took["stream"] < 1.2, took


def test_a_lost_request_gives_the_rollout_up_and_ends_its_session():
    made = turns({"a+?00": "aaaa$", "a+?00aaaa$b": "#k$"}, ONE, topology={"k": 1}, limit=64)
    round_ = made.round()
    round_.budget.limit = 66  # room for the first turn's worst case, not for the second's
    from gfcr.drivers.wave import WaveDriver

    made.budget.spent = 2
    driver = WaveDriver(made.engine, made.cascade, None, made.host)
    driver.drive(round_)
    assert members(round_) and made.budget.spent <= 66
    assert len(made.host) == 0


def test_a_copied_round_ends_as_the_other_does():
    """A round that is held and gone on with gives the same rollouts: what is outstanding is asked again under its own name."""
    from gfcr.drivers.wave import WaveDriver

    table = {"a+?00": ["a$", "o$"], "a+?00a$b": "#k$", "a+?00o$b": "#m$"}
    whole = turns(table, ONE).drive()
    made = turns(table, ONE)
    one = made.round()
    asks = one.ask()
    driver = WaveDriver(made.engine, made.cascade, None, made.host)
    driver.submit(one, asks)
    driver.answer(one, asks)
    other = made.round()
    other.number, other.view = one.number, one.view
    other.load_state_dict(one.state_dict())
    WaveDriver(made.engine, made.cascade, None, made.host).drive(other)
    assert [(m.rollout.id, text(m), m.rollout.seed) for m in members(other)] == [
        (m.rollout.id, text(m), m.rollout.seed) for m in members(whole)
    ]


def test_a_broken_group_is_abandoned_and_nothing_of_it_is_trained():
    made = turns({"a+?00": "a$", "a+?00a$b": "#k$"}, ONE, control={"failures": {"name": "retry", "attempts": 0}})
    Talker.faults.extend(["step", "step"])
    round_ = made.drive()
    assert round_.ready() is None and round_.reason.startswith("all_abandoned")
    assert dict(round_.failed) == {"environment_fault": 4} and not any(m.drop is not Drop.ABANDONED for m in members(round_))
