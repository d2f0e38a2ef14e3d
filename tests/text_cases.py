"""A round without a model over any tasks and any texts: the script says the answers, one token per byte, from recipe to `Batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gfcr.build import make_cascade, make_slots, round_settings
from gfcr.context import Build, View
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Prefilled, Request, StopSpec
from gfcr.recipe import parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.types import Member, Segment, SegmentKind, StopReason, Task, path_ids
from lifecycle_cases import ScriptEngine

END = 256


def decode(ids: Any) -> str:
    return bytes(int(i) for i in ids if i != END).decode("utf-8", "replace")


def render(task: Task) -> Segment:
    assert isinstance(task.prompt, str)
    return Segment(SegmentKind.PROMPT, np.frombuffer(task.prompt.encode(), np.uint8).astype(np.int32))


class Saying(ScriptEngine):
    """Says, for each prompt, its list of answers in turn."""

    def __init__(self, answers: Mapping[str, Sequence[str]]) -> None:
        super().__init__("", 1 << 16)
        self.answers = answers

    def submit(self, request: Request) -> None:
        prompt = decode(request.path[0].segment.ids)
        self._said[request.id] = self.answers[prompt][self.asked[prompt]]
        self.asked[prompt] += 1
        self.requests.append(request)
        self._queue.append(request)
        self._prefilled.append(Prefilled(request.id, len(path_ids(request.path)), 0))

    def _answer(self, request: Request) -> tuple[list[int] | None, StopReason | None]:
        return [*self._said[request.id].encode(), END], StopReason.EOS


def through(task: Task, answers: Sequence[str], **filters: Any) -> tuple[Round, list[Member]]:
    """One driven round with one group that answers `task` so, and its members in the order of the answers."""
    sections = {"credit": {"name": "dr-grpo"}, "admission": {"drop_zero_variance": False}} | filters
    recipe = parse(
        {
            "generate": {"topology": {"name": "group", "k": len(answers)}, "max_tokens": 4096},
            "control": {"groups": 1, "min_groups": 1},
            "filter": sections,
            "engine": {"name": "scripted"},
        }
    )
    build = Build(0, [task], 1, len(answers), 4096, {}, decode)
    slots, cascade = make_slots(recipe, build), make_cascade(recipe, build)
    view = View(0, 0, 0, slots.posterior, slots.memory)
    made = Round(0, slots, round_settings(recipe, 1 << 16), view, Budget(None), render, StopSpec((END,)))
    try:
        WaveDriver(Saying({str(task.prompt): answers}), cascade, slots.judge).drive(made)
    finally:
        cascade.close()
    (group,) = made.groups.values()
    said = {decode(m.rollout.own_tokens()): m for m in group.members.values()}
    return made, [said[a] for a in answers]
