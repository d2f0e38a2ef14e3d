"""The oracle: uniform over a privileged set of tasks. A yardstick for selectors, never a method."""

from __future__ import annotations

from gfcr.context import Build
from gfcr.control.select.uniform import Epochs, Uniform
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method


@method(
    "oracle",
    Slot.SELECT,
    title="oracle selection (yardstick)",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
    traits=("uses privileged labels",),
)
class Oracle(Uniform):
    """Uniform over the tasks of a set that the task source marks, e.g. those that teach something."""

    class Settings(FrozenModel):
        tasks: str = "informative"
        """Name of the privileged set."""

    def __init__(self, settings: Settings, build: Build) -> None:
        chosen = build.privileged.get(settings.tasks)
        if not chosen:
            raise ConfigError(
                f"control.select 'oracle': the task source has no set {settings.tasks!r}",
                f"sets it has: {', '.join(sorted(build.privileged)) or 'none'}",
            )
        self.epochs = Epochs(build.seed, [t for t in build.tasks if t.id in chosen])
