"""`gfcr tasks` and `gfcr why`: what a run did with its tasks, and everything that was decided about one.

Invariants: read from committed steps, also while the run goes on; a figure nobody measured is a dash, never 0; `tasks` loads no
torch; prompts, answers and evidence are shown, never obeyed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfcr.cli.boundary import Debug, Json, command, out, print_json
from gfcr.cli.shown import visible
from gfcr.errors import ConfigError

if TYPE_CHECKING:
    from gfcr.run.task_history import Attempt, History, TaskHistory, Visit

SHORTEST_ID = 4
"""Characters of an id from which on it may stand for the task."""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


class Sort(StrEnum):
    TOKENS = "tokens"
    VISITS = "visits"
    MEAN = "mean"
    RIGHT = "right"
    LAST = "last"
    UNSCORABLE = "unscorable"


@command
def tasks(
    directory: Run,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only these: easy, boundary, hard, unsolved, not-judged; several by comma.")
    ] = None,
    category: Annotated[str | None, typer.Option("--category", help="Only tasks of this category.")] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="What comes first: the most of it (mean: the easiest).")] = Sort.TOKENS,
    ascending: Annotated[bool, typer.Option("--ascending", help="The least first.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Tasks listed.")] = 20,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """The map of a run's tasks: which are easy, at the boundary, hard, unsolved, and what they cost."""
    from gfcr.run.directory import RunDirectory
    from gfcr.run.task_history import read_history

    wanted = _kinds(kind)
    with RunDirectory.read(directory) as run:
        history = read_history(run)
    chosen = [
        t for t in history.tasks.values() if t.visits and t.kind in wanted and (category is None or t.task.category == category)
    ]
    chosen.sort(key=_ORDER[sort], reverse=not ascending)
    if as_json:
        print_json(
            {
                "tasks": history.known,
                "met": len(history.tasks),
                "kinds": {str(k): n for k, n in history.kinds().items()},
                "listed": len(chosen[:limit]),
                "of": len(chosen),
                "rows": [_row(t) for t in chosen[:limit]],
            }
        )
    else:
        _print_map(history, chosen, limit)
    return 0


_ORDER: dict[Sort, Callable[[TaskHistory], Any]] = {
    Sort.TOKENS: lambda t: sum(t.tokens().values()),
    Sort.VISITS: lambda t: len(t.visits),
    Sort.MEAN: lambda t: t.mean,
    Sort.RIGHT: lambda t: t.right,
    Sort.LAST: lambda t: t.visits[-1].step,
    Sort.UNSCORABLE: lambda t: sum(a.status == "unscorable" for a in t.attempts()),
}


def _kinds(text: str | None) -> set[str]:
    from gfcr.run.task_history import Kind

    if text is None:
        return set(Kind)
    found = {part.strip().replace("-", " ") for part in text.split(",")}
    if unknown := sorted(found - set(Kind)):
        raise ConfigError(f"--kind {text!r}: {unknown[0]!r} is no kind of task", f"kinds are {', '.join(Kind)}")
    return found


def _row(t: TaskHistory) -> dict[str, Any]:
    """A task as JSON data."""
    from gfcr.report.samples import prompt_text
    from gfcr.types import Status

    spent = t.tokens()
    return {
        "id": t.task.id,
        "kind": str(t.kind),
        "prompt": prompt_text(t.task),
        "category": t.task.category,
        "reference": t.task.reference,
        "posterior_mean": t.mean,
        "visits": len(t.visits),
        "right": t.right,
        "wrong": t.wrong,
        "unscorable": t.count(Status.UNSCORABLE),
        "invalid": t.count(Status.INVALID),
        "tokens": sum(spent.values()),
        "tokens_by_fate": spent,
        "last_step": t.visits[-1].step if t.visits else None,
    }


def _print_map(history: History, chosen: list[TaskHistory], limit: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from gfcr.cli.progress import figure, tokens

    never = "" if history.known is None else f", {history.known - len(history.tasks)} of {history.known} never met"
    counts = ", ".join(f"{n} {kind}" for kind, n in history.kinds().items() if n)
    out.print(f"[bold]{len(history.tasks)} tasks met[/bold]: {counts or 'none'}{never}")
    if not chosen:
        return
    table = Table(box=None, pad_edge=False)
    for name, right in (("task", 0), ("kind", 0), ("mean", 1), ("right", 1), ("visits", 1), ("not judged", 1), ("tokens", 1)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("prompt", no_wrap=True, overflow="ellipsis")
    for t in chosen[:limit]:
        row = _row(t)
        table.add_row(
            t.task.id[:10],
            row["kind"],
            figure(t.mean),
            f"{t.right}/{t.right + t.wrong}",
            str(row["visits"]),
            str(row["unscorable"]),
            tokens(row["tokens"]),
            Text(visible(row["prompt"].replace("\n", " ")[:80])),
        )
    out.print(table)
    more = f"{len(chosen) - limit} more (--limit); " if len(chosen) > limit else ""
    out.print(
        f"[dim]{more}mean: the run's posterior of a right answer at the end; easy from .8, hard up to .2, unsolved without a right "
        f"answer; `gfcr why RUN TASK` tells a task's story[/dim]"
    )


@command
def why(
    directory: Run,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id or its beginning, or a part of its prompt.")],
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Everything about one task: each decision with its reason, its posterior, its best failed attempt, where its tokens went."""
    from gfcr.cli.prepare import set_environment
    from gfcr.report.samples import tokenizer_of
    from gfcr.run.directory import RunDirectory
    from gfcr.run.task_history import read_history

    set_environment()
    with RunDirectory.read(directory) as run:
        history = read_history(run)
        found = _find(history, task)
        decisions = [
            {"step": step, "slot": d.slot, "action": d.action, "reason": d.reason, "subject": d.subject, "data": dict(d.data)}
            for step, d in run.decided(found.task.id)
        ]
        failed, text = found.best_failed(), None
        if failed is not None and (tokenizer := tokenizer_of(run)) is not None:
            text = tokenizer.decode(run.rollout(failed.rollout, failed.step).own_tokens(), skip_special_tokens=True)
    data = {
        **_row(found),
        "story": [_visit(v) for v in found.visits],
        "decisions": decisions,
        "best_failed": None if failed is None else {**_attempt(failed), "text": text},
    }
    if as_json:
        print_json(data)
    else:
        _print_story(found, data)
    return 0


def _find(history: History, text: str) -> TaskHistory:
    """The one task meant. Raises ConfigError when none or several are."""
    from gfcr.report.samples import prompt_text

    met = [t for t in history.tasks.values() if t.visits]
    tests: list[Callable[[TaskHistory], bool]] = [
        lambda t: t.task.id == text,
        lambda t: prompt_text(t.task) == text,
        lambda t: len(text) >= SHORTEST_ID and t.task.id.startswith(text),
        lambda t: bool(text) and text in prompt_text(t.task),
    ]
    for test in tests:
        found = [t for t in met if test(t)]
        if len(found) == 1:
            return found[0]
        if found:
            few = "; ".join(f"{t.task.id[:10]} {prompt_text(t.task)[:40]!r}" for t in found[:5])
            raise ConfigError(f"{text!r} could be {len(found)} tasks: {few}", "give more of the id or of the prompt")
    never = "" if history.known is None else f" of {history.known}"
    raise ConfigError(
        f"the run has met no task whose id begins with {text!r} or whose prompt holds it ({len(met)}{never} tasks met)",
        "`gfcr tasks RUN` lists them with their ids",
    )


def _visit(v: Visit) -> dict[str, Any]:
    from gfcr.types import Status

    return {
        "step": v.step,
        "round": v.round,
        "group": v.group,
        "state": str(v.state),
        "reason": v.reason,
        "planned": v.planned,
        "stages": v.stages,
        "right": v.right,
        "wrong": v.wrong,
        "unscorable": v.count(Status.UNSCORABLE),
        "invalid": v.count(Status.INVALID),
        "injected": v.injected,
        "posterior_before": v.before,
        "posterior_after": v.after,
        "tokens": sum(a.tokens for a in v.attempts),
    }


def _attempt(a: Attempt) -> dict[str, Any]:
    return {
        "rollout": a.rollout,
        "step": a.step,
        "status": str(a.status),
        "reward": a.reward,
        "step_scores_mean": a.progress,
        "evidence": a.evidence,
        "tokens": a.tokens,
        "fate": a.fate,
    }


def _print_story(found: TaskHistory, data: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.padding import Padding
    from rich.text import Text

    from gfcr.cli.progress import figure, tokens

    out.print(
        Text.assemble(
            (visible(data["prompt"]), "bold"),
            ("" if found.task.reference is None else f"   {visible(str(found.task.reference))}", "dim"),
        )
    )
    out.print(
        f"{data['kind']}: {found.right} of {found.right + found.wrong} answers right in {len(found.visits)} visits, posterior "
        f"{figure(found.mean)}"
        + (f", {data['unscorable']} could not be judged" if data["unscorable"] else "")
        + f"  [dim]{escape(found.task.id + (', ' + found.task.category if found.task.category else ''))}[/dim]"
    )
    spent = ", ".join(f"{name} {tokens(count)}" for name, count in data["tokens_by_fate"].items() if count)
    out.print(f"tokens: {tokens(data['tokens'])} generated" + (f" ({spent})" if spent else ""))
    by_step: dict[int, list[dict[str, Any]]] = {}
    for decision in data["decisions"]:
        by_step.setdefault(decision["step"], []).append(decision)
    for visit in found.visits:
        beside = [f"{visit.injected} injected"] if visit.injected else []
        beside += [f"{n} {word}" for word in ("unscorable", "invalid") if (n := sum(a.status == word for a in visit.attempts))]
        out.print(
            f"\n[bold]step {visit.step}[/bold]  {visit.right} right, {visit.wrong} wrong"
            + (f" ({', '.join(beside)})" if beside else "")
            + f"  posterior {figure(visit.before)} → {figure(visit.after)}"
        )
        lines: dict[str, tuple[Text, int]] = {}
        for d in by_step.pop(visit.step, []):
            numbers = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in d["data"].items() if v != "")
            line = Text.assemble(
                (f"{d['slot']} {d['action']}: ", "dim"), d["reason"], (f"  {numbers}" if numbers else "", "dim")
            )
            lines[line.plain] = line, lines.get(line.plain, (line, 0))[1] + 1
        for line, times in lines.values():  # equal ones once, where the first stood
            out.print(Padding(line.append(f"  × {times}", "bold") if times > 1 else line, (0, 0, 0, 2)))
    if (failed := data["best_failed"]) is not None:
        out.print(
            Text.assemble(
                ("\nbest failed attempt ", "bold"),
                f"step {failed['step']}, reward {figure(failed['reward'])}, {failed['tokens']} tokens, {failed['fate']}",
                (f": {visible(failed['evidence'])}" if failed["evidence"] else "", "dim"),
            )
        )
        if failed["text"] is not None:
            out.print(Padding(Text(visible(failed["text"])), (0, 0, 0, 2)))
