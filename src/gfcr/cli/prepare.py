"""What must be set before torch is imported.

Invariant: on a machine where nobody chose a number of threads, torch gets one. Several threads of one process on a small or
busy box wait for each other in spin loops and are 10 to 50 times slower.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from typing import Annotated

import typer

Threads = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Torch threads; default OMP_NUM_THREADS, or 1.")
]

_QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Defaults: models come from directories, so nothing is fetched, and nothing is worth a progress bar."""


def set_environment(threads: int | None = None) -> int:
    """Set the environment for this process and its children; returns the number of torch threads."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    asked = os.environ["OMP_NUM_THREADS"].split(",")[0]
    return int(asked) if asked.isdigit() and int(asked) > 0 else 1


def import_torch(threads: int | None = None) -> None:
    """Import torch and transformers, quiet and with the right number of threads."""
    count = set_environment(threads)
    import torch

    torch.set_num_threads(count)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(transformers|torch|huggingface_hub)(\..*)?$")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    settle_collector()


def settle_collector() -> None:
    """Spare the garbage collector what is imported, and let it look less often: a round makes a hundred thousand small objects and
    more, which live as long as the round, form no cycles and go with it; the default looks through them every 700 allocations."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
