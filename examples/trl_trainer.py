"""TRL's GRPOTrainer with gfcr's rounds: every method of the recipe is at work, the loss and the optimiser are TRL's.

    pip install "gfcr[trl]"
    python examples/trl_trainer.py [--out DIR] [--recipe four_modules] [--set KEY=VALUE ...]

Stop it when you like and start it again: it goes on where it was, inside a generation batch too.
"""

from common import arguments, report

from gfcr.integrations.trl import GfcrGRPOTrainer, grpo_config
from gfcr.recipe import load

chosen = arguments("four_modules", "runs/trl-trainer")
machine = {"use_cpu": True, "bf16": False, "report_to": [], "save_steps": 10, "save_total_limit": 2}

# These five lines are all there is to it.
recipe = load(chosen.recipe, ["tasks.pool=D", "budget.tokens=20000", *chosen.set])
args = grpo_config(recipe, chosen.out, **machine)
trainer = GfcrGRPOTrainer(recipe, args=args, seed=0)
trainer.train(resume_from_checkpoint=True)
trainer.save_model(f"{chosen.out}/final")

report(trainer.rounds.parts, trainer.model)
print(f"ended: {trainer.rounds.ended}; look at the rounds: gfcr report {chosen.out}/gfcr")
trainer.rounds.close()
