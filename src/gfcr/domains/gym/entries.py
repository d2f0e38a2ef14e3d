"""Entries of reasoning-gym (https://github.com/open-thought/reasoning-gym, arXiv:2505.24760) as JSON data, and their scores.

Invariants: an entry is stored whole, so that a frozen one is scored without being generated again; an entry that JSON cannot
hold, or whose own reference the data set's scorer does not accept after that, is refused when it is drawn, not when it is
judged; drawing is deterministic in (data set, parameters, seed) and bounded.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gfcr.errors import ConfigError, DataError, MissingExtra

Entry = Mapping[str, Any]
"""`dataset`, `parameters`, `question`, `answer`, `metadata`; JSON data."""
DRAWS_PER_TASK = 20
"""Entries looked at per distinct one wanted, before a data set counts as exhausted."""
PROBED = 3
"""Entries of each draw whose reference is scored, to see that stored entries can be judged."""


def library() -> Any:
    """The module reasoning_gym; its first import takes seconds. Raises MissingExtra."""
    try:
        import reasoning_gym
    except ImportError:
        raise MissingExtra("reasoning_gym", "reasoning-gym", "tasks.source = 'reasoning-gym'") from None
    return reasoning_gym


@lru_cache(maxsize=32)
def _dataset(name: str, parameters: str, size: int, seed: int) -> Any:
    """The library's data set object; `parameters` as canonical JSON. Raises ConfigError."""
    module = library()
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, 1)
        raise ConfigError(
            f"tasks.gym.datasets: reasoning-gym has no data set {name!r}",
            f"did you mean {near[0]!r}?" if near else f"it has {len(DATASETS)}, among them chain_sum and basic_arithmetic",
        )
    given = json.loads(parameters)
    if own := sorted({"size", "seed"} & given.keys()):
        raise ConfigError(f"tasks.gym.datasets: {name!r} names {own[0]!r} itself", f"set tasks.gym.{own[0]}")
    try:
        return module.create_dataset(name, size=size, seed=seed, **given)
    except (AssertionError, TypeError, ValueError, KeyError) as error:
        known = sorted(set(DATASETS[name][1].__dataclass_fields__) - {"size", "seed"})
        raise ConfigError(
            f"tasks.gym.datasets: {name!r} with {given} is refused: {error}", f"its parameters are {', '.join(known)}"
        ) from None


def draw(name: str, parameters: Mapping[str, Any], seed: int, wanted: int, taken: Collection[str]) -> Iterator[Entry]:
    """Up to `wanted` entries with distinct questions, none of them in `taken`. Raises ConfigError, DataError or MissingExtra."""
    dataset = _dataset(name, json.dumps(parameters, sort_keys=True), wanted * DRAWS_PER_TASK, seed)
    seen: set[str] = set(taken)
    kept = 0
    for index in range(wanted * DRAWS_PER_TASK):
        raw = dataset[index]
        if raw["question"] in seen:
            continue
        seen.add(raw["question"])
        entry = _stored(name, parameters, raw)
        if kept < PROBED and (found := score(entry, entry["answer"])) != 1.0:
            raise ConfigError(
                f"tasks.gym.datasets: {name!r} gives its own reference answer the score {found}",
                "its entries cannot be judged once they are stored; choose another data set",
            )
        yield entry
        kept += 1
        if kept == wanted:
            return


def _stored(name: str, parameters: Mapping[str, Any], raw: Mapping[str, Any]) -> Entry:
    answer = raw["answer"]
    if not isinstance(answer, str):
        raise ConfigError(
            f"tasks.gym.datasets: the reference answer of {name!r} is {type(answer).__name__}, not text",
            "choose another data set: this one has no single answer to store",
        )
    entry = {
        "dataset": name,
        "parameters": parameters,
        "question": raw["question"],
        "answer": answer,
        "metadata": raw["metadata"],
    }
    try:
        return json.loads(json.dumps(entry, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tasks.gym.datasets: an entry of {name!r} is no JSON data: {error}", "choose another data set"
        ) from None


def score(entry: Entry, answer: str) -> float:
    """The data set's own score of an answer in [0, 1]. May take long for some data sets. Raises DataError when it is none."""
    dataset = _dataset(entry["dataset"], json.dumps(entry["parameters"], sort_keys=True), 1, 0)
    found = dataset.score_answer(answer, {key: entry[key] for key in ("question", "answer", "metadata")})
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1:
        raise DataError(f"{entry['dataset']!r} scored an answer with {found!r}", "report it to reasoning-gym")
    return float(found)
