"""Questions to a judge model through any engine.

Invariants: replies are greedy, so a question has one reply; questions asked at the same time, from whatever thread, run as one
batch; every loop is bounded; an engine's failure is no reply, with its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gfcr.engine.contract import Chunk, Engine, Request, StopSpec
from gfcr.types import Node, Sampling, Segment, SegmentKind, StopReason

GREEDY = Sampling(temperature=0.0)


@dataclass(slots=True, eq=False)
class Reply:
    """What the judge said to one question."""

    ids: list[int] = field(default_factory=list)
    """Its tokens, without the end token."""
    stop: StopReason | None = None
    """None when it gave none."""
    error: str = ""
    """Why it gave none."""
    tokens: int = 0
    """Read and written."""


@dataclass(slots=True, eq=False)
class _Question:
    prompt: np.ndarray
    reply: Reply | None = None


class Asker:
    """Asks one engine, which nobody else uses; from any number of threads."""

    def __init__(self, engine: Engine, stop: StopSpec, max_tokens: int) -> None:
        """`max_tokens`: longest reply."""
        self.engine, self.stop, self.max_tokens = engine, stop, max_tokens
        self.room = engine.capabilities().max_length - max_tokens
        """Longest prompt in tokens."""
        self._turn, self._waiting, self._lock, self._asked = threading.Lock(), list[_Question](), threading.Lock(), 0

    def ask(self, prompts: Sequence[Sequence[int]]) -> list[Reply]:
        """The replies, in order."""
        questions = [_Question(np.asarray(prompt, np.int32)) for prompt in prompts]
        with self._lock:
            self._waiting += questions
        with self._turn:  # whoever gets the turn answers for all that wait
            with self._lock:
                batch = [q for q in self._waiting if q.reply is None]
                self._waiting = []
            if batch:
                self._answer(batch)
        return [q.reply or Reply(error="nobody answered") for q in questions]

    def _answer(self, batch: list[_Question]) -> None:
        live: dict[str, _Question] = {}
        for question in batch:
            self._asked += 1
            name = f"judge-{self._asked}"
            node = Node(name, None, Segment(SegmentKind.PROMPT, question.prompt))
            try:
                self.engine.submit(Request(name, (node,), GREEDY, self.max_tokens, key=0, stop=self.stop))
            except ValueError as error:
                question.reply = Reply(error=str(error))
                continue
            question.reply = Reply(tokens=len(question.prompt))
            live[name] = question
        try:
            for _ in range(len(live) * (self.max_tokens + 1) + 1):
                if not self.engine.live():
                    break
                for chunk in self.engine.step():
                    self._take(chunk, live)
        except Exception as error:  # the engine is at fault, for all that have no reply yet
            self._give_up(live, f"{type(error).__name__}: {error}")
            return
        self.engine.prefilled()  # nobody else counts these
        self._give_up(live, "the engine did not finish it")

    def _take(self, chunk: Chunk, live: dict[str, _Question]) -> None:
        question = live.get(chunk.request)
        if question is None or question.reply is None:
            return
        reply = question.reply
        reply.ids += chunk.ids.tolist()
        reply.tokens += len(chunk.ids) + chunk.lost
        if chunk.stop is None:
            return
        del live[chunk.request]
        reply.stop = chunk.stop
        if chunk.stop is StopReason.EOS and reply.ids and reply.ids[-1] in self.stop.eos:
            reply.ids.pop()
        if chunk.stop is StopReason.FAILED:
            reply.error = chunk.error or "the engine failed it"

    def _give_up(self, live: dict[str, _Question], why: str) -> None:
        for name, question in live.items():
            try:
                self.engine.cancel(name)
            except Exception:  # it is past that
                why += "; it cannot be cancelled either"
            assert question.reply is not None
            question.reply.error = why
        live.clear()
