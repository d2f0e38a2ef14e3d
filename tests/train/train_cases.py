"""Models and batches the trainer's tests share."""

from dataclasses import replace

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from gfcr.types.batch import Batch, Normalise, PreferencePair

torch.set_num_threads(1)
VOCAB = 37


def lab_model(seed=0, **changes):
    """A random model of the lab's size."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "intermediate_size": 128,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
        "initializer_range": 0.1,
    }
    return Qwen3ForCausalLM(Qwen3Config(**settings | changes))


def tiny_gpt2(seed=0, vocab=11):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_embd=8, n_layer=1, n_head=2, n_positions=32, initializer_range=0.3))


def batch_of(rows, normalise=Normalise.TOKEN_MEAN, constant=None, round=0, parents=None):
    """A batch of rows given as dicts: ids, prompt (tokens without loss) and optionally per-token arrays by Batch's names."""
    lengths = [len(r["ids"]) for r in rows]
    n = sum(lengths)

    def gather(name, default, dtype):
        parts = []
        for row, length in zip(rows, lengths):
            value = row.get(name)
            value = default(row, length) if value is None else value
            parts.append(np.broadcast_to(np.asarray(value, dtype), (length,)))
        return np.concatenate(parts) if parts else np.zeros(0, dtype)

    rl = gather("rl_mask", lambda r, k: np.arange(k) >= r.get("prompt", 1), bool)

    def nan(r, k):
        return np.full(k, np.nan)

    return Batch(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        input_ids=gather("ids", nan, np.int32),
        rl_mask=rl,
        advantages=np.where(rl, gather("advantages", lambda r, k: np.ones(k), np.float32), np.nan).astype(np.float32),
        rl_weights=np.where(rl, gather("rl_weights", lambda r, k: np.ones(k), np.float32), np.nan).astype(np.float32),
        ce_weights=gather("ce_weights", lambda r, k: np.zeros(k), np.float32),
        behaviour=gather("behaviour", nan, np.float32),
        proximal=gather("proximal", nan, np.float32),
        reference=gather("reference", nan, np.float32),
        temperature=gather("temperature", nan, np.float32),
        versions=np.zeros(n, np.int32),
        groups=np.zeros(len(rows), np.int32),
        group_ids=("g",),
        rollout_ids=tuple(f"r{i}" for i in range(len(rows))),
        normalise=normalise,
        constant=constant,
        parents=parents,
        round=round,
    )


def random_rows(count, seed=0, vocab=VOCAB, low=6, high=24, **fixed):
    """Rows with prompts of 3 to 5 tokens, mixed advantages and made-up behaviour log-probabilities."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        length = int(rng.integers(low, high))
        rows.append(
            {
                "ids": rng.integers(1, vocab, length),
                "prompt": int(rng.integers(3, 6)),
                "advantages": rng.normal(),
                "behaviour": -rng.random(length) * 3 - 1.5,
                "temperature": 1.0,
            }
            | fixed
        )
    return rows


def paired(rows, pairs, **more):
    """A batch of rows without RL tokens, compared by `pairs` of (chosen, rejected) or (chosen, rejected, weight)."""
    batch = batch_of([row | {"rl_mask": False} for row in rows], **more)
    mask = np.concatenate([np.arange(len(row["ids"])) >= row.get("prompt", 1) for row in rows])
    return replace(batch, pair_mask=mask, preferences=tuple(PreferencePair(*pair) for pair in pairs))


def rewarded(rows, rewards=None, **more):
    """A batch for a critic: a reward on each row's last token (from `rewards`, else random), none on the others."""
    batch = batch_of(rows, **more)
    last = np.zeros(len(batch.rl_mask), np.float32)
    last[batch.offsets[1:] - 1] = np.random.default_rng(4).random(len(rows)) if rewards is None else rewards
    return replace(
        batch,
        advantages=np.full_like(batch.advantages, np.nan),
        token_rewards=np.where(batch.rl_mask, last, np.nan).astype(np.float32),
    )


def gradient(trainer, batch):
    """The trainer's gradient of one minibatch of all rows, as one float64 vector, and the loss; weights stay."""
    rows = np.arange(len(batch))
    batch, critic = trainer._criticise(batch)
    proximal = trainer._proximal_logps(batch, [rows])
    found = trainer._accumulate(batch, rows, proximal, trainer._reference_logps(batch), critic)
    out = torch.cat([p.grad.double().flatten() for p in trainer.parameters.values() if p.grad is not None])
    trainer.optimizer.zero_grad(set_to_none=True)
    return out, float(found[0])


def relative(a, b):
    return float((a - b).norm() / b.norm())


def copy_weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.parameters.items()}


def same_weights(trainer, weights):
    return all(torch.equal(p, weights[name]) for name, p in trainer.parameters.items())
