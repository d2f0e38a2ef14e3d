"""A run from Python with one's own tasks, verifiers and selector.

    gfcr.session("grpo", "runs/mine", tasks=dataset["train"], heldout=dataset["test"], verifiers=[right]).run()

Invariants: what is given here becomes part of the recipe by name (functions as `module:name` or `file.py:name`, data in memory as a
file beside the run directory), so the run is resumed like any other; nothing is written where a run stands already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfcr.domains.rows import write_rows
from gfcr.errors import ConfigError
from gfcr.filter.pool import serve
from gfcr.functions import place_of
from gfcr.recipe import Recipe, load, parse
from gfcr.registry import Slot

if TYPE_CHECKING:
    from gfcr.run.session import Progress, Session

Own = str | Callable[..., Any] | Mapping[str, Any]
"""A method: its name or place, a function, or `{"name": one of these, setting: value, ...}`."""


def session(
    recipe: str | Path | Recipe,
    path: str | Path,
    *,
    seed: int = 0,
    set: Sequence[str] = (),
    tasks: Any = None,
    heldout: Any = None,
    columns: Mapping[str, str] | None = None,
    verifiers: Sequence[Own] | None = None,
    gates: Sequence[Own] | None = None,
    select: Own | None = None,
    progress: Progress | None = None,
) -> Session:
    """A new run in the new directory `path`; call its `run()`, and `gfcr.Session.resume(path)` after a crash.

    recipe: a shipped name, a TOML file, or a Recipe. `set`: `a.b=c`, as on the command line.
    tasks, heldout: a file (JSONL, CSV, parquet) or directory of `save_to_disk`, a `datasets.Dataset`, or a list of dicts. Data in
    memory are written to `PATH.tasks.jsonl` and `PATH.heldout.jsonl`.
    columns: which column is `prompt`, `reference`, `category`; those left out are recognised (domains/conventions.py).
    verifiers, gates, select: methods by name, or plain functions (filter/verifiers/function.py, control/select/function.py).
    Raises ConfigError, DataError or MissingExtra with a remedy.
    """
    if serve.in_child:
        raise ConfigError(
            "this script started a run while it was loaded for its functions",
            'start the run under `if __name__ == "__main__":`',
        )
    from gfcr.run.directory import refuse_taken

    place = Path(path)
    if place.exists():
        refuse_taken(place)
    data = recipe_from(recipe, set).frozen()
    for slot, given in ((Slot.VERIFIER, verifiers), (Slot.GATE, gates)):
        if given is not None:
            section, key = slot.split(".")
            data[section][key] = [_named(one) for one in given]
    if select is not None:
        data["control"]["select"] = _named(select)
    if heldout is not None and tasks is None:
        raise ConfigError("held-out tasks without tasks to train on", "give both, or neither")
    if tasks is not None:
        data["tasks"] = {
            "source": "file",
            "path": _file(tasks, place, "tasks"),
            "heldout": None if heldout is None else _file(heldout, place, "heldout"),
            "columns": dict(columns or {}),
            **{k: v for k, v in data["tasks"].items() if k in ("domain", "extract", "need_reference")},
        }
    elif columns is not None:
        data["tasks"]["columns"] = dict(columns)
    made = parse(data)
    from gfcr.run.session import Session

    return Session.create(made, seed, place, progress)


def recipe_from(given: str | Path | Recipe, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or file, or the one given. Raises ConfigError."""
    if not isinstance(given, Recipe):
        return load(given, overrides)
    if overrides:
        raise ConfigError(
            "`set` changes a recipe by name or file, and a Recipe was given", "change it with model_copy, or give its file"
        )
    return given


def _named(one: Own) -> dict[str, Any]:
    """A method as a recipe names it."""
    values = dict(one) if isinstance(one, Mapping) else {"name": one}
    name = values.get("name")
    if callable(name):
        values["name"] = place_of(name)
    elif not isinstance(name, str):
        raise ConfigError(f"{one!r} is no method", "give a function, a method's name, or {'name': ..., setting: value}")
    elif name.rpartition(":")[0].endswith(".py"):
        file, _, attribute = name.rpartition(":")
        values["name"] = f"{Path(file).resolve()}:{attribute}"
    return values


def _file(data: Any, place: Path, kind: str) -> str:
    """The path of a file of these tasks, written when they are in memory."""
    if isinstance(data, (str, Path)):
        return str(Path(data).resolve())
    file = place.with_name(f"{place.name}.{kind}.jsonl").resolve()
    write_rows(data, file)
    return str(file)
