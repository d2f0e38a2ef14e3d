"""Rounds for a foreign trainer, without one: order, replay, proof of the weights, ends."""

import numpy as np
import pytest

from gfcr.build import rollout_parts
from gfcr.engine.models import load_tokenizer
from gfcr.engine.scripted import ScriptedEngine
from gfcr.errors import ConfigError, DataError
from gfcr.integrations.carry import Exporter, Need, needs, refuse, refuse_batch
from gfcr.integrations.rounds import Rounds
from gfcr.integrations.trl import exporters
from gfcr.recipe import load
from gfcr.run.directory import RunDirectoryError
from gfcr.run.session import FutileRun, Session
from gfcr.task_sets import load_tasks
from gfcr.types import Normalise

SMALL = [
    "control.groups=3",
    "generate.topology.k=4",
    "budget.tokens=none",
    "budget.steps=4",
    "tasks.pool=D",
    "evaluate.limit=1",
]
UNEVEN = ["control.allocate={name='greedy'}", "filter.admission.drop_zero_variance=false"]


def rounds(path, *overrides, seed=0, **others):
    """A scripted engine's rounds: answers are noise, so nearly all are wrong; groups without signal are kept."""
    from gfcr.build import model_path

    recipe = load("grpo", [*SMALL, "filter.admission.drop_zero_variance=false", *overrides])
    tokenizer = load_tokenizer(model_path("lab"))
    parts = rollout_parts(recipe, seed, load_tasks(recipe.tasks), tokenizer, ScriptedEngine(), None)
    return Rounds(parts, path, **others)


def drain(source, start=0):
    """Every batch from `start` on, the weights of update n published before batch n."""
    source.resume_at(start)
    out = []
    while True:
        source.publish(start + len(out), {})
        if (fed := source.next()) is None:
            return out
        out.append(fed)


def same(a, b):
    return (
        a.version == b.version
        and np.array_equal(a.batch.input_ids, b.batch.input_ids)
        and a.batch.rollout_ids == b.batch.rollout_ids
    )


def test_a_killed_trainer_finds_its_rounds_again_and_the_rest_as_if_nothing_had_happened(tmp_path):
    whole = rounds(tmp_path / "whole")
    expected = drain(whole)
    assert [fed.round for fed in expected] == [0, 1, 2, 3] and whole.ended == "steps" and not expected[0].replayed
    assert whole.over()
    whole.close()

    cut = rounds(tmp_path / "cut")
    cut.publish(0, {})
    cut.next()
    cut.publish(1, {})
    cut.next()
    cut.close()  # as a kill leaves it: two rounds committed, the trainer's checkpoint after the first
    again = rounds(tmp_path / "cut")
    assert again.stored == 2
    assert same(again.current(0), expected[0])
    found = drain(again, start=1)
    assert [fed.replayed for fed in found] == [True, False, False]
    assert all(same(a, b) for a, b in zip(found, expected[1:], strict=True))
    assert again.budget.spent == whole.budget.spent and again.ledger.total == whole.ledger.total
    assert again.directory.verify() == [] and again.directory.steps() == [1, 2, 3, 4]
    again.close()


def test_stored_rounds_of_other_weights_are_refused(tmp_path):
    first = rounds(tmp_path)
    first.publish(0, {})
    first.next()
    first.close()
    other = rounds(tmp_path)
    other.publish(5, {})  # the scripted engine's fingerprint is its version's
    with pytest.raises(DataError, match="was sampled with weights"):
        other.next()
    other.close()
    willing = rounds(tmp_path, any_weights=True)
    willing.publish(5, {})
    assert willing.next().replayed
    with pytest.raises(DataError, match="comes after 2 batches, the run directory holds 1"):
        willing.resume_at(2)
    willing.close()


def test_another_recipe_or_seed_does_not_continue_a_run(tmp_path):
    rounds(tmp_path).close()
    with pytest.raises(RunDirectoryError, match="another recipe"):
        rounds(tmp_path, "control.groups=4")
    with pytest.raises(RunDirectoryError, match="another recipe"):
        rounds(tmp_path, seed=1)


def test_rounds_and_runs_do_not_continue_each_other(tmp_path):
    first = rounds(tmp_path / "rounds")
    first.publish(0, {})
    first.next()
    first.close()
    with pytest.raises(RunDirectoryError, match="a trainer outside gfcr leads"):
        Session.resume(tmp_path / "rounds", any_environment=True)
    session = Session.create(first.recipe, 0, tmp_path / "run")
    session._begin(session._publish())
    session.close()
    with pytest.raises(RunDirectoryError, match="a run of gfcr's own trainer"):
        rounds(tmp_path / "run", any_environment=True)


def test_every_end_has_a_reason(tmp_path):
    poor = rounds(None, "budget.tokens=800", "budget.steps=none", "control.min_groups=1", "generate.max_tokens=64")
    assert drain(poor) and poor.ended == "budget"
    futile = rounds(tmp_path, "filter.admission.drop_zero_variance=true", "control.max_empty=3", "budget.steps=9")
    futile.publish(0, {})
    with pytest.raises(FutileRun, match="3 rounds in a row had nothing to train on"):
        for _ in range(9):
            futile.next()
    assert futile.directory.steps()[-3:] == [futile.round - 2, futile.round - 1, futile.round]  # empty rounds are committed too
    futile.close()


# ---- what is carried -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "overrides", "need"),
    [
        ("four_modules", [], Need.INJECTED),
        ("four_modules", [], Need.SELECTION),
        ("four_modules", [], Need.UNEVEN),
        ("four_modules", [], Need.DROPPED),
        ("dapo", [], Need.UNEVEN),
        ("grpo", [], Need.CREDIT),
        ("trl_grpo", ["filter.credit=rloo"], Need.CREDIT),
        ("trl_grpo", ["filter.admission.overlong=mask"], Need.DROPPED),
        ("trl_grpo", UNEVEN, Need.UNEVEN),
        ("trl_grpo", ["control.configure={name='schedule',end=0.7}"], Need.TEMPERATURES),
        ("trl_grpo", ["control.configure={name='uncertain'}"], Need.TEMPERATURES),
    ],
)
def test_a_rollout_function_refuses_what_trl_has_no_place_for(recipe, overrides, need):
    chosen = load(recipe, overrides)
    assert need in needs(chosen)
    with pytest.raises(ConfigError, match=f"TRL's rollout_func cannot carry .*{need}") as refusal:
        refuse(chosen, exporters.ROLLOUT_FUNC)
    assert "use GfcrGRPOTrainer" in refusal.value.remedy and refusal.value.what.count("\n") == 0


def test_what_each_way_carries_is_let_through():
    for name in ("four_modules", "grpo", "ar3po", "informative", "trl_grpo", "dapo"):
        refuse(load(name), exporters.TRAINER)
        refuse(load(name), exporters.WORKER)
    refuse(load("trl_grpo"), exporters.ROLLOUT_FUNC)
    refuse(load("trl_grpo", ["filter.credit=dr-grpo"]), exporters.ROLLOUT_FUNC)
    for name, part in (("cispo", "loss.kind = 'cispo'"), ("dpo", "loss.kind = 'dpo'"), ("ppo", "train.value")):
        with pytest.raises(ConfigError, match=f"cannot carry {part}: that is a part of gfcr's own trainer"):
            refuse(load(name), exporters.TRAINER)
    heated = load("trl_grpo", ["control.configure={name='within',points=[[4,0.8]]}"])
    for exporter in (exporters.TRAINER, exporters.WORKER):
        with pytest.raises(ConfigError, match="cannot carry answers of several temperatures"):
            refuse(heated, exporter)
        refuse(load("trl_grpo", ["control.configure={name='schedule',what='max_tokens',start=24,end=12}"]), exporter)
    with pytest.raises(ConfigError, match="cannot carry packed rows"):
        refuse(load("grpo", ["loss.packed=true"]), exporters.TRAINER)
    with pytest.raises(ConfigError, match=r"cannot average the loss as loss.normalise = 'constant'"):
        refuse(load("grpo", ["loss.normalise=constant"]), exporters.WORKER)


def test_what_no_trait_told_of_is_found_in_the_batch(tmp_path):
    source = rounds(None)
    source.publish(0, {})
    batch = source.next().batch
    refuse_batch(batch, exporters.WORKER)
    from dataclasses import replace

    advantages = batch.advantages.copy()
    advantages[np.flatnonzero(batch.rl_mask)[0]] += 1
    by_token = replace(batch, advantages=advantages)
    refuse_batch(by_token, exporters.TRAINER)
    with pytest.raises(ConfigError, match="RolloutSample cannot carry advantages by token, and round 0 has them"):
        refuse_batch(by_token, exporters.WORKER)
    heats = batch.temperature.copy()
    heats[np.flatnonzero(batch.rl_mask)[0]] = 0.5
    with pytest.raises(ConfigError, match="answers of several temperatures, and round 0 has them"):
        refuse_batch(replace(batch, temperature=heats), exporters.TRAINER)
    weights = np.zeros(len(batch.input_ids), np.float32)
    weights[0] = 1
    nothing = Exporter("nobody", frozenset(), frozenset(Normalise), "do something else")
    for exporter in (exporters.TRAINER, exporters.WORKER, nothing):
        with pytest.raises(ConfigError, match="cannot carry cross-entropy weights"):
            refuse_batch(replace(batch, ce_weights=weights), exporter)
