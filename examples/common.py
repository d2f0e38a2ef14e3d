"""What the example scripts share: their arguments, and a look at the trained model."""

from __future__ import annotations

import argparse
from typing import Any


def arguments(recipe: str, out: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default=recipe, help="a shipped recipe's name, or a file")
    parser.add_argument("--out", default=out)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting of the recipe")
    return parser.parse_args()


def report(parts: Any, model: Any, tasks: int = 20) -> None:
    """Print the accuracy of the trained weights on a few held-out tasks, by an engine of their own."""
    from gfcr.engine.contract import WeightsRef
    from gfcr.integrations.weights import full_weights, twin_engine
    from gfcr.run.evaluate import evaluate

    engine = twin_engine(parts.recipe, model, parts.cascade.decode)
    with full_weights(model) as tensors:
        engine.load(WeightsRef(0, "memory:"), tensors)
    longest = parts.recipe.generate.max_tokens
    found = evaluate(engine, parts.cascade, parts.renderer, parts.heldout[:tasks], 4, False, longest, parts.stop)
    print(f"accuracy on {tasks} held-out tasks, 4 answers each: {found.accuracy}")
