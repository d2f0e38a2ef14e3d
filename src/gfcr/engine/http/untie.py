"""A copy of a model for vLLM to serve on a CPU: tied embeddings stand in it twice.

On a CPU vLLM packs each matrix when it loads it. With tied embeddings its reload renews the embedding and not the packed output head
(0.32), so that the servers answer with half of the new weights; gfcr notices (StaleWeights), and this is the way round it.

    python -m gfcr.engine.http.untie MODEL OUT

Invariant: the copy is the same function, and MODEL is not touched.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from gfcr.engine.http.checkpoint import save
from gfcr.engine.models import load_model, model_path
from gfcr.errors import ConfigError, GfcrError


def untie(model: Path, out: Path) -> Path:
    """Write the copy; returns `out`. Raises ConfigError for a directory without a model, or when `out` exists."""
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "give a directory that does not exist yet")
    tensors = load_model(model, dtype="auto").state_dict()
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", "*.bin"))
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}, indent=2), encoding="utf-8")
    save(tensors, out / "model.safetensors")
    return out


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m gfcr.engine.http.untie MODEL OUT", file=sys.stderr)
        return 2
    try:
        print(untie(model_path(arguments[0]), Path(arguments[1])))
    except GfcrError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
