"""The engine a recipe names. Invariant: a model is loaded, and torch or an HTTP library with it, only for an engine that has one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from gfcr.compose import Finding
from gfcr.engine.contract import Engine
from gfcr.recipe import Recipe


def make_engine(recipe: Recipe, place: Path, decode: Any) -> Engine:
    if recipe.engine.name == "scripted":
        from gfcr.engine.scripted import ScriptedEngine

        return ScriptedEngine()
    if recipe.engine.http is not None:
        return http_engine(recipe, place, decode)
    from gfcr.engine.models import load_model

    return embedded_engine(recipe, load_model(place, recipe.engine.device, recipe.engine.dtype), decode)


def http_engine(recipe: Recipe, place: Path, decode: Any) -> Engine:
    """The engine over the recipe's servers; the model in `place` says how large the vocabulary is."""
    from gfcr.engine.models import load_tokenizer, vocabulary_of

    section = recipe.engine
    assert section.http is not None
    if section.name == "vllm":
        from gfcr.engine.http.vllm import VllmEngine

        return VllmEngine(section.http, vocabulary_of(place), section.slots, decode)
    from gfcr.engine.http.openai import OpenAiEngine

    tokenizer = load_tokenizer(place)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    return OpenAiEngine(section.http, vocabulary_of(place), section.slots, decode, encode, section.max_length)


def embedded_engine(recipe: Recipe, model: Any, decode: Any) -> Engine:
    """The embedded engine around a model, which is the engine's from here on; in processes of its own where the recipe says so."""
    from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings

    section = recipe.engine
    settings = EmbeddedSettings(
        slots=-(-section.slots // section.workers),
        device=section.device,
        dtype=section.dtype,
        max_length=section.max_length,
        check_tokens=section.check_tokens,
    )
    if section.workers == 1:
        return EmbeddedEngine(model, settings, decode=decode)
    from gfcr.engine.workers import WorkerEngine

    return WorkerEngine(model, settings, decode=decode, workers=section.workers)


def engine_findings(recipe: Recipe) -> list[Finding]:
    """What the engine's own settings say that cannot be."""
    findings: list[Finding] = []
    if recipe.engine.workers > 1 and (recipe.engine.name != "embedded" or not recipe.engine.device.startswith("cpu")):
        where = f"the {recipe.engine.name} engine on {recipe.engine.device}"
        findings.append(
            Finding(
                "workers",
                f"engine.workers = {recipe.engine.workers} with {where}: only the embedded engine on the CPU has workers",
                "set engine.workers = 1",
            )
        )
    remote = recipe.engine.name in ("vllm", "openai")
    if remote != (recipe.engine.http is not None):
        findings.append(
            Finding(
                "engine_http",
                f"engine.name = {recipe.engine.name!r} "
                + ("and engine.http does not say where" if remote else "has no servers"),
                'set engine.http = {urls = ["http://127.0.0.1:8000"]}' if remote else "leave engine.http out",
            )
        )
    return findings
