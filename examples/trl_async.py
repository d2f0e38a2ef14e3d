"""TRL's AsyncGRPOTrainer without a vLLM server: gfcr's rounds and embedded engine as its rollout worker.

pip install "gfcr[trl]"
python examples/trl_async.py [--out DIR] [--recipe four_modules] [--set KEY=VALUE ...]
"""

from common import arguments, report
from trl.experimental.async_grpo import AsyncGRPOTrainer

from gfcr.integrations.trl import GfcrRolloutWorker, async_grpo_config
from gfcr.recipe import load

chosen = arguments("four_modules", "runs/trl-async")
machine = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "logging_steps": 10}

recipe = load(chosen.recipe, ["tasks.pool=D", "budget.tokens=20000", "train.kl=0", *chosen.set])
worker = GfcrRolloutWorker(recipe, seed=0)
trainer = AsyncGRPOTrainer(
    worker.model_path,
    args=async_grpo_config(recipe, chosen.out, **machine),
    train_dataset=worker.dataset,
    rollout_worker=worker,
    weight_transfer=worker,
    callbacks=[worker.callback],
)
trainer.train()

report(worker.parts, trainer.model)
print(f"ended: {worker.ended}")
