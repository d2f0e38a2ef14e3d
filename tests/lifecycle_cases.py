"""A round without a model: lab tasks, an engine that says what a script tells it, and one call from recipe to `Batch`.

A script gives, per prompt and per answer asked for it, one letter: `r` right (8 tokens), `w` wrong (4), `i` without a final pair
(refused by the format gate), `t` cut by the limit, `f` broken by the engine, `l` lost by it; or a text after `=`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gfcr.build import make_cascade, make_slots, round_settings, tied
from gfcr.context import Build, View, Words
from gfcr.domains.programs.tokenizer import END_ID, decode, encode_answer, encode_prompt
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Capabilities, Chunk, Prefilled, Request, Score, ScoreItem, StopSpec, Usage
from gfcr.filter.cascade import Cascade
from gfcr.recipe import Recipe, parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.slots import Slots
from gfcr.types import Batch, Segment, SegmentKind, StopReason, Task, path_ids

Script = Mapping[str, str] | Callable[[str, int], str] | str
LENGTHS = {"r": 8, "w": 4, "i": 2}
SCORED = -0.75
"""Every log-probability the engine gives when it scores."""


def tasks(n: int, start: int = 0) -> list[Task]:
    """One-step programs `a+?xy`; the right final pair is (x + y) mod 7, y."""
    out = []
    for i in range(start, start + n):
        x, y = divmod(i, 7)
        out.append(Task("programs", f"a+?{x}{y}", {"final": f"{(x + y) % 7}{y}"}, category="one"))
    return out


def answer_text(prompt: str, letter: str) -> str:
    x, y = int(prompt[-2]), int(prompt[-1])
    final = f"{(x + y) % 7}{y}"
    return {"r": f"a+{final}#{final}", "w": f"#{(x + y + 1) % 7}{y}", "i": "a"}[letter]


class ScriptEngine:
    """Answers by script; log-probabilities are -0.1 times the answer's position; counts what went through it."""

    features = frozenset({"score", "cancel", "versions", "deterministic", "laws"})

    def __init__(self, script: Script, max_length: int = 256) -> None:
        self.script, self.max_length = script, max_length
        self.asked: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.scored: list[ScoreItem] = []
        self.decoded = 0
        self._said: dict[str, str] = {}
        self._told: Counter[str] = Counter()
        self._queue: list[Request] = []
        self._prefilled: list[Prefilled] = []

    def capabilities(self) -> Capabilities:
        return Capabilities("script", self.features, self.max_length, 37)

    def submit(self, request: Request) -> None:
        ids = path_ids(request.path)
        if len(ids) + request.max_new_tokens > self.max_length:
            raise ValueError(f"{len(ids)} tokens + {request.max_new_tokens} exceed {self.max_length}")
        prompt = decode(list(request.path[0].segment.ids))
        if request.id not in self._said:
            self._said[request.id] = self._letter(prompt, self.asked[prompt])
            self.asked[prompt] += 1
        self.requests.append(request)
        self._queue.append(request)
        self._prefilled.append(Prefilled(request.id, len(ids), 0))

    def _letter(self, prompt: str, nth: int) -> str:
        if callable(self.script):
            return self.script(prompt, nth)
        line = self.script if isinstance(self.script, str) else self.script[prompt]
        return line[nth % len(line)]

    def step(self, tokens: int | None = None) -> list[Chunk]:
        """The next `tokens` tokens of every live request, or all of them."""
        out, alive = [], []
        for request in self._queue:
            ids, stop = self._answer(request)
            if ids is None:
                continue
            start = self._told[request.id]
            end = len(ids) if tokens is None else min(len(ids), start + tokens)
            self._told[request.id] = end
            self.decoded += end - start
            logprobs = (-0.1 * np.arange(start + 1, end + 1)).astype(np.float32)
            tracks = {"entropy": np.full(end - start, 0.5, np.float32)}
            out.append(
                Chunk(request.id, np.asarray(ids[start:end], np.int32), logprobs, 3, tracks, stop if end == len(ids) else None)
            )
            if end < len(ids):
                alive.append(request)
        self._queue = alive
        return out

    def _answer(self, request: Request) -> tuple[list[int] | None, StopReason | None]:
        letter, prompt = self._said[request.id], decode(list(request.path[0].segment.ids))
        if letter == "l":
            return None, None
        if letter == "t":
            return encode_answer("a" * request.max_new_tokens), StopReason.MAX_TOKENS
        if letter == "f":
            return encode_answer("aaa"), StopReason.FAILED
        text = letter[1:] if letter.startswith("=") else answer_text(prompt, letter)
        return [*encode_answer(text), END_ID], StopReason.EOS

    def prefilled(self) -> list[Prefilled]:
        out, self._prefilled = self._prefilled, []
        return out

    def cancel(self, request: str) -> Chunk | None:
        self._queue = [r for r in self._queue if r.id != request]
        return None

    def live(self) -> int:
        return len(self._queue)

    def score(self, items: Sequence[ScoreItem]) -> list[Score]:
        self.scored += items
        out = []
        for item in items:
            logprobs = np.full(len(item.ids), np.nan, np.float32)
            for start, end, _ in item.spans:
                logprobs[start:end] = SCORED
            out.append(Score(item.id, logprobs, logprobs))
        return out

    def load(self, ref: Any, tensors: Any = None) -> None: ...

    def fingerprint(self) -> str:
        return "script"

    def usage(self) -> Usage:
        return Usage(decoded=self.decoded)

    def close(self) -> None: ...


def render(task: Task) -> Segment:
    assert isinstance(task.prompt, str)
    return Segment(SegmentKind.PROMPT, np.asarray(encode_prompt(task.prompt), np.int32))


def decoder(ids: np.ndarray) -> str:
    return decode([int(i) for i in ids])


@dataclass
class Lab:
    """The parts of one recipe that live as long as a run."""

    recipe: Recipe
    tasks: list[Task]
    engine: ScriptEngine
    seed: int = 0
    limit: int | None = None
    number: int = 0
    """Of the next round."""
    words: Words | None = None
    """Texts as tokens, for methods that write some."""
    heldout: Sequence[Task] = ()
    dialogue: Any = None
    """Turns of a task, begun (Build.dialogue)."""
    slots: Slots = field(init=False)
    cascade: Cascade = field(init=False)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        control, longest = self.recipe.control, self.recipe.generate.max_tokens
        told = {"words": self.words, "heldout": self.heldout, "dialogue": self.dialogue}
        build = Build(self.seed, self.tasks, control.groups, self.recipe.k, longest, {}, decoder, **told)
        self.cascade = make_cascade(self.recipe, build)
        self.slots = tied(make_slots(self.recipe, build), self.cascade)
        self.budget = Budget(self.limit)

    def round(self) -> Round:
        """The next round, not yet driven."""
        over = self.budget.over(self.number, self.recipe.budget.steps)
        view = View(self.number, self.number, self.seed, self.slots.posterior, self.slots.memory, over)
        settings = round_settings(self.recipe, self.engine.capabilities().max_length)
        made = Round(self.number, self.slots, settings, view, self.budget, render, StopSpec((END_ID,)))
        self.number += 1
        return made

    def drive(self) -> Round:
        """The next round, driven to its end."""
        made = self.round()
        WaveDriver(self.engine, self.cascade, self.slots.judge).drive(made)
        return made


def lab(
    script: Script,
    n_tasks: int = 1,
    k: int = 4,
    limit: int | None = None,
    seed: int = 0,
    max_length: int = 256,
    of: list[Task] | None = None,
    words: Words | None = None,
    heldout: Sequence[Task] = (),
    dialogue: Any = None,
    **sections: Mapping[str, Any],
) -> Lab:
    """A lab with one group per task and one-token-per-letter answers of at most 16 tokens, unless `sections` say otherwise."""
    data: dict[str, Any] = defaultdict(dict, {name: dict(section) for name, section in sections.items()})
    data["generate"] = {"topology": {"name": "group", "k": k}, "max_tokens": 16, **data["generate"]}
    data["control"] = {"groups": n_tasks, "min_groups": 1, **data["control"]}
    recipe, engine = parse({**data, "engine": {"name": "scripted"}}), ScriptEngine(script, max_length)
    return Lab(
        recipe, tasks(n_tasks) if of is None else of, engine, seed, limit, words=words, heldout=heldout, dialogue=dialogue
    )


def batch_of(round_: Round) -> Batch:
    batch = round_.ready()
    assert batch is not None, round_.reason
    return batch


def row_advantages(batch: Batch) -> list[float]:
    """The one advantage of each row; fails when a row's RL tokens differ."""
    out = []
    for row in range(len(batch)):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        values = np.unique(batch.advantages[span][batch.rl_mask[span]])
        assert len(values) == 1, values
        out.append(float(values[0]))
    return out


def letters(round_: Round, batch: Batch) -> list[str]:
    """`r` or `w` of each row, by its member's verdict."""
    members = {i: m for g in round_.groups.values() for i, m in g.members.items()}
    return ["r" if members[i].signals.correct else "w" for i in batch.rollout_ids]
