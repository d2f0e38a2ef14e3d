"""The golden vectors through the library's own scripted engine, wave by wave and completion by completion."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.domains.programs.tokenizer import END_ID, encode_answer
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.scripted import ScriptedEngine
from gfcr.types import StopReason
from lifecycle_cases import answer_text, batch_of, decoder, lab, row_advantages

CASES = json.loads((Path(__file__).parents[1] / "golden" / "credit.json").read_text())
REWARDS_ALONE = [case for case in CASES["cases"] if "xrpo-sharpening" not in json.dumps(case)]
"""XRPO reads log-probabilities, and its figures are for those of the lab's engine (tests/filter/test_credit_golden.py)."""


def scripted(made, answers):
    script = {
        (task.prompt, i): ([*encode_answer(answer_text(task.prompt, letter)), END_ID], StopReason.EOS)
        for task in made.tasks
        for i, letter in enumerate(answers)
    }
    return ScriptedEngine(script, decode=decoder)


def drive(made, engine, kind):
    round_ = made.round()
    driver = WaveDriver(engine, made.cascade) if kind == "wave" else StreamDriver(engine, made.cascade, engine.now)
    driver.drive(round_)
    return round_


@pytest.mark.parametrize("kind", ["wave", "stream"])
@pytest.mark.parametrize("case", REWARDS_ALONE, ids=lambda c: c["name"])
def test_golden_advantages_through_the_scripted_engine(case, kind):
    made = lab(case["answers"], k=len(case["answers"]), filter={"credit": case["credit"], **case.get("filter", {})})
    round_ = drive(made, scripted(made, case["answers"]), kind)
    found = dict(zip(batch_of(round_).rollout_ids, row_advantages(batch_of(round_))))
    (group,) = round_.groups.values()
    by_key = {m.rollout.id: m for m in group.members.values()}
    expected = {True: max(case["advantages"]), False: min(case["advantages"])}
    assert found == {
        i: pytest.approx(expected[m.signals.correct], abs=case.get("tolerance", CASES["tolerance"])) for i, m in by_key.items()
    }
    assert sum(m.signals.correct for m in by_key.values()) == case["answers"].count("r")


def test_both_drivers_train_the_same_rollouts_on_the_same_numbers():
    batches = []
    for kind in ("wave", "stream"):
        made = lab("rwwr", n_tasks=3)
        batch = batch_of(drive(made, scripted(made, "rwwr"), kind))
        order = np.argsort(batch.rollout_ids)
        batches.append(batch.rows(order))
    one, two = batches
    assert one.rollout_ids == two.rollout_ids
    for name in ("input_ids", "rl_mask", "advantages", "behaviour"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_two_thousand_rollouts_on_the_virtual_clock_end_with_every_token_booked():
    from gfcr.run.ledger import Ledger

    made = lab("r", n_tasks=49, k=8, generate={"max_tokens": 64})
    engine = ScriptedEngine(decode=decoder)
    ledger = Ledger()
    for _ in range(5):
        round_ = drive(made, engine, "stream")
        ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
    assert ledger.total.generated == engine.usage().decoded == made.budget.spent > 0
    assert sum(ledger.stops.values()) == 5 * 49 * 8
