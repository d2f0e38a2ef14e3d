"""`gfcr engine`: can this model be served here, is it served right, and how fast.

Invariant: a model that is refused is refused with the reason a run would give; nothing is trained or written.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gfcr.cli.boundary import Debug, Json, command, err, out, print_json
from gfcr.cli.prepare import Threads, import_torch
from gfcr.errors import ConfigError

STREAMS = "1,8,32"


@command
def engine(
    model: Annotated[str, typer.Argument(help="A model directory (config.json, safetensors), or `lab`.")],
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16, float16 or float64.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, mps, ...")] = "cpu",
    slots: Annotated[int, typer.Option("--slots", min=1, help="Streams decoded at once, as in the recipe.")] = 256,
    streams: Annotated[
        str, typer.Option("--streams", metavar="N,N,...", help="Batch sizes of the throughput probe; `none` leaves it out.")
    ] = STREAMS,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens each stream of the probe samples.")] = 32,
    check_tokens: Annotated[
        int, typer.Option("--check-tokens", min=0, help="Longest row of the start-up check; 0 = no check.")
    ] = 1024,
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="A vLLM server that serves this model; ask it instead (several: repeat it)."),
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Load a model into the embedded engine: capabilities, start-up check, number type, tokens per CPU second. With --url: whether the
    server gives what a run needs."""
    from gfcr.build import model_path
    from gfcr.engine.models import check_directory

    sizes = _sizes(streams)
    place = model_path(model)
    check_directory(place, "config.json", "model")
    if url:
        return _ask(model, place, url, as_json)
    with err.status("loading", spinner="dots"):
        import_torch(threads)
        from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
        from gfcr.engine.embedded.throughput import measure
        from gfcr.engine.models import load_model

        settings = EmbeddedSettings(slots=slots, device=device, dtype=dtype, check_tokens=check_tokens)
        module = load_model(place, device, dtype)
        facts = _facts(module)
        running = EmbeddedEngine(module, settings)
    able, check = running.capabilities(), running.check
    with err.status("measuring", spinner="dots"):
        found = measure(running, sizes, min(tokens, running.max_length - 1)) if sizes else []
    running.close()
    result: dict[str, Any] = {
        "model": model,
        **facts,
        "features": sorted(able.features),
        "max_length": able.max_length,
        "vocabulary": able.vocabulary,
        "device": able.details["device"],
        "threads": able.details["threads"],
        "dtype": able.details["dtype"],
        "dtype_reason": able.details["dtype_reason"],
        "self_check": asdict(check),
        "throughput": [
            {**asdict(f), "tokens_per_cpu_second": round(f.per_cpu_second, 1), "tokens_per_second": round(f.per_second, 1)}
            for f in found
        ],
    }
    if as_json:
        print_json(result)
    else:
        _print(result)
    return 0


def _ask(model: str, place: Path, urls: list[str], as_json: bool) -> int:
    """Check servers as a run would, and say what they are."""
    from rich.markup import escape
    from rich.table import Table

    from gfcr.engine.http.settings import HttpSettings
    from gfcr.engine.http.vllm import VllmEngine
    from gfcr.engine.models import vocabulary_of

    try:
        settings = HttpSettings(urls=tuple(urls), attempts=3)
    except ValidationError as error:
        raise ConfigError(f"--url {' '.join(urls)!r}: {error.errors()[0]['msg']}", "give http://HOST:PORT") from None
    with err.status("asking", spinner="dots"):
        running = VllmEngine(settings, vocabulary_of(place))
        able = running.capabilities()
        running.close()
    details = {k: able.details[k] for k in ("dtype", "server", "servers")}
    result = {
        "model": model,
        "features": sorted(able.features),
        "max_length": able.max_length,
        "vocabulary": able.vocabulary,
        **details,
    }
    if as_json:
        print_json(result)
        return 0
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]model", escape(model))
    table.add_row("servers", escape(", ".join(details["servers"])) + f" [dim](vLLM {escape(str(details['server']))})[/dim]")
    table.add_row("length", f"{able.max_length:,} tokens, vocabulary {able.vocabulary:,}")
    table.add_row("arithmetic", str(details["dtype"]))
    table.add_row("checked", "token ids both ways, log-probabilities of the law sampled, scores that agree with sampling")
    table.add_row("features", ", ".join(result["features"]))
    out.print(table)
    return 0


def _sizes(text: str) -> list[int]:
    """Batch sizes of `--streams`."""
    if text.strip() == "none":
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise ConfigError(f"--streams {text!r} is not a list of numbers from 1", f"write for example --streams {STREAMS}")
    return [int(part) for part in parts]


def _facts(module: Any) -> dict[str, Any]:
    """What the model is, before the engine owns it."""
    config = module.config
    tied = module.get_output_embeddings() is not None and (
        module.get_output_embeddings().weight is module.get_input_embeddings().weight
    )
    return {
        "architecture": config.model_type,
        "parameters": sum(p.numel() for p in module.parameters()),
        "layers": getattr(config, "num_hidden_layers", None),
        "window": getattr(config, "sliding_window", None),
        "tied_embeddings": tied,
        "stored_dtype": str(next(module.parameters()).dtype).removeprefix("torch."),
    }


def _print(result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    window = f", window {result['window']}" if result["window"] else ""
    tied = "tied" if result["tied_embeddings"] else "untied"
    check = result["self_check"]
    if check["tokens"] and check["difference"] == check["difference"]:
        beyond = "" if check["beyond_window"] else "; shorter than the window: raise --check-tokens to test that too"
        said = (
            f"differs by {check['difference']:.2g} nats from the plain forward pass, allowed {check['allowed']:.2g}"
            f" (rows of {check['tokens']} tokens{beyond})"
        )
    else:
        said = "off" if not check["tokens"] else "nothing to compare: the weights are not finite"
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "[bold]model",
        f"{escape(str(result['model']))}: {result['architecture']}, {result['parameters']:,} parameters, {result['layers']} layers{window},"
        f" {tied} embeddings",
    )
    table.add_row("length", f"{result['max_length']:,} tokens, vocabulary {result['vocabulary']:,}")
    table.add_row("arithmetic", f"{result['dtype']} on {result['device']} [dim]({result['dtype_reason']})[/dim]")
    table.add_row("start-up check", said)
    table.add_row("features", ", ".join(result["features"]))
    out.print(table)
    if not result["throughput"]:
        return
    speeds = Table("streams", "tokens", "tokens per CPU second", "tokens per second", box=None, padding=(0, 2))
    for column in speeds.columns:
        column.justify = "right"
    for row in result["throughput"]:
        speeds.add_row(
            str(row["streams"]),
            str(row["tokens"]),
            f"{row['tokens_per_cpu_second']:,.0f}",
            f"{row['tokens_per_second']:,.0f}",
        )
    out.print()
    out.print(speeds)
