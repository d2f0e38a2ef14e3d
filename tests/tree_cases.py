"""Hand-built trees: members that share node objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gfcr.types import Group, Member, Node, Rollout, Segment, SegmentKind, StopReason
from group_cases import action, group, plain, signals

Spec = Sequence["float | tuple[int, Spec]"]
"""Below a node: leaves by their rewards (an own segment of 2 tokens each), or (tokens of an own segment, what is below it)."""


def tree(spec: Spec, name: str = "g", split: bool = False) -> Group:
    """A closed group of one tree under a prompt of 2 tokens; `split` cuts every segment of 2 and more in two nodes and puts an
    observation between them."""
    made = group([], name)
    root = Node(f"{name}.p", None, plain(SegmentKind.PROMPT, 2))
    grow(made, (root,), spec, name, split)
    return made


def grow(made: Group, above: tuple[Node, ...], spec: Spec, name: str, split: bool) -> None:
    for i, below in enumerate(spec):
        tokens = below[0] if isinstance(below, tuple) else 2
        path = (*above, *nodes(f"{name}.{i}", above[-1].id, tokens, split))
        if isinstance(below, tuple):
            grow(made, path, below[1], f"{name}.{i}", split)
        else:
            leaf(made, path, below)


def nodes(name: str, parent: str, tokens: int, split: bool) -> list[Node]:
    if not split or tokens < 2:
        return [Node(name, parent, action(tokens))]
    parts: list[Segment] = [action(1), plain(SegmentKind.OBSERVATION, 3), action(tokens - 1)]
    return [Node(f"{name}/{j}", f"{name}/{j - 1}" if j else parent, part) for j, part in enumerate(parts)]


def leaf(made: Group, path: tuple[Node, ...], reward: float | None) -> Member:
    key = f"{made.id}#{len(made.members)}"
    correct = None if reward is None else reward > 0
    one = made.members[key] = Member(Rollout(key, "t", path, StopReason.EOS), signals=signals(reward, correct))
    return one


def credited(made: Group, credit, members: Sequence[Member] | None = None) -> Mapping[str, object]:
    """Credit of the group, also written to its members."""
    found = credit.credit(made, list(made.members.values()) if members is None else members)
    for key, one in found.items():
        made.members[key].credit = one
    return found


TOY: Spec = [(4, [1.0, 1.0]), (4, [1.0, 0.0])]
"""The two trees of the golden vectors: A with leaves 1 and 1, B with 1 and 0."""
