"""`gfcr`: the commands and nothing else.

Invariant: loading this module imports neither torch nor a method, so `gfcr --help` answers at once; each command imports
what it needs when it runs.
"""

from __future__ import annotations

import typer

from gfcr.cli import catalog, compare, engine, report, run, sample, tasks, verify

app = typer.Typer(
    name="gfcr",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="A rollout engine for RL post-training of language models: Generate, Filter, Control, Replay.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from gfcr import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """A rollout engine for RL post-training of language models: Generate, Filter, Control, Replay."""


app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("compare")(compare.compare)
app.command("sample")(sample.sample)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("tasks")(tasks.tasks)
app.command("why")(tasks.why)
app.command("methods")(catalog.methods)
app.command("check")(catalog.check)
app.command("engine")(engine.engine)

if __name__ == "__main__":
    app(prog_name="gfcr")
