"""The lab's frozen task sets.

Pools to train on: D (graded, L 1..8), B1 (skewed, with broken keys), B2 (all informative), B3 (skewed: too easy, impossible,
few informative), HARD (L 5..8, screened with the shipped checkpoint to a pass rate of about .02), MIX (three in eight
each too easy and impossible, one in eight each hard and informative, taken from B3 and HARD). Each has a held-out set of clean tasks (MIX has B3's), D a second one
of longer programs (`D-long`). `freeze` is the script that made the files.

Invariants: a file is read only when its SHA-256 is the one recorded beside it; no prompt occurs twice, neither in a set nor in
two held-out sets nor in a pool and a held-out set; the order of a pool is shuffled once and frozen.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib import resources

from gfcr.domains.programs.language import DOMAIN, final_pair, parse_prompt, trace_lines
from gfcr.errors import ConfigError, DataError
from gfcr.types import Origin, Task

POOLS = ("D", "B1", "B2", "B3", "HARD", "MIX")
HELDOUT = ("D", "D-long", "B1", "B2", "B3", "HARD")
HELDOUT_OF = {"MIX": "B3"}
"""Pools without a held-out set of their own: the shipped checkpoint has seen no prompt of the sets that were frozen before it."""
VERSION = "1"
MANIFEST = "SHA256SUMS"


def load_pool(name: str) -> list[Task]:
    """The tasks of a pool. Raises ConfigError for an unknown name, DataError when the file is not the frozen one.

    `reference` is `{"final", "trace"}` (the trace is the whole right answer, privileged; with a broken key it ends in the
    broken final); `category` is `L<steps>`; `meta` has `length`, `broken_key` and `solution` (the
    trace again, for methods of guidance).
    """
    _known(name, POOLS, "pool")
    return list(_load(f"{name}.jsonl"))


def load_heldout(name: str) -> list[Task]:
    """The held-out tasks of a pool; errors and fields as in `load_pool`."""
    name = HELDOUT_OF.get(name, name)
    _known(name, HELDOUT, "held-out set")
    return list(_load(f"{name}.heldout.jsonl"))


def informative_ids(name: str) -> frozenset[str]:
    """What an oracle would train on: ids of the pool's tasks with a right key and, in the skewed pools, L 3..8 (in MIX without the
    hard ones)."""
    skewed = name in ("B1", "B3", "MIX")
    hard = {t.id for t in load_pool("HARD")} if name == "MIX" else set()
    return frozenset(
        t.id
        for t in load_pool(name)
        if not t.meta["broken_key"] and (not skewed or 3 <= t.meta["length"] <= 8) and t.id not in hard
    )


def heldout_prompts() -> frozenset[str]:
    """Every held-out prompt; a warm start must not train on them."""
    return frozenset(str(t.prompt) for name in HELDOUT for t in load_heldout(name))


def task_of(prompt: str, final: str, source: str) -> Task:
    """A task of one line of a file."""
    program = parse_prompt(prompt)
    trace = "".join(trace_lines(program)) + "#" + final
    return Task(
        DOMAIN,
        prompt,
        {"final": final, "trace": trace},
        category=f"L{program.length}",
        origin=Origin("dataset", source, VERSION),
        meta={"length": program.length, "broken_key": final != final_pair(program), "solution": trace},
    )


def _known(name: str, names: tuple[str, ...], what: str) -> None:
    if name not in names:
        raise ConfigError(f"there is no {what} {name!r} of register programs", f"choose one of {', '.join(names)}")


@lru_cache
def _load(file: str) -> tuple[Task, ...]:
    raw = verified(file, _read(file), _read(MANIFEST).decode())
    source = f"{DOMAIN}/{file.removesuffix('.jsonl')}"
    rows = (json.loads(line) for line in raw.decode().splitlines())
    return tuple(task_of(row["prompt"], row["final"], source) for row in rows)


def _read(file: str) -> bytes:
    try:
        return (resources.files(__package__) / "data" / file).read_bytes()
    except FileNotFoundError:
        raise DataError(f"the frozen file {file} of register programs is missing", "install gfcr again") from None


def verified(file: str, raw: bytes, manifest: str) -> bytes:
    """`raw`, when its SHA-256 is the one `manifest` (lines of `<hex digest>  <file>`) records; else DataError."""
    wanted = {name: digest for digest, name in (line.split() for line in manifest.splitlines())}
    found = hashlib.sha256(raw).hexdigest()
    if wanted.get(file) != found:
        raise DataError(
            f"{file} has the SHA-256 {found[:16]}..., {MANIFEST} records {wanted.get(file, 'none')[:16]}",
            "the frozen tasks were changed: install gfcr again, or load your own tasks through a task source",
        )
    return raw
