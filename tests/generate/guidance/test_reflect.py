"""A second attempt after a verdict: when there is one, what is judged and what is trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.domains.programs.tokenizer import decode, encode_prompt
from gfcr.drivers.wave import WaveDriver
from gfcr.errors import ConfigError
from gfcr.generate.guidance.reflect import ReflectSettings, _Plan
from gfcr.run.ledger import Ledger
from gfcr.types import LossRole, Role, SegmentKind, Signals, Status, Verdict, path_ids
from guidance_cases import guided, guided_lab, lab_words
from lifecycle_cases import batch_of, row_advantages

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "guidance.json").read_text())["reflection"]
SAID = {"r": "=a+53b-23c*63ds36#36", "w": "=a+53b-23c*65ds56#56", "x": "=#00", "t": "=a-b-"}


def run(said, k=2, filter_=None, **settings):
    """`said` in the order of asking; first attempts come first, then what follows, stage by stage."""
    letters = iter(said)
    topology = {"name": "reflect", "k": k, "again": ":", "ask": ":", "retry": "/", "wrong": "?", **settings}
    return guided_lab(
        lambda prompt, n: SAID[next(letters)],
        generate={"topology": topology},
        filter={"steps": [{"name": "program-steps"}], **(filter_ or {})},
    )


def group_of(made):
    (group,) = made.drive().groups.values()
    return group


def texts(member, kind=None):
    return [decode([int(i) for i in n.segment.ids]) for n in member.rollout.path if kind is None or n.segment.kind is kind]


def test_only_a_wrong_attempt_has_a_second_and_it_was_told():
    group = group_of(run("rxr"))
    (second,) = guided(group)
    assert texts(second) == ["a+b-c*ds?23", "#00", ":", "a+53b-23c*63ds36#36"]
    assert second.signals.correct and len(group.fresh()) == 2 and group.outcomes() == (1, 1)


def test_all_right_at_once_needs_no_second():
    assert not guided(group_of(run("rr")))


def test_an_attempt_that_nobody_could_judge_has_no_second():
    made = run("xx")
    object.__setattr__(made.tasks[0], "reference", None)
    group = group_of(made)
    assert not guided(group) and len(group.members) == 2


def test_the_second_is_judged_by_its_own_words_and_its_steps_lie_where_it_does():
    (second,) = guided(group_of(run("rxr")))
    at = 12 + 4 + 1
    assert [(s.start - at, s.end - at, s.value) for s in second.signals.steps if s.kind == "step"] == [
        (0, 4, 1.0),
        (4, 8, 1.0),
        (8, 12, 1.0),
        (12, 16, 1.0),
    ]


def rows(made):
    round_ = made.drive()
    batch = batch_of(round_)
    members = {i: m for g in round_.groups.values() for i, m in g.members.items()}
    return batch, [(members[i], slice(*batch.offsets[r : r + 2])) for r, i in enumerate(batch.rollout_ids)]


def test_the_loss_of_a_second_attempt_is_on_its_own_tokens():
    batch, found = rows(run("rxr"))
    for member, span in found:
        mask = batch.rl_mask[span]
        if member.role is Role.GUIDED:
            assert mask[:17].sum() == 0 and mask[17:].all()
            assert batch.behaviour[span][mask] == pytest.approx(-0.1 * np.arange(1, mask.sum() + 1))


def test_reflect_retry_reward_trains_the_reflection_alone_over_reflections_on_one_failure():
    first, retries = "x", GOLDEN["retries"]
    made = run(
        first + "tt" + retries,
        k=1,
        retries=2,
        reflection=8,
        train="reflection",
        first=False,
        cohort="attempt",
        filter_={"credit": {"name": "grpo", "eps": 0.0}},
    )
    batch, found = rows(made)
    assert row_advantages(batch) == pytest.approx(GOLDEN["advantages"]) and len(found) == 2
    for member, span in found:
        parts = [(n.segment.kind, n.segment.role, len(n.segment)) for n in member.rollout.path]
        assert [p[0] for p in parts] == ["prompt", "action", "observation", "action", "observation", "action"]
        assert [p[1] for p in parts] == [LossRole.NONE] * 3 + [LossRole.RL] + [LossRole.NONE] * 2
        assert batch.rl_mask[span].sum() == parts[3][2] == 5


def test_both_may_be_trained():
    _, found = rows(run("x" + "t" + "r", k=1, reflection=8, train="both"))
    (second,) = [m for m, _ in found if m.role is Role.GUIDED]
    assert [n.segment.role for n in second.rollout.path if n.segment.kind is SegmentKind.ACTION] == ["none", "rl", "rl"]


def test_the_second_attempt_under_the_plain_question():
    batch, found = rows(run("rxr", context="plain"))
    for member, span in found:
        if member.role is Role.GUIDED:
            own = path_ids(member.rollout.path[-1:]).tolist()
            assert batch.input_ids[span].tolist() == encode_prompt("a+b-c*ds?23") + own
            assert np.isnan(batch.behaviour[span]).all() and np.isnan(batch.proximal[span]).all()


def test_it_may_go_on_from_its_own_last_right_step():
    group = group_of(run("rwr", again="{steps}", keep_attempt=False))
    (second,) = guided(group)
    assert texts(second)[:2] == ["a+b-c*ds?23", "a+53b-23"] and second.rollout.train_path is None
    (nothing_right,) = guided(group_of(run("rxr", again="{steps}", keep_attempt=False)))
    assert [n.segment.kind for n in nothing_right.rollout.path] == ["prompt", "action"]


def test_every_token_is_booked_once():
    made = run("xx" + "tt" + "rx", reflection=8, train="reflection", first=False)
    round_ = made.drive()
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded


def test_a_budget_that_has_no_room_for_seconds_keeps_the_firsts():
    made = run("ww")
    made.budget.limit = 64
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"worst": 64})
    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    assert len(group.members) == 2 and not guided(group) and round_.budget.spent == made.engine.decoded


def plan(**settings):
    return _Plan(ReflectSettings(**settings), guided_lab("w").tasks[0], (), None, None, lab_words())


def wrong(evidence):
    return Signals({"v": Verdict("v", "1", Status.SCORED, 0.0, False, evidence)}, "v", {}, 0.0)


def test_feedback_hides_the_reference_unless_it_may_tell():
    said = wrong("final is '00', the reference is '36'")
    assert plan().said("{feedback}", said) == "That is not right."
    assert plan(feedback="evidence").said("{feedback}", said) == "final is '00', the reference is '(hidden)'"
    assert (
        plan(feedback="evidence", reveal=True).said("{feedback} {reference}", said) == "final is '00', the reference is '36' 36"
    )
    assert plan(feedback="evidence").said("{feedback}", wrong("")) == "That is not right."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": "reflection"}, "without a reflection"),
        ({"train": "both", "reflection": 8, "context": "plain"}, "there is no reflection"),
        ({"again": "{reference}"}, "tells the reference"),
        ({"keep_attempt": False, "reflection": 8}, "nothing to reflect on"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        run("x", **settings)
