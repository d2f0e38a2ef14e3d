"""GfcrGRPOTrainer and TRL's own, on the same completions: the same advantages, masks, old log-probabilities, losses, gradients."""

import pytest

pytest.importorskip("trl")

import numpy as np
import torch
from tests.integrations.trl_cases import CPU, lab_model, lab_tokenizer, recipe
from trl import GRPOTrainer

from gfcr.integrations.rounds import Fed
from gfcr.integrations.trl import GfcrGRPOTrainer, grpo_config, task_dataset
from gfcr.integrations.trl.collate import inputs_of, like_lengths, spread
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer
from gfcr.types import Batch


def trainer_of(chosen, place, **settings):
    """A GfcrGRPOTrainer with its first round in hand."""
    ours = GfcrGRPOTrainer(chosen, args=grpo_config(chosen, str(place / "out"), **CPU | settings), run_dir=place / "rounds")
    ours.model.train()
    ours.current_gradient_accumulation_steps = 1
    ours._begin(0)
    assert ours._feed(0)
    return ours


def theirs_on(groups, chosen, place, **settings):
    """TRL's own trainer with the same completions, and what it makes of them."""
    members = [(group.task, member) for group in groups for member in group.members.values()]
    rewards = [member.signals.reward for _, member in members]

    def replay(prompts, trainer):
        assert prompts == [task.prompt for task, _ in members]
        ids = [m.rollout.own_tokens().tolist() for _, m in members]
        path = [m.rollout.path[0].segment.ids.tolist() for _, m in members]
        return {"prompt_ids": path, "completion_ids": ids, "logprobs": None}

    theirs = GRPOTrainer(
        lab_model(),
        lambda **_: rewards,
        args=grpo_config(chosen, str(place / "theirs"), **CPU | settings),
        train_dataset=task_dataset([group.task for group in groups]),
        processing_class=lab_tokenizer(),
        rollout_func=replay,
    )
    theirs.model.train()
    theirs.current_gradient_accumulation_steps = 1
    return theirs, theirs._generate_and_score_completions([{"prompt": task.prompt} for task, _ in members])


def shift(model, seed):
    """The weights after some update: the same for every model with the same seed."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=draw)


def loss_and_gradient(trainer, inputs):
    loss = trainer._compute_loss(trainer.model, inputs)
    gradient = torch.autograd.grad(loss, list(trainer.model.parameters()))
    return float(loss), torch.cat([g.flatten() for g in gradient])


@pytest.mark.parametrize(
    ("loss_type", "overrides"),
    [
        ("dapo", []),
        ("dapo", ["train.kl=0.3"]),
        ("bnpo", []),
        ("grpo", ["loss.normalise=sequence-mean"]),
        ("dr_grpo", ["loss.normalise=constant", "filter.credit=dr-grpo"]),
    ],
)
def test_plain_grpo_is_trls(loss_type, overrides, tmp_path):
    chosen = recipe("trl_grpo", "control.groups=4", *overrides)
    ours = trainer_of(chosen, tmp_path, loss_type=loss_type)
    batch = ours._fed.batch
    theirs, made = theirs_on(ours._fed.groups, chosen, tmp_path, loss_type=loss_type)
    everything = np.arange(len(batch))
    mine = inputs_of(batch, everything, ours._tokenizer.pad_token_id)
    assert len(batch) == 16 and made["advantages"].abs().max() > 0.5
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        assert torch.equal(mine[name], made[name]), name
    assert torch.equal(mine["tool_mask"], made["completion_mask"])  # no environment: every completion token has a loss
    torch.testing.assert_close(mine["advantages"], made["advantages"][:, None] * made["completion_mask"], rtol=0, atol=1e-6)
    old = spread(batch, everything, ours._old, mine["advantages"])
    later = torch.from_numpy(ours._slices[1])
    torch.testing.assert_close(old[later], (made["old_per_token_logps"] * made["completion_mask"])[later], rtol=0, atol=5e-6)
    assert not old[
        torch.from_numpy(ours._slices[0])
    ].any()  # the weights are still the old ones: the loss takes the current numbers
    for step, rows in enumerate(ours._slices):
        if step:
            shift(ours.model, 7)
            shift(theirs.model, 7)
        ours._step = step
        inputs = {k: v[torch.from_numpy(rows)] if v.ndim else v for k, v in made.items()}
        assert ("old_per_token_logps" in ours._prepare_inputs(None)) == bool(step)
        (mine_loss, mine_grad), (their_loss, their_grad) = (
            loss_and_gradient(ours, ours._prepare_inputs(None)),
            loss_and_gradient(theirs, inputs),
        )
        assert abs(mine_loss - their_loss) <= 1e-6, (step, mine_loss, their_loss)
        assert float((mine_grad - their_grad).norm()) <= 1e-4 * float(their_grad.norm())
        clipped = theirs._metrics["train"]["clip_ratio/region_mean"][-1]
        assert clipped > 0 if step else clipped == 0  # the second update is off the old weights, and its clip at work
    ours.rounds.close()


def uneven_batch(seed=3):
    """Groups of 1, 2 and 4 rows of two turns: prompt, action, observation, action; everything by token, and two rows that nobody
    of this policy sampled."""
    draw = np.random.default_rng(seed)
    parts, masks, groups = [], [], []
    for group, size in enumerate((1, 2, 4)):
        for _ in range(size):
            lengths = [int(draw.integers(3, 8)) for _ in range(4)]
            parts.append(draw.integers(3, 30, sum(lengths)))
            masks.append(np.repeat([False, True, False, True], lengths))
            groups.append(group)
    mask = np.concatenate(masks)
    n = len(mask)

    def inside(values):
        return np.where(mask, values, np.nan).astype(np.float32)

    return Batch(
        offsets=np.cumsum([0, *map(len, parts)]).astype(np.int64),
        input_ids=np.concatenate(parts).astype(np.int32),
        rl_mask=mask,
        advantages=inside(draw.normal(size=n)),
        rl_weights=inside(draw.uniform(0.2, 1.5, n)),
        ce_weights=np.zeros(n, np.float32),
        behaviour=inside(np.where(np.repeat(np.asarray(groups) == 1, [len(p) for p in parts]), np.nan, -1.0)),
        proximal=np.full(n, np.nan, np.float32),
        reference=np.full(n, np.nan, np.float32),
        temperature=inside(np.ones(n)),
        versions=np.where(mask, 0, -1).astype(np.int32),
        groups=np.asarray(groups, np.int32),
        group_ids=("a", "b", "c"),
        rollout_ids=tuple(f"r{i}" for i in range(len(parts))),
    )


def test_uneven_groups_advantages_by_token_and_weights_reach_the_loss(tmp_path):
    """The same loss and gradient as the reference trainer's, whose own tests check it against formulas."""
    chosen = recipe("trl_grpo", "train.minibatches=1")
    ours = trainer_of(chosen, tmp_path)
    batch = uneven_batch()
    ours._cut(Fed(0, 0, 0, "", batch, [], {}))
    ours._prepare_round(batch)
    assert [len(part) for part in ours._slices] == [7] and ours._old is None
    loss, gradient = loss_and_gradient(ours, ours._prepare_inputs(None))
    reference = Trainer(lab_model(), TrainSettings(clip_low=0.2, clip_high=0.28))
    sums = reference._accumulate(batch, np.arange(7), batch.proximal.copy(), None)
    wanted = torch.cat([p.grad.flatten() for p in reference.parameters.values()])
    assert abs(loss - sums[0]) <= 1e-6
    assert float((gradient - wanted).norm()) <= 1e-4 * float(wanted.norm()) and float(wanted.norm()) > 0.01
    ours.rounds.close()


def test_truncated_importance_weights_and_the_engines_log_probabilities_are_used(tmp_path):
    batch = uneven_batch()
    for name, overrides in (("tis", ["train.tis_cap=0.5"]), ("behaviour", ["train.ratio_base=behaviour"])):
        ours = trainer_of(recipe("trl_grpo", *overrides), tmp_path / name)
        before = ours._logps(ours.model, batch, batch.rl_mask)
        ours._prepare_round(batch)
        known, asked = ~np.isnan(batch.behaviour) & batch.rl_mask, batch.rl_mask
        if name == "tis":
            weight = np.minimum(np.exp(before - batch.behaviour), 0.5)
            ours._cut(Fed(0, 0, 0, "", batch, [], {}))
            np.testing.assert_allclose(ours._factors[known], weight[known], rtol=1e-5)
            assert (ours._factors[asked & ~known] == 1).all()
        else:
            np.testing.assert_array_equal(ours._old[known], batch.behaviour[known])
            np.testing.assert_allclose(ours._old[asked & ~known], before[asked & ~known], rtol=0, atol=1e-5)
        ours.rounds.close()


def test_passes_hold_rows_of_like_length_and_every_row_once():
    lengths = np.array([64, 10, 60, 12, 11, 9, 61, 8, 13, 62, 63, 12, 60, 61, 62, 5])
    parts = like_lengths(lengths, 6)
    assert sorted(np.concatenate(parts).tolist()) == list(range(16))
    assert max(map(len, parts)) <= 6 and len(parts) == 3
    assert [p.tolist() for p in like_lengths(np.array([5, 5]), 64)] == [[0, 1]]
