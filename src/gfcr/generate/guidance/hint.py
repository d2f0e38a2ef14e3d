"""Hints: a part of the solution, for tasks that the policy does not solve without.

Invariants: (but for the `cosine` law) only groups whose plain rollouts were all judged wrong are helped, so the hint rate falls as the
policy learns; plain rollouts are sampled, judged and counted before; guided ones say nothing about difficulty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from gfcr.context import Build, Seed, View
from gfcr.control.slots import Allocation
from gfcr.errors import ConfigError
from gfcr.generate.guidance.helping import HelpSettings, guided, instead, settled
from gfcr.generate.guidance.solutions import Splitter, Steps, author, given, need_solutions, need_steps
from gfcr.generate.guidance.strength import StrengthSettings, judged_wrong, law_of
from gfcr.generate.slots import Settled
from gfcr.generate.words import needs, told, words_of, writable
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Group, LossRole, Role, Segment, SegmentKind


@method(
    "hint",
    Slot.SEED,
    title="adaptive hints (BREAD, Guide-GRPO, UFT)",
    arxiv="2506.17211",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=("guides", "reads solutions"),
)
class Hint:
    """Further rollouts for a group that failed, each given a part of the task's solution: as the beginning of its answer (BREAD,
    arXiv:2506.17211; UFT, arXiv:2505.16984) or in the question (Guide-GRPO, arXiv:2506.13923). Tasks without a solution stay plain."""

    class Settings(HelpSettings):
        strength: StrengthSettings = StrengthSettings()
        """How much is given."""
        steps: str = "lines"
        """Where a step begins: `lines`, `paragraphs`, `sentences`, `characters`, or a regular expression."""
        form: Literal["prefix", "text"] = "prefix"
        """`prefix`: the answer begins with it and the policy goes on. `text`: it stands in the question, as `say` has it."""
        say: str = "{prompt}\n\nHint: {hint}"
        """`text`: the question with the hint; of a chat, the last user message."""
        learn: Literal["nothing", "ce", "rl"] = "nothing"
        """`prefix`: loss on the tokens given: none; cross-entropy (UFT; the weight comes from filter.credit_batch = "imitation"); or
        like the policy's own, with recomputed log-probabilities."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.form == "prefix" and self.context == "plain":
                raise ConfigError(
                    "generate.seed 'hint': context = 'plain' with form = 'prefix' would train the policy to begin in the middle of an"
                    " answer",
                    "set context = 'guided', or form = 'text'",
                )
            if self.form == "text" and self.learn != "nothing":
                raise ConfigError(
                    f"generate.seed 'hint': learn = {self.learn!r} with form = 'text' would put a loss on the question",
                    "set learn = 'nothing', or form = 'prefix'",
                )
            if self.ratio == "guided" and self.context == "guided":
                raise ConfigError(
                    "generate.seed 'hint': ratio = 'guided' is the denominator of rollouts trained under the plain question",
                    "set context = 'plain', or leave ratio out",
                )
            if self.strength.low > self.strength.high or self.strength.band[0] > self.strength.band[1]:
                raise ConfigError(
                    f"generate.seed 'hint': strength runs from {self.strength.low} to {self.strength.high}, band from "
                    f"{self.strength.band[0]} to {self.strength.band[1]}",
                    "give the smaller value first",
                )
            return self

        def traits(self) -> frozenset[str]:
            found = {"guides every group" if self.strength.law == "cosine" else "helps all-wrong groups"}
            found |= {"cross-entropy weights", "needs: imitation weight"} if self.learn == "ce" else set()
            found |= {"trains demonstrations"} if self.learn == "rl" else set()
            return frozenset(found) | super().traits()

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.build = settings, build
        need_solutions(build.tasks, "generate.seed 'hint'")
        needs(settings.say, "generate.seed.say", "prompt", "hint")
        self.splitter = Splitter(settings.steps, "generate.seed.steps")
        need_steps(build.tasks, self.splitter, f"generate.seed.steps = {settings.steps!r}")
        if settings.form == "text":
            writable(build, {"generate.seed.say": settings.say})
        self.law = law_of(settings.strength)

    # ---- before and while a group grows ------------------------------------------------------------------------

    def seed(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        return self.guide(group, n, view) if self.law.always else [None] * n

    def more(self, group: Group, view: View) -> Allocation:
        if self.law.always or not judged_wrong(group) or (steps := self.splitter.steps(group.task)) is None:
            return Allocation(0, "no hint")
        begun = any(m.role is Role.GUIDED for m in group.members.values())
        if begun and not self.law.again(group, steps):
            return Allocation(0, "hinted")
        return Allocation(self.settings.rollouts(self.build.k), "all wrong, and the hint so far too" if begun else "all wrong")

    def guide(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        steps = self.splitter.steps(group.task)
        if steps is None:
            return [None] * n
        parts = self.law.parts(group, steps, n, view)
        made = {part: self._seed(group, steps, part) for part in sorted(set(parts)) if part}
        return [made.get(part) for part in parts]

    def _seed(self, group: Group, steps: Steps, part: int) -> Seed:
        words = words_of(self.build, "generate.seed 'hint'")
        reason, name, s = f"{part} of {len(steps)} steps of the solution", author(part, len(steps)), self.settings
        if s.form == "text":
            prompt = words.prompt(told(group.task, s.say, hint=steps.first(part)))
            return instead(prompt, name, reason, s)
        role = {"nothing": LossRole.NONE, "ce": LossRole.CE, "rl": LossRole.RL}[s.learn]
        kind = SegmentKind.DEMO if role is not LossRole.NONE else SegmentKind.GUIDANCE
        return Seed((Segment(kind, words.after(steps.first(part)), author=name, role=role),), reason)

    # ---- once it is closed -------------------------------------------------------------------------------------

    def settle(self, group: Group, view: View) -> Settled | None:
        steps = self.splitter.steps(group.task)
        best = None if steps is None else self.law.best(group, steps)
        stay = {i for i, member in guided(group).items() if best is None or given(member) == best}
        return settled(group, view, self.settings, stay, replace=not self.law.always)

    def observe(self, closed: Sequence[Group], view: View) -> None:
        for group in closed:
            if (steps := self.splitter.steps(group.task)) is not None:
                self.law.observe(group, steps)

    def state_dict(self) -> dict[str, Any]:
        return self.law.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.law.load_state_dict(state)
