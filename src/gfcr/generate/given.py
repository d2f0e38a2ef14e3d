"""What a seeder and a topology of independent streams gave, checked before a round asks for tokens.

Invariant: a method of somebody's own that gives something else is named with its place, the value and what it should give; it is never
taken for fewer rollouts, nor for a fault of gfcr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gfcr.context import Configuration, Seed, Stream, View
from gfcr.errors import ConfigError
from gfcr.functions import place_of_class
from gfcr.generate.slots import Seeder, Topology
from gfcr.types import Group, Path, Segment


def seeds_of(seeder: Seeder, method: str, group: Group, n: int, view: View) -> Sequence[Seed | None]:
    """What `seed` (or `guide`) gives for n rollouts. Raises ConfigError unless it is a Seed or None for each."""
    seeds = getattr(seeder, method)(group, n, view)
    where = f"generate.seed {place_of_class(type(seeder))}"
    give = f"return from {method}(group, n, view) a list of n: a gfcr.context.Seed, or None for nothing, for each rollout"
    _refuse_count(where, seeds, n, "seeds", group, give)
    for i, seed in enumerate(seeds):
        if seed is None:
            continue
        if not isinstance(seed, Seed):
            hint = "; of a text build.words.after(text) makes the ids of a Segment" if isinstance(seed, str) else ""
            raise ConfigError(f"{where} gave {_shown(seed)} for rollout {i} of group {group.id}, which is no Seed", give + hint)
        if not isinstance(seed.segments, tuple) or not all(isinstance(s, Segment) for s in seed.segments):
            raise ConfigError(
                f"{where} gave for rollout {i} of group {group.id} a Seed whose segments are {_shown(seed.segments)}",
                "give segments as a tuple of gfcr.types.Segment (ids of build.words.after(text), kind GUIDANCE)",
            )
    return seeds


def streams_of(topology: Topology, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Sequence[Stream]:
    """A topology's streams. Raises ConfigError unless there is one for each base: rollouts that are not there would be missing from the
    group's baseline without a word."""
    streams = topology.streams(group, bases, how, view)
    where = f"generate.topology {place_of_class(type(topology))}"
    give = (
        "return from streams(group, bases, how, view) a list with one gfcr.context.Stream for each base; fewer rollouts are fewer "
        "bases: `k` of its Settings, or control.allocate"
    )
    _refuse_count(where, streams, len(bases), "streams", group, give)
    for i, stream in enumerate(streams):
        if not isinstance(stream, Stream):
            raise ConfigError(f"{where} gave {_shown(stream)} for rollout {i} of group {group.id}, which is no Stream", give)
    return streams


def _refuse_count(where: str, found: Any, n: int, what: str, group: Group, give: str) -> None:
    if not isinstance(found, (list, tuple)):
        raise ConfigError(
            f"{where} gave {_shown(found)} for {n} rollouts of group {group.id}, which is no list of {what}", give
        )
    if len(found) != n:
        raise ConfigError(f"{where} gave {len(found)} {what} for {n} rollouts of group {group.id}", give)


def _shown(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"
