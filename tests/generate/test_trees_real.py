"""Trees on the lab model: what is shared is computed once, and every log-probability is the model's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gfcr.build import build
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import ScoreItem
from gfcr.recipe import load
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.types import LossRole, path_ids

BLOCK = 32
"""Positions of a block of the engine's pool."""
TREES = {
    "treepo": "{name = 'treepo', k = 8, segment = 8, first = [2, 3]}",
    "treerl": "{name = 'treerl', trees = 2, forks = 2, rounds = 2, continuations = 1}",
    "treerpo": "{name = 'treerpo', children = 2, depth = 3, step = 12}",
}


class Watching:
    """An engine that remembers its requests and what each computed of its context."""

    def __init__(self, inner):
        self.inner, self.requests, self.costs = inner, {}, {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, request):
        self.inner.submit(request)
        self.requests[request.id] = request

    def prefilled(self):
        costs = self.inner.prefilled()
        for cost in costs:
            done = self.costs.get(cost.request, (0, 0))
            self.costs[cost.request] = done[0] + cost.computed, done[1] + cost.cached
        return costs


def round_of(topology, *overrides, base="grpo"):
    torch.set_num_threads(1)
    recipe = load(base, ["tasks.pool=D", f"generate.topology={topology}", "control.groups=6", *overrides])
    parts = build(recipe, 3)
    engine = Watching(parts.engine)
    view = View(0, 0, 3, parts.slots.posterior, parts.slots.memory)
    round_ = Round(0, parts.slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(engine, parts.cascade, None, parts.host).drive(round_)
    return round_, engine


@pytest.mark.parametrize("name", TREES)
def test_a_fork_computes_no_more_than_a_block_and_a_token_is_decoded_once(name):
    round_, engine = round_of(TREES[name])
    forks = [r for r in engine.requests.values() if r.fork_of]
    assert len(forks) > 6
    for request in forks:
        context = len(path_ids(request.path))
        computed, cached = engine.costs[request.id]
        assert computed + cached == context and computed <= BLOCK, (request.fork_at, context)
    usage = engine.usage()
    groups = round_.groups.values()
    nodes = {
        n.id: n.segment for g in groups for m in g.members.values() for n in m.rollout.path if n.segment.role is LossRole.RL
    }
    assert (
        usage.decoded
        == sum(map(len, nodes.values()))
        == sum(m.rollout.cost.generated for g in groups for m in g.members.values())
    )
    assert usage.prefilled == sum(m.rollout.cost.prefilled for g in groups for m in g.members.values())
    assert usage.cached == sum(m.rollout.cost.cached for g in groups for m in g.members.values())
    leaves = [m.rollout for g in groups for m in g.members.values()]
    assert usage.decoded < 0.95 * sum(r.response_length for r in leaves)


@pytest.mark.parametrize("name", TREES)
def test_the_log_probabilities_of_a_leaf_are_those_of_its_whole_text(name):
    round_, engine = round_of(TREES[name], "generate.sampling.temperature=0.8")
    leaves = [m.rollout for g in round_.groups.values() for m in g.members.values()]
    items, sampled = [], []
    for i, rollout in enumerate(leaves):
        start = len(rollout.path[0].segment)
        items.append(
            ScoreItem(
                str(i), path_ids(rollout.path), ((start, start + rollout.response_length, next(rollout.actions()).sampling),)
            )
        )
        sampled.append(np.concatenate([s.logprobs for s in rollout.actions()]))
    for score, ours in zip(engine.score(items), sampled, strict=True):
        assert score.logprobs[-len(ours) :] == pytest.approx(ours, abs=5e-5)


def test_trees_of_turns_compute_a_step_once_and_their_log_probabilities_are_the_models_own():
    topology = "{name = 'tree-grpo', expand = 3, rounds = 2, keep = 4, turns = 12, turn_tokens = 4}"
    round_, engine = round_of(topology, base="tree_grpo")
    leaves = [m.rollout for g in round_.groups.values() for m in g.members.values()]
    assert len(leaves) == 6 * 8
    forks = [r for r in engine.requests.values() if r.fork_of]
    read = sum(len(n.segment) for r in leaves for n in r.path if n.segment.author == "environment")
    assert len(forks) > 50 and read > 50
    for request in forks:
        context = len(path_ids(request.path))
        computed, cached = engine.costs[request.id]
        assert computed + cached == context and computed <= BLOCK, (request.fork_at, context)
    usage, booked = engine.usage(), sum(r.cost.generated for r in leaves)
    assert usage.decoded == booked + round_.failed["pruned"] and round_.failed["pruned"] > 0
    assert usage.prefilled == sum(r.cost.prefilled for r in leaves) + round_.failed_context.prefilled
    assert usage.decoded < 0.9 * sum(r.response_length for r in leaves) * 7 / 4  # seven chains a tree, four leaves kept
    items = []
    for i, rollout in enumerate(leaves):
        start, end = len(rollout.path[0].segment), len(path_ids(rollout.path))
        items.append(ScoreItem(str(i), path_ids(rollout.path), ((start, end, next(rollout.actions()).sampling),)))
    for score, rollout in zip(engine.score(items), leaves, strict=True):
        own = np.concatenate([np.full(len(n.segment), n.segment.role is LossRole.RL) for n in rollout.path])
        sampled = np.concatenate([s.logprobs for s in rollout.actions()])
        assert score.logprobs[own] == pytest.approx(sampled, abs=5e-5)
