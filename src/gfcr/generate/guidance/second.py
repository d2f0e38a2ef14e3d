"""What growths of several turns share: parts of a path with other losses, and a verdict on one part alone.

Invariant: nodes whose loss differs from what was sampled have an id of their own, so that a packed row never takes one for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.generate.dialogue import Dialogue
from gfcr.types import LossRole, Node, Path, Signals, Task, path_length

AUTHOR = "guidance"
"""Author of what is said between the policy's turns."""
Talk = Callable[[Task, Path], Dialogue]


def silent(node: Node) -> Node:
    """The node without a loss."""
    if node.segment.role is LossRole.NONE:
        return node
    return replace(node, id=f"{node.id}|", segment=replace(node.segment, role=LossRole.NONE))


def alone(base: Path, part: Path) -> Path:
    """A path in which `part` follows the prompt: what a verifier is asked about where only that part counts."""
    return (*base, *part)


def moved(signals: Signals, judged: Path, path: Path) -> Signals:
    """Signals of a part that ends `judged`, for a path that ends with it too: places of steps in the path's offsets."""
    by = path_length(path) - path_length(judged)
    return replace(signals, steps=tuple(replace(s, start=s.start + by, end=s.end + by) for s in signals.steps))


def talk_of(build: Build, who: str) -> Talk:
    """How turns are written. Raises ConfigError where a method was built without a tokenizer."""
    made: Talk | None = build.dialogue
    if made is None:
        raise ConfigError(
            f"{who} takes turns, and it was built without a tokenizer", "give Build its dialogue (generate/render.py)"
        )
    return made
