"""The three ways into TRL, in its real trainers: contracts, refusals, ends; publication of the weights; the example scripts."""

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import numpy as np
import torch
from tests.integrations.trl_cases import CPU, SMALL, lab_model, recipe
from tests.run.real_runs import Breaking
from transformers import AttentionInterface
from trl import GRPOTrainer
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.packing import TREE_ATTENTION, TreeRow

from gfcr.engine.contract import ScoreItem
from gfcr.errors import ConfigError, DataError, MissingExtra
from gfcr.integrations.trl import (
    GfcrGRPOTrainer,
    GfcrRolloutFunc,
    GfcrRolloutWorker,
    async_grpo_config,
    grpo_config,
)
from gfcr.integrations.trl.configs import check_args
from gfcr.integrations.trl.rollout import _spread
from gfcr.types import Node, Rollout, Sampling, Segment, SegmentKind, StopReason

SAVE = {"save_strategy": "steps", "save_steps": 2}
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_trainer_publishes_its_own_weights_and_ends_with_the_budget(tmp_path):
    chosen = recipe("four_modules", "tasks.pool=D")
    trainer = GfcrGRPOTrainer(chosen, args=grpo_config(chosen, str(tmp_path), **CPU | SAVE), seed=3)
    before = lab_model()
    trainer.train()
    assert trainer.state.global_step == 4 and trainer.rounds.over() and trainer.rounds.ended == "steps"
    rows = trainer.rounds.directory.metrics()
    assert [row["version"] for row in rows] == [0, 2] and rows[0]["weights"] != rows[1]["weights"]
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), trainer.model.cpu().parameters()))
    engine = trainer.rounds.parts.engine
    trainer.rounds.publish(4, trainer.model.state_dict())
    ids = np.array([5, 9, 11, 7, 3], np.int32)
    (score,) = engine.score([ScoreItem("x", ids, ((1, 5, Sampling()),))])
    with torch.no_grad():
        logits = trainer.model(torch.tensor(ids, dtype=torch.long)[None]).logits[0].log_softmax(-1)
    wanted = logits[torch.arange(4), torch.tensor(ids[1:], dtype=torch.long)].numpy()
    np.testing.assert_allclose(score.logprobs[1:], wanted, atol=5e-5)
    assert trainer.train(resume_from_checkpoint=True).global_step == 4  # a run that is over returns at once
    trainer.rounds.close()


def test_an_adapter_is_merged_for_the_publication_and_no_longer(tmp_path):
    peft = pytest.importorskip("peft")
    chosen = recipe("trl_grpo")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = GfcrGRPOTrainer(chosen, args=grpo_config(chosen, str(tmp_path), **CPU), peft_config=config)
    trainer.train()
    rows = trainer.rounds.directory.metrics()
    assert rows[0]["weights"] != rows[1]["weights"]  # the adapter moved, and the engine saw it
    base = dict(lab_model().named_parameters())
    for name, parameter in trainer.model.get_base_model().named_parameters():
        if "lora_" not in name:
            assert torch.equal(parameter, base[name.replace(".base_layer", "")]), name
    trainer.rounds.close()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"temperature": 0.7}, "another law than the one sampled"),
        ({"loss_type": "grpo"}, "does not average as loss.normalise = 'token-mean'"),
        ({"gradient_accumulation_steps": 3}, "an update would mix two rounds"),
        ({"mask_truncated_completions": True}, "is not read here"),
    ],
)
def test_arguments_that_contradict_the_recipe_are_refused(settings, what, tmp_path):
    chosen = recipe("trl_grpo")
    with pytest.raises(ConfigError, match=what):
        check_args(chosen, grpo_config(chosen, str(tmp_path), **CPU | settings))


def test_a_rollout_function_gives_log_probabilities_of_trls_law():
    """Those of a truncated law have the kept mass put back; where nobody tells it there are none."""
    ids, logprobs = np.array([5, 6], np.int32), np.log(np.array([0.5, 1.0], np.float32))
    mass = {"kept_mass": np.array([0.8, 0.25], np.float32)}

    def spread(law, tracks):
        said = Segment(SegmentKind.ACTION, ids, logprobs, sampling=law, tracks=tracks)
        path = (Node("p", None, Segment(SegmentKind.PROMPT, ids)), Node("r", "p", said))
        return _spread(Rollout("r", "t", path, StopReason.EOS))[2]

    assert spread(Sampling(top_p=0.8), mass) == pytest.approx(np.log([0.4, 0.25]))
    assert spread(Sampling(top_p=0.8), {}) == [None, None]
    assert spread(Sampling(0.7), {}) == pytest.approx(logprobs.tolist())


def test_the_recipes_part_is_not_taken_from_the_trainers_arguments(tmp_path):
    chosen = recipe("trl_grpo")
    with pytest.raises(ConfigError, match=r"reward_funcs = \.\.\. was passed, but that is the recipe's part: filter.verifiers"):
        GfcrGRPOTrainer(chosen, args=grpo_config(chosen, str(tmp_path), **CPU), reward_funcs=len)
    with pytest.raises(ConfigError, match="TRL's schedules do not know"):
        grpo_config(recipe("trl_grpo", "train.schedule=cosine"), str(tmp_path))
    with pytest.raises(ConfigError, match=r"train\.lora is an adapter of gfcr's own trainer"):
        grpo_config(recipe("trl_grpo", "train.lora={r=2}"), str(tmp_path))
    with pytest.raises(ConfigError, match=r"no counterpart of train\.kl = 0\.1"):
        async_grpo_config(recipe("trl_grpo", "train.kl=0.1"), str(tmp_path))


def test_the_configuration_says_what_the_recipe_says(tmp_path):
    chosen = recipe("trl_grpo", "train.epochs=3", "train.kl=0.1", "train.grad_clip=none", "train.warmup_steps=5")
    args = grpo_config(chosen, str(tmp_path), **CPU)
    assert (args.learning_rate, args.adam_beta2, args.max_grad_norm, args.beta) == (6e-4, 0.95, 0.0, 0.1)
    assert (args.per_device_train_batch_size, args.steps_per_generation, args.num_iterations, args.max_steps) == (6, 2, 3, 12)
    assert (args.loss_type, args.scale_rewards, args.epsilon_high, args.max_completion_length) == ("dapo", "group", 0.28, 24)
    assert args.lr_scheduler_type == "constant_with_warmup" and args.warmup_steps == 5


def grpo_trainer(rollouts, place, **settings):
    args = grpo_config(rollouts.recipe, str(place), **CPU | settings)
    return GRPOTrainer(
        lab_model(),
        rollouts.reward,
        args=args,
        train_dataset=rollouts.dataset,
        rollout_func=rollouts,
        processing_class=rollouts.tokenizer,
    )


def test_rollout_function_in_trls_own_trainer(tmp_path):
    rollouts = GfcrRolloutFunc(recipe("trl_grpo"), seed=2)
    trainer = grpo_trainer(rollouts, tmp_path)
    trainer.train()
    assert rollouts.calls == 2 and rollouts.tokens > 0
    first = rollouts.fingerprint
    prompts = [row["prompt"] for row in rollouts.dataset.select(range(2)) for _ in range(4)]
    trainer.model.train()
    out = rollouts(prompts, trainer)  # after training: other weights, published because the step is another
    assert rollouts.fingerprint != first
    assert {len(values) for values in out.values()} == {8}  # one completion for each entry
    decode = rollouts.parts.cascade.decode
    for prompt, start, ids, logps, mask, reward in zip(prompts, *out.values(), strict=True):
        assert decode(np.array(start)).endswith(prompt) and len(ids) == len(logps) == len(mask) > 0
        verdict = rollouts._index[prompt].reference["final"] == decode(np.array(ids)).partition("#")[2]
        assert reward == float(verdict and ids[-1] == rollouts.tokenizer.eos_token_id)
    with pytest.raises(DataError, match="entry 1 is another prompt than its group's first"):
        rollouts(prompts[3:5] + prompts[3:5], trainer)
    with pytest.raises(ConfigError, match="belongs to no task of the recipe"):
        rollouts(["1+1="] * 4, trainer)


def test_an_answer_that_failed_for_good_is_an_unjudged_entry_without_a_loss(tmp_path):
    rollouts = GfcrRolloutFunc(recipe("trl_grpo", "control.retries=0"))
    trainer = grpo_trainer(rollouts, tmp_path)
    trainer.model.train()
    parts = rollouts._publish(trainer)
    parts.engine = Breaking(parts.engine, fail=3)
    out = rollouts([rollouts.dataset[0]["prompt"]] * 4, trainer)
    lost = [i for i, reward in enumerate(out["gfcr_reward"]) if reward is None]
    assert lost == [3] and out["env_mask"][3] == [0] and out["completion_ids"][3] == [rollouts.tokenizer.eos_token_id]


def test_a_trainer_with_another_group_size_is_refused(tmp_path):
    rollouts = GfcrRolloutFunc(recipe("trl_grpo"))
    trainer = grpo_trainer(rollouts, tmp_path, num_generations=2)
    trainer.model.train()
    with pytest.raises(ConfigError, match="num_generations = 2, the recipe 'trl_grpo' says 4"):
        rollouts(["x"] * 2, trainer)


# ---- the asynchronous trainer ----------------------------------------------------------------------------------


def async_trainer(worker, place, **settings):
    return AsyncGRPOTrainer(
        worker.model_path,
        args=async_grpo_config(worker.recipe, str(place), **CPU | settings),
        train_dataset=worker.dataset,
        rollout_worker=worker,
        weight_transfer=worker,
        callbacks=[worker.callback],
    )


@pytest.mark.parametrize("background", [False, True])
def test_the_worker_feeds_trls_asynchronous_trainer_to_the_end_of_the_budget(background, tmp_path):
    worker = GfcrRolloutWorker(recipe("four_modules", "tasks.pool=D", "budget.steps=3"), seed=1, background=background)
    start = torch.cat([p.flatten() for p in lab_model().parameters()])
    trainer = async_trainer(worker, tmp_path, max_steps=50)
    trainer.train()
    assert worker.ended == "steps" and worker.rounds is None
    rows = trainer.args.per_device_train_batch_size
    late = trainer.state.global_step - -(-worker.pushed // rows)
    assert late == 0 or (background and late == 1)  # a thread may learn of the end one update late
    assert not torch.equal(start, torch.cat([p.detach().flatten() for p in trainer.model.cpu().parameters()]))


def test_after_a_kill_the_samples_go_on_behind_the_last_one_trained(tmp_path):
    chosen = recipe("trl_grpo", "budget.steps=3")

    def stream(worker, skipped=0):
        worker.callback.present = True
        worker.skip(skipped, skipped // 6)
        worker.send_weights(iter(lab_model().state_dict().items()))
        worker.update_model_version(1)
        out = []
        while True:
            sample = worker.rollout_buffer.get(timeout=1)
            if sample.group_id < 0:
                worker.stop()
                return out
            out.append(sample)

    whole = stream(GfcrRolloutWorker(chosen, seed=4, run_dir=tmp_path / "whole"))
    assert len(whole) == 36 and all(sample.model_version == 1 for sample in whole)
    killed = GfcrRolloutWorker(chosen, seed=4, run_dir=tmp_path / "killed")
    killed.send_weights(iter(lab_model().state_dict().items()))
    killed.update_model_version(1)
    for _ in range(15):  # 12 of them trained; the second round is committed, and half read ahead
        killed.rollout_buffer.get(timeout=1)
    killed.stop()
    rest = stream(GfcrRolloutWorker(chosen, seed=4, run_dir=tmp_path / "killed"), skipped=12)
    assert [s.input_ids.tolist() for s in rest] == [s.input_ids.tolist() for s in whole[12:]]
    assert [s.advantage for s in rest] == [s.advantage for s in whole[12:]]


def test_the_end_is_announced_to_a_trainer_without_the_callback():
    worker = GfcrRolloutWorker(recipe("trl_grpo", "budget.steps=1"))
    worker.send_weights(iter(lab_model().state_dict().items()))
    worker.update_model_version(1)
    for _ in range(12):
        worker.rollout_buffer.get(timeout=1)
    with pytest.raises(RuntimeError, match=r"the rounds are over \(steps\); pass callbacks=\[worker\.callback\]"):
        worker.rollout_buffer.get(timeout=1)
    worker.stop()


def test_tree_attention_on_the_cpu_sees_what_each_sample_saw_alone():
    """Packed log-probabilities and gradients against one plain forward pass a sample."""
    from gfcr.integrations.trl.cpu import tree_attention

    AttentionInterface.register(TREE_ATTENTION, tree_attention)
    draw = np.random.default_rng(0)
    prompt = draw.integers(3, 30, 7)
    tails = [draw.integers(3, 30, n) for n in (4, 9, 1, 6)]
    tails.append(np.concatenate([tails[1][:5], draw.integers(3, 30, 3)]))  # forks inside another's answer
    row = TreeRow()
    for tail in tails:
        ids = np.concatenate([prompt, tail])
        mask = np.r_[np.zeros(7), np.ones(len(tail))].astype(np.int64)
        row.add(
            {"input_ids": ids, "completion_mask": mask, "old_log_probs": np.zeros(len(ids)), "advantage": 1.0, "group_id": 0}
        )
    packed = row.pack()
    model = lab_model()
    model.set_attn_implementation(TREE_ATTENTION)
    tree = {k: packed[k] for k in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}
    widths = packed["tree_max_seqlens"].tolist()
    out = model(
        input_ids=packed["input_ids"][None],
        position_ids=packed["position_ids"][None],
        use_cache=False,
        **tree,
        tree_max_seqlen_q=widths[0],
        tree_max_seqlen_k=widths[1],
    ).logits[0]
    labels = packed["shift_labels"][packed["token_index"]]
    found = out[packed["token_index"]].log_softmax(-1).gather(1, labels[:, None])[:, 0]
    found.sum().backward()
    plain = lab_model()
    parts = []
    for tail in tails:
        ids = torch.tensor(np.concatenate([prompt, tail]))
        logits = plain(ids[None]).logits[0].log_softmax(-1)
        parts.append(logits[torch.arange(6, len(ids) - 1), ids[7:]])
    wanted = torch.cat(parts)
    wanted.sum().backward()
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


# ---- around it -------------------------------------------------------------------------------------------------


def test_without_trl_the_error_names_the_extra(monkeypatch):
    import gfcr.integrations.trl as package

    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(MissingExtra, match=r'pip install "gfcr\[trl\]"'):
        _ = package.GfcrGRPOTrainer


@pytest.mark.parametrize("name", ["trl_trainer", "trl_async", "trl_rollout_func"])
def test_the_example_scripts_run(name, tmp_path, monkeypatch, capsys):
    small = [word for key in (*SMALL, "budget.steps=1") for word in ("--set", key)]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path), *small])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "accuracy on 20 held-out tasks" in capsys.readouterr().out
