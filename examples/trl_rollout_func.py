"""gfcr's engine and verdicts in a GRPOTrainer that cannot be subclassed: one function. TRL chooses the tasks and forms the advantages.

pip install "gfcr[trl]"
python examples/trl_rollout_func.py [--out DIR] [--recipe trl_grpo] [--set KEY=VALUE ...]
"""

from common import arguments, report
from trl import GRPOTrainer

from gfcr.integrations.trl import GfcrRolloutFunc, grpo_config
from gfcr.recipe import load

chosen = arguments("trl_grpo", "runs/trl-rollout-func")
machine = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "logging_steps": 10}

recipe = load(chosen.recipe, ["budget.tokens=none", "budget.steps=6", *chosen.set])
rollouts = GfcrRolloutFunc(recipe, seed=0)
trainer = GRPOTrainer(
    rollouts.model_path,
    rollouts.reward,
    args=grpo_config(recipe, chosen.out, **machine),
    train_dataset=rollouts.dataset,
    rollout_func=rollouts,
    processing_class=rollouts.tokenizer,
)
trainer.train()

report(rollouts.parts, trainer.model)
print(f"tokens generated: {rollouts.tokens}")
