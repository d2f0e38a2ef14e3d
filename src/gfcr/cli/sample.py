"""`gfcr sample`: one task's rollouts under a recipe, without training.

Invariant: what is shown is what a round of the recipe makes of the task: the same methods, the same draws for the same seed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gfcr.cli.boundary import Debug, Json, Set, command, err, out, print_json
from gfcr.cli.prepare import Threads, import_torch
from gfcr.errors import ConfigError


@command
def sample(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped recipe's name.")],
    task: Annotated[str | None, typer.Option("--task", help="Index of a task of the recipe (from 0), or its id.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="A prompt of your own instead; nobody knows its answer.")
    ] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Rollouts; default: the topology's own number.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every draw.")] = 0,
    tokens: Annotated[bool, typer.Option("--tokens", help="Every sampled token with its log-probability.")] = False,
    settings: Set = None,
    threads: Threads = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Sample and judge one task's rollouts: tree, turns, guidance, verdicts, log-probabilities, cost. Nothing is trained."""
    from gfcr.recipe import load

    if (task is None) == (prompt is None):
        raise ConfigError("gfcr sample needs one task", "give --task INDEX (or an id), or --prompt TEXT")
    more = [] if n is None else [f"generate.topology.k={n}"]
    loaded = load(recipe, [*(settings or ()), *more])
    with err.status("loading", spinner="dots"):
        import_torch(threads)
        from gfcr.cli.sampled import as_data, show
        from gfcr.run.one_task import find_task, sample_task, sampling_parts
        from gfcr.types import Task
    with sampling_parts(loaded, seed) as parts:
        asked = find_task(parts, task) if task is not None else Task(parts.tasks[0].domain, prompt or "")
        with err.status("sampling", spinner="dots"):
            found = sample_task(parts, asked)
        text = parts.renderer.codec.text
        if as_json:
            print_json(as_data(found, text, tokens))
        else:
            show(out, found, text, tokens)
    return 0
