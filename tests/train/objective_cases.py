"""Batches and trainers of every loss, for the tests of objectives."""

from dataclasses import replace

import numpy as np
from train_cases import batch_of, lab_model, paired, rewarded

from gfcr.train.settings import LossSettings, TrainSettings
from gfcr.train.trainer import Trainer
from gfcr.types.batch import Normalise

PAIRS = [(0, 1), (2, 3, 0.5), (0, 3, 2.0)]
SEQUENCE = {"normalise": Normalise.SEQUENCE_MEAN}


def policy(rows, **more):
    return batch_of(rows, **more)


def critic(rows, **more):
    return rewarded(rows, **more)


def pairs(rows, **more):
    return paired(rows, PAIRS, **more)


def taught(rows, **more):
    """Cross-entropy with weights that differ, on answers alone."""
    return batch_of(
        [
            r | {"rl_mask": False, "ce_weights": np.where(np.arange(len(r["ids"])) < r["prompt"], 0.0, 0.3 + i)}
            for i, r in enumerate(rows)
        ],
        **more,
    )


def mixed(rows, **more):
    """Pairs with a cross-entropy weight on the chosen answers (IRPO)."""
    made = pairs(rows, **more)
    chosen = np.isin(made.row_of_token(), [0, 2])
    return replace(made, ce_weights=np.where(made.pair_mask & chosen, 0.7, 0.0).astype(np.float32))


def trainer(loss, train, model=None, **more):
    return Trainer(model or lab_model(), TrainSettings(**train | more), run_seed=5, loss=LossSettings(**loss))
