"""Trees against independent chains at equal decoded tokens, task by task, on the lab model before training.

    python -m bench trees [--pools D,B2] [--tasks 48] [--repeats 5] [--only treepo]

Each tree is held against as many independent answers to the same task as its tokens pay for at their mean length (the fraction by lot),
drawn anew from a pool of chains. Effective leaves, both from leaves that share beginnings: `kish` = n^2 / sum of the shares of
common own tokens over all pairs (2 shared / (length + length); a chain shares all with itself); `worth` = how many independent answers
would tell a task's chance of success as exactly: sum over tasks of p (1 - p) / sum of the variance of a tree's mean reward.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from bench.record import emit

SETTINGS: dict[str, str] = {
    "treepo k 12, segment 8": '{name = "treepo", k = 12, segment = 8, first = [2, 4]}',
    "treepo k 16, segment 6": '{name = "treepo", k = 16, segment = 6, first = [2, 4]}',
    "treepo k 16, segment 10": '{name = "treepo", k = 16, segment = 10, first = [2, 2]}',
    "treepo k 20, segment 10": '{name = "treepo", k = 20, segment = 10, first = [3, 3]}',
    "treepo k 16, softmax": '{name = "treepo", k = 16, segment = 8, first = [4, 4], budget = "softmax", prefer = "unlikely"}',
    "treepo k 16, min_logprob": '{name = "treepo", k = 16, segment = 8, first = [4, 4], divide = 1, fallback = "min_logprob"}',
    "treerl M 4, N 2, L 1": '{name = "treerl", trees = 4, forks = 2, continuations = 1, stop_words = ["#"]}',
    "treerl M 4, N 2, L 1, T 2": '{name = "treerl", trees = 4, forks = 2, continuations = 2, stop_words = ["#"]}',
    "treerl M 4, N 2, L 2": '{name = "treerl", trees = 4, forks = 2, rounds = 2, continuations = 1, stop_words = ["#"]}',
    "treerl M 4, N 3, L 2": '{name = "treerl", trees = 4, forks = 3, rounds = 2, continuations = 1, stop_words = ["#"]}',
    "treerpo N 2, D 4, step 10": '{name = "treerpo", children = 2, depth = 4, step = 10}',
    "treerpo N 2, D 4, step 16": '{name = "treerpo", children = 2, depth = 4, step = 16}',
    "best-first, segment, value": '{name = "best-first", k = 16, segment = 8, first = 3, score = "value"}',
    "best-first, surprisal, value": '{name = "best-first", k = 16, segment = 8, first = 4, fork = "surprisal", score = "value"}',
    "best-first, segment, entropy": '{name = "best-first", k = 16, segment = 8, first = 3, score = "entropy"}',
}
GROUP = '{name = "group", k = 16}'
CHAINS = 64
"""Independent answers per task that the comparison draws from."""


@dataclass(frozen=True)
class Grown:
    """One group: what it decoded, and its answers."""

    task: str
    tokens: int
    right: tuple[bool, ...]
    texts: tuple[str, ...]
    lengths: tuple[int, ...]
    shares: float
    """Sum over pairs of leaves of the share of common own tokens."""


class Lab:
    """The lab model's engine, and rounds of any topology over the same tasks."""

    def __init__(self, pool: str, tasks: int) -> None:
        from gfcr.build import build
        from gfcr.recipe import load

        self.pool, self.load = pool, load
        self.parts = build(load("grpo", [f"tasks.pool={pool}"]), 0)
        self.tasks = self.parts.tasks[:tasks]

    def rounds(self, topology: str, repeats: int) -> Iterator[list[Grown]]:
        from gfcr.build import make_slots, round_settings, tied
        from gfcr.context import Build, View
        from gfcr.drivers.wave import WaveDriver
        from gfcr.round import Round
        from gfcr.run.budget import Budget

        parts = self.parts
        set_ = [f"tasks.pool={self.pool}", f"generate.topology={topology}", f"control.groups={len(self.tasks)}"]
        recipe = self.load("grpo", [*set_, "filter.admission.drop_zero_variance=false"])
        decode = parts.renderer.decoder()
        context = Build(0, self.tasks, len(self.tasks), recipe.k, recipe.generate.max_tokens, {}, decode)
        slots = tied(make_slots(recipe, context), parts.cascade)
        settings = round_settings(recipe, parts.engine.capabilities().max_length)
        for number in range(repeats):
            view = View(number, 0, 0, slots.posterior, slots.memory)
            round_ = Round(number, slots, settings, view, Budget(None), parts.renderer, parts.stop)
            before = parts.engine.usage().decoded
            WaveDriver(parts.engine, parts.cascade).drive(round_)
            grown = [self._grown(group, decode) for group in round_.groups.values()]
            assert sum(g.tokens for g in grown) + sum(round_.failed.values()) == parts.engine.usage().decoded - before
            waste = sum(round_.failed.values()) / len(grown)  # given up: paid by every group alike
            yield [Grown(g.task, round(g.tokens + waste), g.right, g.texts, g.lengths, g.shares) for g in grown]

    @staticmethod
    def _grown(group: Any, decode: Any) -> Grown:
        from gfcr.types import LossRole

        members = [m for m in group.members.values() if m.signals.correct is not None]
        nodes = [{n.id: len(n.segment) for n in m.rollout.path if n.segment.role is LossRole.RL} for m in members]
        lengths = [sum(own.values()) for own in nodes]
        shares = sum(
            2 * sum(a[i] for i in a.keys() & b.keys()) / (x + y) for a, x in zip(nodes, lengths) for b, y in zip(nodes, lengths)
        )
        texts = tuple(decode(m.rollout.own_tokens()) for m in members)
        tokens = sum(m.rollout.cost.generated for m in group.members.values())
        return Grown(group.task.id, tokens, tuple(bool(m.signals.correct) for m in members), texts, tuple(lengths), shares)


def pass_at(right: Sequence[bool], k: int) -> float | None:
    """Chance that one of k of them is right, over all choices of k; None with fewer."""
    n, c = len(right), sum(right)
    return None if n < k else 1 - comb(n - c, k) / comb(n, k)


def as_many(chains: Grown, tokens: int, rng: np.random.Generator) -> Grown:
    """Drawn chains, as many as `tokens` pay for at the task's mean length (the fraction by lot). Not one after the other until the tokens
    are spent: the last one would be a short one more often than not."""
    n = tokens * len(chains.lengths) / sum(chains.lengths)
    taken = rng.permutation(len(chains.lengths))[: int(n) + (rng.random() < n % 1)].tolist()
    lengths = tuple(chains.lengths[i] for i in taken)
    right, texts = tuple(chains.right[i] for i in taken), tuple(chains.texts[i] for i in taken)
    return Grown(chains.task, sum(lengths), right, texts, lengths, float(len(taken)))


def figures(groups: Sequence[Grown]) -> dict[str, float]:
    """What is read off groups of answers."""
    leaves, tokens = sum(len(g.right) for g in groups), sum(g.tokens for g in groups)
    fours = [p for g in groups if (p := pass_at(g.right, 4)) is not None]
    return {
        "leaves": leaves / len(groups),
        "tokens": tokens / len(groups),
        "tokens_per_leaf": tokens / leaves,
        "right": sum(map(sum, (g.right for g in groups))) / leaves,
        "informative": float(np.mean([0 < sum(g.right) < len(g.right) for g in groups])),
        "solved": float(np.mean([any(g.right) for g in groups])),
        "pass_at_4": float(np.mean(fours)) if fours else float("nan"),
        "distinct": float(np.mean([len(set(g.texts)) for g in groups])),
        "kish": float(np.mean([len(g.right) ** 2 / g.shares for g in groups if g.right])),
    }


def worth(groups: Sequence[Grown], chance: Mapping[str, float]) -> float:
    """Independent answers that would tell a task's chance as exactly as one group does (several groups per task)."""
    means: dict[str, list[float]] = {}
    for g in groups:
        if g.right:
            means.setdefault(g.task, []).append(float(np.mean(g.right)))
    spread = {task: float(np.var(values, ddof=1)) for task, values in means.items() if len(values) > 1}
    total = sum(spread.values())
    return sum(chance[t] * (1 - chance[t]) for t in spread) / total if total else float("nan")


def compare(lab: Lab, topology: str, chains: Mapping[str, Grown], repeats: int) -> dict[str, Any]:
    """A topology's figures, those of independent chains for the same tokens, and their ratio in leaves per token."""
    rng = np.random.default_rng(0)
    trees = [g for groups in lab.rounds(topology, repeats) for g in groups]
    paid = [as_many(chains[g.task], g.tokens, rng) for g in trees]
    chance = {task: float(np.mean(c.right)) for task, c in chains.items()}
    own, other = figures(trees), figures([p for p in paid if p.right])
    own["worth"], other["worth"] = worth(trees, chance), worth(paid, chance)
    gap = np.array([(0 < sum(t.right) < len(t.right)) - float(0 < sum(p.right) < len(p.right)) for t, p in zip(trees, paid)])
    return {
        "topology": topology,
        "tree": own,
        "chains": other,
        "leaves_per_token": other["tokens_per_leaf"] / own["tokens_per_leaf"],
        "informative_gap": float(gap.mean()),
        "informative_gap_se": float(gap.std(ddof=1) / len(gap) ** 0.5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", default="D,B2")
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="settings whose name holds this")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for pool in args.pools.split(","):
        lab = Lab(pool, args.tasks)
        chains: dict[str, Grown] = {}
        for groups in lab.rounds(GROUP, CHAINS // 16):
            for g in groups:
                old = chains.get(g.task)
                chains[g.task] = (
                    g
                    if old is None
                    else Grown(
                        g.task, old.tokens + g.tokens, old.right + g.right, old.texts + g.texts, old.lengths + g.lengths, 0.0
                    )
                )
        found[pool] = {}
        for name, topology in SETTINGS.items():
            if args.only in name:
                one = found[pool][name] = compare(lab, topology, chains, args.repeats)
                t, c = one["tree"], one["chains"]
                print(
                    f"{pool} {name}: x{one['leaves_per_token']:.2f} leaves, informative {t['informative']:.3f} / {c['informative']:.3f}"
                    f" ({one['informative_gap']:+.3f} +- {one['informative_gap_se']:.3f}), worth {t['worth']:.1f} / {c['worth']:.1f}",
                    flush=True,
                )
    emit("trees", {"tasks": args.tasks, "repeats": args.repeats, "pools": found})


if __name__ == "__main__":
    main()
