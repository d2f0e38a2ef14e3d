"""The gradient of tree credit: shared tokens once with the sum of the leaves' credit, or one row per leaf."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from train_cases import lab_model

from gfcr.context import Build
from gfcr.filter.assemble import build_batch
from gfcr.filter.credit.tree import TreePO, TreeRL, TreeRPO
from gfcr.train.forward import PolicyForward
from gfcr.train.micro import micro_batches
from gfcr.types import Normalise
from grove_cases import grove_lab, grown
from tree_cases import TOY, credited, tree

GROVES = json.loads((Path(__file__).parents[1] / "golden" / "groves.json").read_text())["cases"]
BUILD = Build(0, (), 1, 4, 16)


def gradient(batch):
    """Of sum(weight * advantage * log-probability) over the batch, float64, as one vector."""
    model = lab_model().double()
    policy = PolicyForward(model)
    weights = np.where(
        batch.rl_mask, batch.token_weights() * np.nan_to_num(batch.advantages) * np.nan_to_num(batch.rl_weights), 0.0
    )
    total = torch.zeros((), dtype=torch.float64)
    for micro in micro_batches(batch, batch.rl_mask, 10**6):
        logp = policy(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens])[0]
        total = total + (torch.from_numpy(weights[micro.tokens]) * logp.double()).sum()
    total.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).numpy()


@pytest.mark.parametrize("credit", [TreeRL, TreeRPO, TreePO])
@pytest.mark.parametrize(("normalise", "constant"), [(Normalise.TOKEN_MEAN, None), (Normalise.SEQUENCE_MEAN, None)])
def test_packed_or_a_row_per_leaf(credit, normalise, constant):
    groups = [tree(TOY, "a"), tree([(3, [(2, [0.0, 1.0, 1.0]), 0.0]), 1.0], "b")]
    for made in groups:
        credited(made, credit(credit.Settings(), BUILD))
    rows, packed = (gradient(build_batch(groups, normalise, constant, 0, 0, packed=p)) for p in (False, True))
    assert np.abs(rows).max() > 1e-3
    assert packed == pytest.approx(rows, abs=1e-6 * np.abs(rows).max())


@pytest.mark.parametrize("case", GROVES, ids=lambda c: c["topology"]["name"])
def test_trees_that_topologies_grew(case):
    """From recipe to batch; the packed row holds each decoded token once."""
    made = grove_lab(case["topology"], case["script"], filter={"credit": {"name": case["topology"]["name"]}})
    _, group = grown(made)
    rows, packed = (build_batch([group], Normalise.TOKEN_MEAN, None, 0, 0, packed=p) for p in (False, True))
    assert packed.rl_mask.sum() == case["decoded"] < rows.rl_mask.sum()
    by_leaf, summed = gradient(rows), gradient(packed)
    assert np.abs(by_leaf).max() > 1e-3
    assert summed == pytest.approx(by_leaf, abs=1e-6 * np.abs(by_leaf).max())
