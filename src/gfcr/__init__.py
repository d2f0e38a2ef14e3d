"""gfcr: the rollout engine for RL post-training of language models (Generate, Filter, Control, Replay).

Invariant: importing the package imports neither torch nor numpy; the names below load their module when they are first used.

    import gfcr
    gfcr.session("quickstart", "runs/mine", seed=0).run()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfcr.doors import session
    from gfcr.errors import GfcrError
    from gfcr.integrations.own import rounds
    from gfcr.recipe import Recipe
    from gfcr.recipe import load as load_recipe
    from gfcr.recipe import parse as parse_recipe
    from gfcr.round import Round
    from gfcr.run.directory import RunDirectory
    from gfcr.run.session import Session

__version__ = "0.1.0"
__all__ = [
    "GfcrError",
    "Recipe",
    "Round",
    "RunDirectory",
    "Session",
    "__version__",
    "load_recipe",
    "parse_recipe",
    "rounds",
    "session",
]

_PLACES = {
    "GfcrError": "gfcr.errors:GfcrError",
    "Recipe": "gfcr.recipe:Recipe",
    "Round": "gfcr.round:Round",
    "RunDirectory": "gfcr.run.directory:RunDirectory",
    "Session": "gfcr.run.session:Session",
    "load_recipe": "gfcr.recipe:load",
    "parse_recipe": "gfcr.recipe:parse",
    "rounds": "gfcr.integrations.own:rounds",
    "session": "gfcr.doors:session",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'gfcr' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
