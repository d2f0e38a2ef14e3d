"""gfcr inside a trainer of your own: a plain policy gradient, in one file.

    python examples/own_trainer.py --set budget.steps=4

Killed and started again it goes on: the rounds are in the run directory, the weights in a checkpoint of this script's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from common import arguments

import gfcr
from gfcr.engine.models import load_model, model_path


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    """Mean over the trained tokens of -advantage x log-probability, row by row."""
    total = torch.zeros(())
    for start, end in zip(batch.offsets[:-1], batch.offsets[1:]):
        ids = torch.tensor(batch.input_ids[start:end], dtype=torch.long)[None]
        trained = torch.tensor(batch.rl_mask[start:end])[1:]
        advantages = torch.tensor(batch.advantages[start:end])[1:][trained]
        weights = torch.tensor(batch.rl_weights[start:end])[1:][trained]
        logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0][trained]
        total = total - (advantages * weights * logprobs).sum()
    return total / int(batch.rl_mask.sum())


def main() -> None:
    args = arguments("grpo", "runs/own-trainer")
    torch.manual_seed(0)
    model = load_model(model_path("lab"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    step, kept = 0, Path(args.out) / "mine.pt"
    if kept.exists():
        state = torch.load(kept)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])

    rounds = gfcr.rounds(args.recipe, Path(args.out) / "gfcr", model, set=args.set)
    rounds.resume_at(step)
    rounds.publish(step, model)
    while (fed := rounds.next()) is not None:
        loss_of(model, fed.batch).backward()
        optimiser.step()
        optimiser.zero_grad()
        step = fed.index + 1
        half = kept.with_suffix(".half")
        torch.save({"step": step, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, half)
        half.replace(kept)
        print(f"step {step}: reward {fed.metrics['reward_mean']:.3f}, {len(fed.batch)} rows", flush=True)
        rounds.publish(step, model)
    print(f"ended: {rounds.ended}")
    rounds.close()


if __name__ == "__main__":
    main()
