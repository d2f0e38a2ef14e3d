"""`gfcr sample`: one task's rollouts under a recipe, or with the weights of a run, without training.

Invariant: what is shown is what a round of the recipe makes of the task: the same methods, the same draws for the same seed. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from gfcr.cli.boundary import Debug, Json, Set, command, err, out, print_json
from gfcr.cli.prepare import Threads, import_torch
from gfcr.errors import ConfigError

if TYPE_CHECKING:
    from gfcr.build import RolloutParts
    from gfcr.recipe import Recipe
    from gfcr.run.one_task import Standing


@command
def sample(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, a shipped recipe's name, or a run directory: its recipe, its last weights.")
    ],
    task: Annotated[str | None, typer.Option("--task", help="Index of a task of the recipe (from 0), or its id.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="A prompt of your own instead; nobody knows its answer.")
    ] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Rollouts; default: the topology's own number.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every draw.")] = 0,
    tokens: Annotated[bool, typer.Option("--tokens", help="Every sampled token with its log-probability.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Long texts whole; else the middle of long ones is left out.")] = False,
    settings: Set = None,
    threads: Threads = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Sample and judge one task's rollouts: tree, turns, guidance, verdicts, log-probabilities, cost. Nothing is trained or written."""
    if (task is None) == (prompt is None):
        raise ConfigError("gfcr sample needs one task", "give --task INDEX (or an id), or --prompt TEXT")
    if prompt is not None and not prompt.strip():
        raise ConfigError(f"--prompt {prompt!r} has no words", "give a prompt, or --task INDEX for a task of the recipe")
    loaded = _recipe(recipe, list(settings or ()), n)
    with err.status("loading", spinner="dots"):
        import_torch(threads)
        from gfcr.cli.sampled import show
        from gfcr.cli.sampled_data import as_data
        from gfcr.run.one_task import find_task, idle, own_task, sample_task
    with _parts(recipe, loaded, seed) as (parts, standing):
        asked = find_task(parts, task) if task is not None else own_task(parts, prompt or "")
        if standing.note:
            _note(standing.note)
        if asked.reference is None:
            reads = f"; {' and '.join(silent)} would help with its solution, and has none" if (silent := idle(loaded)) else ""
            _note(f"nobody knows the answer of this prompt, so its rollouts may stay unscored{reads}")
        with err.status("sampling", spinner="dots"):
            found = sample_task(parts, asked, standing)
        text = parts.renderer.codec.text
        if as_json:
            print_json(as_data(found, text, tokens))
        else:
            show(out, found, text, tokens, full)
    return 0


def _recipe(place: str, settings: Sequence[str], n: int | None) -> Recipe:
    """The recipe that is sampled under, with `n` rollouts if the topology can be told their number."""
    from gfcr.recipe import load
    from gfcr.run.one_run import is_run, recipe_of

    read = recipe_of if is_run(place) else load
    loaded = read(place, settings)
    if n is None:
        return loaded
    _refuse_number(loaded, n)
    return read(place, [*settings, f"generate.topology.k={n}"])


def _refuse_number(recipe: Recipe, n: int) -> None:
    """Raise ConfigError where the number of rollouts is no setting of the topology but follows from others."""
    from gfcr.registry import Slot, find, settings_of

    name = recipe.generate.topology.name
    settings = settings_of(find(Slot.TOPOLOGY, name), recipe.generate.topology.values())
    fields = type(settings).model_fields
    if "k" in fields:
        return
    if recipe.k == 1 and not hasattr(settings, "k"):
        raise ConfigError(
            f"-n {n}: generate.topology {name!r} makes one rollout of a task",
            f"leave -n out, or sample a group: --set 'generate.topology={{name = \"group\", k = {n}}}'",
        )

    def shapes(key: str) -> bool:
        value = getattr(settings, key)
        return type(value) is int and getattr(settings.model_copy(update={key: value + 1}), "k", None) != recipe.k

    shape = [key for key in fields if shapes(key)]
    listed = ", ".join(f"{key} = {getattr(settings, key)}" for key in shape)
    raise ConfigError(
        f"-n {n}: generate.topology {name!r} has no number of rollouts to set; its {recipe.k} follow from {listed}",
        f"leave -n out, or change the shape, for example --set generate.topology.{shape[0]}={getattr(settings, shape[0]) + 1}",
    )


@contextmanager
def _parts(place: str, recipe: Recipe, seed: int) -> Iterator[tuple[RolloutParts, Standing]]:
    from gfcr.run.one_run import is_run, trained_parts
    from gfcr.run.one_task import Standing, sampling_parts

    if is_run(place):
        with trained_parts(place, recipe, seed) as found:
            yield found
    else:
        with sampling_parts(recipe, seed) as parts:
            yield parts, Standing()


def _note(words: str) -> None:
    err.print(Text.assemble(("note: ", "bold yellow"), words), soft_wrap=True)
