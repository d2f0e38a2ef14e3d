"""A lab with solutions and with the lab's own tokenizer, for tests of guidance."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gfcr.domains.programs.pools import task_of
from gfcr.domains.programs.tokenizer import END_ID, build_tokenizer, decode
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.words import Words
from gfcr.types import Group, Member, Role, SegmentKind, path_ids
from lifecycle_cases import Lab, lab

FOUR = "a+b-c*ds?23"
"""x = 2, y = 3: a+53 b-23 c*63 ds36, final 36."""
SOLUTION = "a+53b-23c*63ds36#36"
STEPS = "[a-p](?=[-+*s][0-6])|#"


@cache
def lab_words() -> Words:
    return Words(TokenizerRenderer(build_tokenizer()), (END_ID,))


def guided_lab(script: Callable[[str, int], str] | str, k: int = 4, tasks: list | None = None, **sections: Any) -> Lab:
    """One task of four steps; `script` says what the n-th rollout of it answers (see lifecycle_cases)."""
    made_tasks = tasks or [task_of(FOUR, "36", "test")]
    sections["generate"] = {"max_tokens": 32, **sections.get("generate", {})}
    return lab(script, len(made_tasks), k, of=made_tasks, words=lab_words(), dialogue=lab_words().renderer.dialogue, **sections)


def guided(group: Group) -> list[Member]:
    return [m for m in group.members.values() if m.role is Role.GUIDED]


def context(member: Member) -> str:
    """What stands between the prompt and the policy's own tokens, as text."""
    parts = [n for n in member.rollout.path[1:] if n.segment.kind is not SegmentKind.ACTION]
    return decode([int(i) for i in path_ids(tuple(parts))])
