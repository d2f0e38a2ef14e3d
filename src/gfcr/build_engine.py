"""The engine a recipe names. Invariant: a model is loaded, and torch with it, only for an engine that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gfcr.engine.contract import Engine
from gfcr.recipe import Recipe


def make_engine(recipe: Recipe, place: Path, decode: Any) -> Engine:
    if recipe.engine.name == "scripted":
        from gfcr.engine.scripted import ScriptedEngine

        return ScriptedEngine()
    from gfcr.engine.models import load_model

    return embedded_engine(recipe, load_model(place, recipe.engine.device, recipe.engine.dtype), decode)


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
