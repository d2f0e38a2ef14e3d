"""`gfcr methods` and `gfcr check`: what there is, and whether a recipe's parts go together.

Invariant: neither loads a model nor imports torch (texts are held against the file `tokenizer.json`); `check` refuses all that a run would refuse before its first token, except
what only the model itself can tell.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfcr.cli.boundary import Debug, Json, Set, command, out, print_json, print_notes
from gfcr.errors import ConfigError, GfcrError, literal

if TYPE_CHECKING:
    from gfcr.compose import Finding
    from gfcr.recipe import Recipe
    from gfcr.registry import Method, Slot
    from gfcr.task_sets import TaskSet


@command
def methods(
    slot: Annotated[
        str | None, typer.Option("--slot", help="Only this slot, e.g. control.select, or a room, e.g. control.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """List every method: slot, name, paper, what it needs and declares, settings with defaults."""
    from gfcr.registry import Slot, find, names

    chosen = _slots(slot) if slot else list(Slot)
    found = [find(s, name) for s in chosen for name in names(s)]
    if as_json:
        print_json({"methods": [describe(m) for m in found], "empty_slots": [s for s in chosen if not names(s)]})
        return 0
    _print_methods(found)
    out.print(
        "\n[dim]confirmed: as published or in the official code; partly: the settings say what is our reading; ours: no paper. "
        "serves: the survey's criterion. traits: what `gfcr check` reads.[/dim]"
    )
    if empty := [s for s in chosen if not names(s)]:
        out.print(f"[dim]no method yet: {', '.join(empty)}[/dim]")
    return 0


def _slots(text: str) -> list[Slot]:
    from gfcr.registry import Slot

    if text in set(Slot):
        return [Slot(text)]
    if room := [s for s in Slot if s.startswith(f"{text}.")]:
        return room
    near = difflib.get_close_matches(text, [*map(str, Slot), *dict.fromkeys(s.split(".")[0] for s in Slot)], 1)
    raise ConfigError(f"there is no slot {text!r}", f"did you mean {near[0]!r}?" if near else f"slots: {', '.join(Slot)}")


def describe(found: Method) -> dict[str, Any]:
    """A method as JSON data."""
    return {
        "slot": str(found.slot),
        "name": found.name,
        "title": found.title,
        "arxiv": found.arxiv,
        "criterion": found.criterion,
        "faithfulness": str(found.faithfulness),
        "needs": sorted(found.needs),
        "traits": sorted(found.traits),
        "summary": " ".join((found.cls.__doc__ or "").split()) if found.cls else "",
        "settings": [
            {
                "name": name,
                "type": _type(info.annotation),
                "default": None if info.is_required() else _data(info.get_default(call_default_factory=True)),
                "required": info.is_required(),
                "meaning": " ".join((info.description or "").split()),
            }
            for name, info in found.settings.model_fields.items()
        ],
    }


def _data(default: Any) -> Any:
    """A default as JSON data: a section of settings is a mapping."""
    return default.model_dump(mode="json") if hasattr(default, "model_dump") else default


def _type(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _print_methods(found: list[Method]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    slot = None
    for each in map(describe, found):
        if each["slot"] != slot:
            slot = each["slot"]
            out.print()
            out.rule(f"[bold]{slot}", align="left", style="dim")
        head = Text.assemble((each["name"], "bold cyan"), "  ", each["title"])
        facts = [f"arXiv:{each['arxiv']}" if each["arxiv"] else "no paper", each["faithfulness"], f"serves {each['criterion']}"]
        if each["needs"]:
            facts.append("needs engine: " + ", ".join(each["needs"]))
        head.append("  " + " · ".join(facts), "dim")
        out.print(head)
        if each["summary"]:
            out.print(Padding(Text(each["summary"]), (0, 0, 0, 4)))
        if each["traits"]:
            out.print(Padding(Text("traits: " + "; ".join(each["traits"]), "dim"), (0, 0, 0, 4)))
        if each["settings"]:
            table = Table.grid(padding=(0, 2))
            for option in each["settings"]:
                table.add_row(
                    Text(option["name"], "green"),
                    "required" if option["required"] else literal(option["default"]),
                    Text(option["meaning"], "dim"),
                )
            out.print(Padding(table, (0, 0, 0, 4)))


@command
def check(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped recipe's name.")],
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Say what a recipe does and whether its parts go together; exit code 1 when they do not."""
    from gfcr.recipe import load

    loaded = load(recipe, settings or ())
    findings, tasks = examine(loaded)
    if as_json:
        print_json(
            {
                "recipe": loaded.name,
                "hash": loaded.hash(),
                "composes": not findings,
                "findings": [{"rule": f.rule, "why": f.why, "remedy": f.remedy} for f in findings],
                "tasks": {"tasks": len(tasks.tasks), "heldout": len(tasks.heldout)} if tasks else None,
                "recognised": (tasks.recognised or None) if tasks else None,
                "notes": list(tasks.notes) if tasks else [],
                "frozen": loaded.frozen(),
            }
        )
        return bool(findings)
    _print_check(loaded, findings, tasks)
    return bool(findings)


def examine(recipe: Recipe) -> tuple[list[Finding], TaskSet | None]:
    """(findings, tasks); the tasks are None when something is wrong."""
    from gfcr.build import check_recipe, preflight
    from gfcr.compose import Finding

    findings = check_recipe(recipe)
    if findings:
        return findings, None
    try:
        return [], preflight(recipe)
    except GfcrError as error:
        return [Finding("preflight", error.what, error.remedy)], None


def _print_check(recipe: Recipe, findings: list[Finding], tasks: TaskSet | None) -> None:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from gfcr.cli.progress import tokens
    from gfcr.domains.gym.settings import GymSettings

    source = f"pool {recipe.tasks.pool}" if recipe.tasks.source == "programs" else str(recipe.tasks.path)
    if recipe.tasks.source == "reasoning-gym":
        gym = recipe.tasks.gym or GymSettings()
        source = ", ".join(["reasoning-gym", *(d.name for d in gym.datasets)])
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]recipe", f"{escape(recipe.name)}  [dim]{recipe.hash()[:12]}[/dim]")
    table.add_row("tasks", escape(source) + (f": {len(tasks.tasks)}, and {len(tasks.heldout)} held out" if tasks else ""))
    if tasks and tasks.recognised:
        table.add_row("", Text(tasks.recognised))
    engine = f"engine {recipe.engine.name}, {recipe.train.device}, {recipe.train.dtype}"
    table.add_row("model", Text(f"{recipe.model.path}, {engine}"))
    steps = "" if recipe.budget.steps is None else f" or {recipe.budget.steps} steps"
    limit = "no token limit" if recipe.budget.tokens is None else f"{tokens(recipe.budget.tokens)} generated tokens"
    table.add_row(
        "budget",
        f"{limit}{steps}; {recipe.control.groups} groups of {recipe.k}, answers up to {recipe.generate.max_tokens} tokens",
    )
    table.add_row(
        "training",
        f"lr {recipe.train.lr:g}, {recipe.train.updates_per_step} update(s) a step, {recipe.loss.normalise}"
        + (f", LoRA of rank {recipe.train.lora.r}" if recipe.train.lora else ""),
    )
    frozen = recipe.frozen()
    for slot, refs in recipe.slots().items():
        if refs:
            section, key = slot.split(".")
            values = frozen[section][key]
            table.add_row(str(slot), Text("; ".join(map(_call, values if isinstance(values, list) else [values]))))
    out.print(table)
    out.print()
    if tasks:
        print_notes(out, tasks.notes)
    for finding in findings:
        out.print(Text.assemble(("✗ ", "bold red"), (finding.rule, "bold"), ": ", finding.why))
        out.print(Text.assemble(("  remedy: ", "bold"), finding.remedy))
    out.print("[bold red]does not compose" if findings else "[bold green]✓[/bold green] composes")


def _call(values: dict[str, Any]) -> str:
    """`name(setting=value, ...)`."""
    inner = ", ".join(f"{k}={literal(v)}" for k, v in values.items() if k != "name")
    return f"{values['name']}({inner})" if inner else values["name"]
