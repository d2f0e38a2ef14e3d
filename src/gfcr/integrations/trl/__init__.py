"""TRL 1.16: gfcr's rounds inside TRL's trainers (docs/trl.md).

    from gfcr.integrations.trl import GfcrGRPOTrainer, grpo_config
    trainer = GfcrGRPOTrainer("four_modules", args=grpo_config("four_modules", "out"))
    trainer.train()

Invariant: importing this package loads neither torch nor TRL; a missing TRL is an error that names the extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gfcr.errors import MissingExtra

if TYPE_CHECKING:
    from gfcr.integrations.trl.configs import async_grpo_config, grpo_config
    from gfcr.integrations.trl.rollout import GfcrRolloutFunc
    from gfcr.integrations.trl.tasks import reward_function, task_dataset
    from gfcr.integrations.trl.trainer import GfcrGRPOTrainer
    from gfcr.integrations.trl.worker import GfcrRolloutWorker

__all__ = [
    "GfcrGRPOTrainer",
    "GfcrRolloutFunc",
    "GfcrRolloutWorker",
    "async_grpo_config",
    "grpo_config",
    "reward_function",
    "task_dataset",
]

_PLACES = {
    "GfcrGRPOTrainer": "trainer",
    "GfcrRolloutFunc": "rollout",
    "GfcrRolloutWorker": "worker",
    "async_grpo_config": "configs",
    "grpo_config": "configs",
    "reward_function": "tasks",
    "task_dataset": "tasks",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        import_module("trl")
    except ImportError as error:
        if error.name != "trl":
            raise
        raise MissingExtra("trl", "trl", "gfcr.integrations.trl") from None
    return getattr(import_module(f"{__name__}.{place}"), name)
