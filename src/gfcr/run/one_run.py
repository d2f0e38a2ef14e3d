"""The parts of a run as its last commit left them, for sampling alone.

Invariants: the run directory is read and not written; the weights are those of the last committed step, loaded as a resume loads them
(checkpoint, then the batches since it) and proven in the engine; what its methods have learnt is theirs only under the run's own recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gfcr.build import RolloutParts, build
from gfcr.errors import ConfigError
from gfcr.recipe import Recipe, load
from gfcr.run.budget import Budget
from gfcr.run.directory import RunDirectory
from gfcr.run.failures import RunDirectoryError
from gfcr.run.one_task import Standing, closing
from gfcr.run.publish import prove, publish


def is_run(place: str) -> bool:
    """Whether a run directory is there."""
    return Path(place).is_dir() and RunDirectory.exists(place)


def recipe_of(place: str, overrides: Sequence[str] = ()) -> Recipe:
    """The frozen recipe of a run, with `a.b=c` changed. Raises ConfigError."""
    return load(Path(place) / "recipe.json", overrides)


@contextmanager
def trained_parts(place: str, recipe: Recipe, seed: int) -> Iterator[tuple[RolloutParts, Standing]]:
    """What generates and judges, with the weights of a run's last commit, and where the run stands. `recipe`: its own, or changed in what
    makes no weights; `seed`: of the draws. Raises RunDirectoryError for a directory that is no run, has no commit, or differs from its
    digests, ConfigError for changes that would make other weights, and what `build` raises."""
    with RunDirectory.read(place) as run:
        stored, point = run.recipe, run.resume_point()
        if point is None or "session" not in point.state:
            raise RunDirectoryError(
                f"{place} has no weights to sample from: "
                + ("nothing was committed yet" if point is None else "a trainer outside gfcr leads this run and keeps them"),
                "give a recipe instead, with --set model.path=DIRECTORY for weights that lie elsewhere",
            )
        of_run = recipe_of(place)
        for section in ("model", "train", "loss"):
            if getattr(recipe, section) != getattr(of_run, section):
                raise ConfigError(
                    f"--set {section}...: the weights of {place} are those of its own {section!r}",
                    f"take it out, or sample the recipe without the run: {place}/recipe.json",
                )
        built = build(recipe, int(stored["seed"]))  # the run's seed: its batches are shuffled by it
        with closing(built) as parts:
            parts.seed = seed
            trainer, own = built.trainer, point.state["session"]
            if point.checkpoint is not None:
                trainer.load(point.checkpoint)
            for batch, progress in point.batches:
                trainer.step(batch, progress)
            same = recipe.hash() == stored["hash"]
            if same:
                parts.slots.load_state_dict(point.state["slots"], run.rollout)
            publish(trainer, parts.engine, own["version"])
            prove(trainer, parts.engine, own["version"])
            over = Budget(recipe.budget.tokens, int(point.state["budget"]["spent"])).over(point.step, recipe.budget.steps)
            note = "" if same else "the recipe was changed: what the run's methods had learnt, and its memory, were left out"
            yield parts, Standing(own["round"], own["version"], over, point.step, note)
