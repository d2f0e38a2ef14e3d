"""Examples and rules in the question of a task that the policy does not solve.

Invariants: an example is the policy's own answer to another task, verified right; never the same question (spelling and case apart), never
one that is measured on; no hit, no guidance: the group stays plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from gfcr.context import Build, Seed, View
from gfcr.control.slots import Allocation
from gfcr.errors import ConfigError, DataError
from gfcr.generate.guidance.helping import HelpSettings, guided, instead, settled
from gfcr.generate.guidance.leaks import question_of
from gfcr.generate.guidance.similar import Similar, normal
from gfcr.generate.guidance.strength import judged_wrong
from gfcr.generate.slots import Settled
from gfcr.generate.words import filled, needs, told, words_of, writable
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Artifact, ArtifactKind, Group, Task

AUTHOR = "examples"
"""Author of a question with examples (`examples:ID+ID`, the artifacts) or rules (`rules`)."""


@method(
    "examples",
    Slot.SEED,
    title="in-context examples and rules (XRPO)",
    arxiv="2510.06672",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=("guides",),
)
class Examples:
    """Further rollouts for a group that failed, with verified answers to similar other tasks in the question (XRPO, arXiv:2510.06672:
    K = 2 from a growing corpus of successes), or with rules that the user wrote. Similarity is ours: hashed character n-grams (TF-IDF
    cosine) where the paper embeds with Qwen3-Embedding-8B."""

    class Settings(HelpSettings):
        source: Literal["successes", "rules"] = "successes"
        """`successes`: right answers in replay's memory (replay.store must keep some). `rules`: the texts below."""
        k: int = Field(2, ge=1)
        """Examples (XRPO: 2)."""
        least: float = Field(0.1, ge=0, le=1)
        """Smallest cosine of an example. UNCONFIRMED: the paper names no threshold."""
        longest: int = Field(1000, ge=1)
        """Characters of an example's answer; the rest is cut off (XRPO truncates long examples, UNCONFIRMED where)."""
        rules: dict[str, tuple[str, ...]] = Field(default_factory=dict)
        """Category -> texts; the category "" is for every task."""
        example: str = "Example:\n{question}\n{answer}\n\n"
        """How one example is written."""
        rule: str = "- {rule}\n"
        """How one rule is written."""
        say: str = "{examples}{prompt}"
        """The question with them; of a chat, the last user message."""
        when: Literal["all_wrong", "always"] = "all_wrong"
        """`always`: the planned rollouts are guided."""

        @model_validator(mode="after")
        def _has_source(self) -> Self:
            if self.source == "rules" and not any(self.rules.values()):
                raise ConfigError(
                    "generate.seed 'examples': source = 'rules' without a rule",
                    'give some, for example rules = { "" = ["..."] }',
                )
            return self

        def traits(self) -> frozenset[str]:
            stored = {"needs: stored answers"} if self.source == "successes" else set()
            helps = {"helps all-wrong groups"} if self.when == "all_wrong" else {"guides every group"}
            return frozenset(stored | helps) | super().traits()

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.build = settings, build
        needs(settings.say, "generate.seed.say", "prompt", "examples")
        needs(settings.example, "generate.seed.example", "question", "answer")
        needs(settings.rule, "generate.seed.rule", "rule")
        shown = "rule" if settings.source == "rules" else "example"
        writable(build, {f"generate.seed.{name}": getattr(settings, name) for name in ("say", shown)})

    @cached_property
    def similar(self) -> Similar:
        return Similar(self.build.tasks)

    @cached_property
    def _measured(self) -> frozenset[str]:
        """Questions that are measured on."""
        return frozenset(normal(question_of(task)) for task in self.build.heldout)

    # ---- before and while a group grows ------------------------------------------------------------------------

    def seed(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        return self.guide(group, n, view) if self.settings.when == "always" else [None] * n

    def more(self, group: Group, view: View) -> Allocation:
        if self.settings.when == "always" or not judged_wrong(group) or guided(group):
            return Allocation(0, "no help")
        if self._seed(group.task, view) is None:
            return Allocation(0, "nothing similar is solved")
        return Allocation(self.settings.rollouts(self.build.k), "all wrong")

    def guide(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        return [self._seed(group.task, view)] * n

    def settle(self, group: Group, view: View) -> Settled | None:
        return settled(group, view, self.settings, set(guided(group)), replace=self.settings.when == "all_wrong")

    # ---- what is said ------------------------------------------------------------------------------------------

    def _seed(self, task: Task, view: View) -> Seed | None:
        """None where there is nothing to say, or nothing that the model's tokenizer can write."""
        text, author, reason, source = self._rules(task) if self.settings.source == "rules" else self._examples(task, view)
        if not text:
            return None
        try:
            prompt = words_of(self.build, "generate.seed 'examples'").prompt(told(task, self.settings.say, examples=text))
        except DataError:  # an answer with characters that only the policy could write
            return None
        return instead(prompt, author, reason, self.settings, source)

    def _rules(self, task: Task) -> tuple[str, str, str, str | None]:
        s = self.settings
        chosen = [*s.rules.get("", ()), *(s.rules.get(task.category, ()) if task.category else ())]
        text = "".join(filled(s.rule, rule=rule) for rule in chosen)
        return text, "rules", f"{len(chosen)} rules", None

    def _examples(self, task: Task, view: View) -> tuple[str, str, str, str | None]:
        s, chosen = self.settings, list[tuple[Task, Artifact, float]]()
        solved = {name: found for name in view.memory.tasks() if (found := _right(view.memory.of_task(name))) is not None}
        for other, cosine in self.similar.nearest(task, solved, s.k + len(self._measured), s.least):
            if normal(question_of(other)) not in self._measured and len(chosen) < s.k:
                chosen.append((other, solved[other.id], cosine))
        words = words_of(self.build, "generate.seed 'examples'") if chosen else None
        parts = []
        for other, artifact, _ in chosen:
            assert words is not None and artifact.rollout is not None
            answer = words.text(artifact.rollout.own_tokens())[: s.longest]
            parts.append(filled(s.example, question=question_of(other), answer=answer))
        shown = ", ".join(f"{other.id} ({cosine:.2f})" for other, _, cosine in chosen)
        names = "+".join(artifact.id for _, artifact, _ in chosen)
        return "".join(parts), f"{AUTHOR}:{names}", f"{len(chosen)} examples: {shown}", chosen[0][1].id if chosen else None


def _right(known: Sequence[Artifact]) -> Artifact | None:
    """The newest verified answer."""
    right = (a for a in reversed(known) if a.kind is ArtifactKind.TRAJECTORY and a.signals.correct and a.rollout is not None)
    return next(right, None)
