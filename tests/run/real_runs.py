"""Real runs for tests: the lab model and the real session, small; and an engine that fails on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import resume

from gfcr.engine.contract import Chunk, Engine, Request, ScoreItem
from gfcr.recipe import load
from gfcr.run.session import Session
from gfcr.types import StopReason


def create(path: Path, *overrides: str, recipe: str = "four_modules", seed: int = resume.SEED) -> Session:
    """A small run, not yet running."""
    import torch

    torch.set_num_threads(1)
    return Session.create(load(recipe, [*resume.small(path.parent), *overrides]), seed, path)


def through(session: Session, engine: Engine) -> None:
    """Let the session use this engine."""
    session.parts.engine = session.driver.engine = engine


class Breaking:
    """An engine that refuses every `refuse`th request and reports every `fail`th finished stream as failed."""

    def __init__(self, inner: Engine, refuse: int = 0, fail: int = 0) -> None:
        self.inner, self.refuse, self.fail = inner, refuse, fail
        self.asked = self.ended = self.refused = self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, request: Request) -> None:
        self.asked += 1
        if self.refuse and self.asked % self.refuse == 0:
            self.refused += 1
            raise ValueError("refused by the test")
        self.inner.submit(request)

    def step(self, tokens: int | None = None) -> list[Chunk]:
        return [self._broken(chunk) for chunk in self.inner.step(tokens)]

    def _broken(self, chunk: Chunk) -> Chunk:
        if chunk.stop is None:
            return chunk
        self.ended += 1
        if not self.fail or self.ended % self.fail:
            return chunk
        self.failed += 1
        return replace(chunk, stop=StopReason.FAILED)


class Counter:
    """Counts tokens inside an embedded engine's model, by hooks on its layers and its head."""

    def __init__(self, engine: Any) -> None:
        """`engine`: an EmbeddedEngine."""
        self.layers = self.heads = self.scored = self.scored_heads = 0
        self._scoring = False
        self._score = engine.score
        engine.score = self.score
        model = engine._model
        model.base.register_forward_pre_hook(self._through, with_kwargs=True)
        if model.lean is not None:  # the layers run without their modules
            self._hidden, model.lean.hidden = model.lean.hidden, self._lean
        model.head_layer.register_forward_hook(self._head)

    def score(self, items: Sequence[ScoreItem]) -> Any:
        self._scoring = True
        try:
            return self._score(items)
        finally:
            self._scoring = False

    def _through(self, module: Any, arguments: Any, named: dict[str, Any]) -> None:
        self._count(named["position_ids"])

    def _lean(self, ids: Any, positions: Any, work: Any) -> Any:
        self._count(positions)
        return self._hidden(ids, positions, work)

    def _count(self, positions: Any) -> None:
        """Padding repeats the last position of its row."""
        count = int((positions[:, 1:] > positions[:, :-1]).sum()) + len(positions)
        if self._scoring:
            self.scored += count
        else:
            self.layers += count

    def _head(self, module: Any, arguments: Any, output: Any) -> None:
        count = output.shape[:-1].numel()
        if self._scoring:
            self.scored_heads += count
        else:
            self.heads += count
