"""Tables for the terminal. Invariant: a figure not measured is a dash, never 0."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gfcr.cli.progress import duration, figure, tokens
from gfcr.compare.result import best_of, finished_runs
from gfcr.run.outcome import Outcome


def run_table(name: str, result: Outcome) -> Group:
    """One run: what it reached, what it cost."""
    table = _table()
    measured = result.final is not None or result.final_greedy is not None
    table.add_column("held-out" if measured else "in training")
    for column in ("start", "end", *(["mean over budget"] if measured else [])):
        table.add_column(column, justify="right")
    if measured:
        table.add_row("temperature 1", figure(result.start), f"[bold]{figure(result.final)}[/bold]", figure(result.auc))
        table.add_row("greedy", figure(result.start_greedy), f"[bold]{figure(result.final_greedy)}[/bold]", "")
    else:  # no held-out tasks
        table.add_row(
            "reward, mean of the first and of the last steps",
            figure(result.reward_start),
            f"[bold]{figure(result.reward_final)}[/bold]",
        )
    reasons = ", ".join(
        f"{reason.replace('_', ' ')} {tokens(count)}"
        for reason, count in sorted(result.discarded.items(), key=lambda item: -item[1])
    )
    cost = (
        f"{result.steps} step{'' if result.steps == 1 else 's'}, {tokens(result.tokens)} generated tokens in {duration(result.seconds)}; discarded "
        f"{percent(result.discarded_share)}" + (f" ({reasons})" if reasons else "")
    )
    return Group(Text(name, "bold"), table, Text(cost, "dim"))


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def compare_tables(result: dict[str, Any]) -> list[RenderableType]:
    """A comparison: the arms at their best variation, the differences, and every variation when something was varied."""
    out: list[RenderableType] = [_arms_table(result)]
    if any(d["value"] is not None for d in result["differences"]):  # none without a held-out set
        out.append(_differences_table(result))
    if any(len(arm["variations"]) > 1 for arm in result["arms"]):
        out.append(_variations_table(result))
    return out


def spread(value: dict[str, Any]) -> str:
    """`.523 ± .031`."""
    return figure(value["mean"]) + ("" if value["sd"] is None else f" ± {figure(value['sd'])}")


def interval(value: dict[str, Any]) -> str:
    """`+.101 (+.040 to +.160)`."""
    if value["value"] is None:
        return "–"
    return signed(value["value"]) + ("" if value["low"] is None else f" ({signed(value['low'])} to {signed(value['high'])})")


def signed(value: float) -> str:
    return ("+" if value >= 0 else "") + figure(value)


def _arms_table(result: dict[str, Any]) -> Group:
    done = max((len(finished_runs(v)) for arm in result["arms"] for v in arm["variations"]), default=0)
    measured = any(
        best_of(arm)[key]["mean"] is not None for arm in result["arms"] for key in ("start", "final", "final_greedy")
    )
    what = "held-out accuracy" if measured else "reward in training (no held-out tasks)"
    title = f"{what} at {tokens(result['budget'])} generated tokens, {done} seed{'' if done == 1 else 's'}"
    table = _table()
    table.add_column("recipe", style="bold")
    for name in (*(("start", "T = 1", "greedy", "AUC") if measured else ("start", "end")), "tokens", "discarded", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in result["arms"]:
        best = best_of(arm)
        name = escape(arm["name"])
        label = f"{name}\n[dim]{escape(best['label'])}[/dim]" if len(arm["variations"]) > 1 else name
        seconds = best["seconds"]["mean"]
        reached = [figure(best["start"]["mean"]), f"[bold]{spread(best['final'])}[/bold]"]
        reached += [spread(best["final_greedy"]), spread(best["auc"])]
        reward = [figure(best["reward_start"]["mean"]), f"[bold]{spread(best['reward_final'])}[/bold]"]
        table.add_row(
            label,
            *(reached if measured else reward),
            tokens(best["tokens"]["mean"]),
            percent(best["discarded_share"]["mean"]),
            "–" if seconds is None else f"{seconds:.0f}",
        )
    return Group(
        Text(title, "bold"),
        table,
        Text(
            (
                "T = 1: sampled at temperature 1. AUC: that accuracy averaged over the budget."
                if measured
                else "Start and end: mean reward of the first and of the last fifth of the steps, on the tasks that each recipe chose."
            )
            + f" Discarded: generated tokens that reached no loss.{' Mean ± sd over seeds.' if done > 1 else ''}\n",
            "dim",
        ),
    )


def _differences_table(result: dict[str, Any]) -> Group:
    several = any(d["low"] is not None for d in result["differences"])
    title = f"against {result['first']}, paired by seed, " + (
        "95 % bootstrap interval" if several else "one seed gives no interval"
    )
    table = _table()
    table.add_column("recipe", style="bold")
    for column in ("AUC", "T = 1", "greedy"):
        table.add_column(column, justify="right")
    table.add_column("better AUC", justify="right")
    for arm in result["arms"][1:]:
        found = {d["measure"]: d for d in result["differences"] if d["arm"] == arm["name"]}
        table.add_row(
            escape(arm["name"]),
            *(interval(found[m]) for m in ("auc", "final", "final_greedy")),
            f"{found['auc']['wins']} of {found['auc']['n']}",
        )
    shares = [
        f"{s['arm']} recovers {percent(s['value'])} of {s['of']}'s AUC gain over {s['over']}"
        + ("" if s["low"] is None else f" ({percent(s['low'])} to {percent(s['high'])})")
        for s in result["gain_shares"]
    ]
    return Group(Text(title, "bold"), table, Text("".join(f"{line}\n" for line in shares)))


def _variations_table(result: dict[str, Any]) -> Group:
    table = _table()
    table.add_column("recipe", style="bold")
    table.add_column("variation")
    for name in ("T = 1", "greedy", "AUC", "seeds"):
        table.add_column(name, justify="right")
    for arm in result["arms"]:
        for i, v in enumerate(arm["variations"]):
            mark = " *" if v["label"] == arm["best"] else ""
            table.add_row(
                "" if i else escape(arm["name"]),
                escape(v["label"]) + mark,
                spread(v["final"]),
                spread(v["final_greedy"]),
                spread(v["auc"]),
                str(v["auc"]["n"]),
            )
    return Group(Text("every variation; * the arm's best by mean AUC", "bold"), table)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False)
