"""Ten training steps over a vLLM server, watched after every step."""

from __future__ import annotations

import numpy as np
from http_cases import ids_of, plain_gap, request, run

from gfcr.recipe import load
from gfcr.run.seeds import stream_key
from gfcr.run.session import Session


class Watched:
    """A session whose engine samples after each step, beside the run, for comparison with the trainer's own forward pass."""

    def __init__(self, path, recipe: str, overrides: list[str], contexts: list[list[int]], n: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.rows: list[dict] = []
        self.gaps: list[dict[float, float]] = []
        self.beside = 0
        """Tokens sampled for the comparison."""
        self.prints: list[str] = []
        self.session = Session.create(load(recipe, overrides), 0, path, self.watch)
        self.engine, self.trainer = self.session.parts.engine, self.session.parts.trainer
        self.contexts, self.n = contexts, n

    def watch(self, row: dict) -> None:
        self.rows.append(row)
        gaps = {}
        for temperature in (0.7, 1.0):
            asked = [
                request(
                    f"w{row['step']}.{i}.{temperature}", ids, self.n, temperature, stream_key(row["step"], "watch", i), eos=()
                )
                for i, ids in enumerate(self.contexts)
            ]
            parts = run(self.engine, asked)
            self.beside += sum(len(ids_of(chunks)) for chunks in parts.values())
            assert {c.version for chunks in parts.values() for c in chunks} == {row["version"]}
            gaps[temperature] = plain_gap(self.trainer.model.eval(), asked, parts)
        self.gaps.append(gaps)
        self.engine.prefilled()

    def go(self, server) -> dict[str, int]:
        """Run to the end; what the server counted, beside what we did."""
        names = ("generation_tokens_total", "prompt_tokens_total")
        before = {name: server.counter(name) for name in names}
        usage, aside = self.engine.usage(), self.engine.aside
        closing, self.session.close = self.session.close, lambda: None
        try:
            assert self.session.run() == "steps"
            self.last = self.engine.losses()  # of the samples after the last commit
            after, counted = self.engine.usage(), {name: server.counter(name) - before[name] for name in names}
            aside = self.engine.aside - aside
        finally:
            closing()
        total = self.session.ledger.total
        context = after.prefilled + after.cached - usage.prefilled - usage.cached + after.scored - usage.scored - aside
        return {
            "server generated": counted["generation_tokens_total"],
            "ledger generated": total.generated + total.evaluated + aside + self.beside + sum(self.last.tokens.values()),
            "server prompts": counted["prompt_tokens_total"],
            "ours prompts": context,
        }

    @property
    def worst(self) -> dict[float, float]:
        return {t: float(np.max([gaps[t] for gaps in self.gaps])) for t in (0.7, 1.0)}
