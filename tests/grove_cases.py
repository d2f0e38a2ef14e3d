"""Trees on the library's scripted engine: a script says by the answer so far, and how often it was asked, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gfcr.domains.programs.tokenizer import END_ID, decode, encode_answer
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Request
from gfcr.engine.scripted import ScriptedEngine
from gfcr.round import Round
from gfcr.types import Group, Rollout, SegmentKind, StopReason
from lifecycle_cases import Lab, lab


def said(rollout: Rollout) -> str:
    """The answer's text; `$` for an end token."""
    return "".join("$" if i == END_ID else decode([i]) for i in rollout.own_tokens().tolist())


def scripted(script: Mapping[str, Sequence[str]] | None) -> ScriptedEngine:
    """`script`: answer so far -> what comes next, ask by ask; None = the engine's own draws."""
    asked: Counter[str] = Counter()

    def tell(request: Request) -> tuple[list[int], StopReason] | None:
        assert script is not None
        own = [i for n in request.path if n.segment.kind is SegmentKind.ACTION for i in n.segment.ids.tolist()]
        so_far = decode(own)
        text = script[so_far][asked[so_far]]
        asked[so_far] += 1
        ids = [*encode_answer(text.rstrip("$")), *([END_ID] if text.endswith("$") else [])]
        return ids, StopReason.EOS if text.endswith("$") else StopReason.MAX_TOKENS

    return ScriptedEngine(tell if script is not None else None, decode=decode)


def grove_lab(
    topology: Mapping[str, Any], script: Mapping[str, Sequence[str]] | None = None, max_tokens: int = 16, **more: Any
) -> Lab:
    """A lab with this topology and one task, `a+?00`: right is `a+00#00$`."""
    n_tasks, limit = more.pop("n_tasks", 1), more.pop("limit", None)
    sections = {**more, "generate": {"topology": dict(topology), "max_tokens": max_tokens, **more.get("generate", {})}}
    made = lab("r", n_tasks, limit=limit, **sections)
    made.engine = scripted(script)  # type: ignore[assignment]
    made.engine.max_length = made.engine.settings.max_length  # what the lab reads of its own engine
    return made


def grown(made: Lab) -> tuple[Round, Group]:
    """The next round, driven, and its one group."""
    round_ = made.round()
    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    return round_, group


def forks(group: Group) -> list[tuple[str, int]]:
    """Of each branch of the group's tree: how many leaves pass through it, in the order of the tree, with its own tokens' text."""
    from gfcr.filter.credit.branches import Tree

    members = list(group.members.values())
    tree = Tree.of(members)
    prompt = len(members[0].rollout.path[0].segment)
    texts = [said(m.rollout) for m in members]
    return [(texts[b.leaves[0]][max(b.start - prompt, 0) : b.end - prompt], len(b.leaves)) for b in tree.branches]
