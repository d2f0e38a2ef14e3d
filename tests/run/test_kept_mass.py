"""Truncated laws on the lab model, every next token enumerated: the kept mass in the metrics, the laws in the batch, and what is left
of both where nobody tells the mass."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gfcr.build import build
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.filter.assemble import build_batch
from gfcr.recipe import parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.sampling_metrics import sampling_metrics
from gfcr.types import GroupState, Normalise, SegmentKind

LAWS = {
    "top-p": {"top_p": 0.6},
    "top-k": {"top_k": 3, "temperature": 1.3},
    "min-p": {"min_p": 0.3, "temperature": 1.5},
    "all": {"temperature": 1.4, "top_k": 5, "top_p": 0.8, "min_p": 0.05, "banned": [3, 4]},
}


def played(**sampling):
    """(parts, its groups): 4 groups of 4 answers on the lab model under a law."""
    recipe = parse(
        {
            "tasks": {"pool": "D"},
            "generate": {"topology": {"name": "group", "k": 4}, "sampling": sampling, "max_tokens": 24},
            "filter": {"admission": {"drop_zero_variance": False}},
            "control": {"groups": 4, "select": {"name": "uniform"}},
            "budget": {"tokens": None, "steps": 1},
            "train": {"tis_cap": 2.0},
        }
    )
    parts = build(recipe, 0)
    view = View(0, 0, 0, parts.slots.posterior, parts.slots.memory)
    round_ = Round(0, parts.slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(parts.engine, parts.cascade, parts.slots.judge).drive(round_)
    groups = [group for group in round_.groups.values() if group.state is GroupState.CLOSED]
    assert len(groups) == 4
    return parts, round_, groups


def enumerated(model, rollout, law):
    """(log p of the untruncated law, kept mass) of each own token, float64[n], by going through the whole vocabulary."""
    path = rollout.path
    ids = np.concatenate([node.segment.ids for node in path])
    with torch.no_grad():
        logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double().numpy()
    whole, masses = [], []
    at = 0
    for node in path:
        for i, token in enumerate(node.segment.ids, at):
            if node.segment.kind is not SegmentKind.ACTION:
                continue
            row = logits[i - 1] / law.temperature
            p = np.exp(row - row.max())
            p /= p.sum()
            kept = {t for t in range(len(p)) if t not in law.banned}
            if law.top_k:
                kept = set(sorted(kept, key=lambda t: -p[t])[: law.top_k])
            total, nucleus, so_far = sum(p[t] for t in kept), set(), 0.0
            for t in sorted(kept, key=lambda t: -p[t]):
                if so_far >= law.top_p:
                    break
                nucleus.add(t)
                so_far += p[t] / total
            kept = {t for t in nucleus if p[t] >= law.min_p * max(p[u] for u in nucleus)}
            assert int(token) in kept
            whole.append(np.log(p[token]))
            masses.append(sum(p[t] for t in kept))
        at += len(node.segment)
    return np.array(whole), np.array(masses)


@pytest.mark.parametrize("name", LAWS)
def test_the_mean_kept_mass_and_the_batch_are_those_of_enumeration(name):
    parts, round_, groups = played(**LAWS[name])
    law = parts.slots.configure.how.sampling
    rollouts = [m.rollout for g in groups for m in g.fresh()]
    found = [enumerated(parts.trainer.model, rollout, law) for rollout in rollouts]
    for rollout, (whole, mass) in zip(rollouts, found):
        given = np.concatenate([s.logprobs for s in rollout.actions()])
        np.testing.assert_allclose(given, whole - np.log(mass), atol=1e-4)
    mean = np.concatenate([mass for _, mass in found]).mean()
    assert 0.3 < mean < 0.99
    assert sampling_metrics(groups)["kept_mass_mean"] == pytest.approx(mean, abs=1e-5)

    batch = round_.ready()
    rows = dict(zip(batch.rollout_ids, range(len(batch))))
    for rollout, (whole, _) in zip(rollouts, found):
        span = slice(batch.offsets[rows[rollout.id]], batch.offsets[rows[rollout.id] + 1])
        np.testing.assert_allclose(batch.behaviour[span][batch.rl_mask[span]], whole, atol=1e-4)
    assert parts.trainer.step(batch).ess > 1 - 1e-6


def without_mass(groups, of):
    """The groups as an engine gives them that does not tell the kept mass of the members `of` chooses."""
    for group in groups:
        for i, member in enumerate(group.fresh()):
            if of(i):
                path = tuple(
                    replace(
                        n, segment=replace(n.segment, tracks={k: t for k, t in n.segment.tracks.items() if k != "kept_mass"})
                    )
                    for n in member.rollout.path
                )
                member.rollout = replace(member.rollout, path=path)


def test_a_truncated_law_without_kept_mass_has_no_behaviour_and_no_ess():
    """The renormalised log-probabilities are those of another law than the trainer's; taken for them, weights are off by the mass."""
    parts, _, groups = played(**LAWS["top-p"])
    told = build_batch(groups, Normalise.TOKEN_MEAN, None, 0, 0)
    renormalised = np.concatenate([s.logprobs for g in groups for m in g.fresh() for s in m.rollout.actions()])
    assert np.exp(told.behaviour[told.rl_mask] - renormalised).min() < 0.7  # what weights would be off by

    without_mass(groups, of=lambda i: i % 2 == 0)
    some = build_batch(groups, Normalise.TOKEN_MEAN, None, 0, 0)
    known = ~np.isnan(some.behaviour)
    assert 0 < known.sum() < some.rl_mask.sum() and sampling_metrics(groups)["kept_mass_mean"] is not None
    np.testing.assert_array_equal(some.behaviour[known], told.behaviour[known])

    without_mass(groups, of=lambda i: True)
    none = build_batch(groups, Normalise.TOKEN_MEAN, None, 0, 0)
    assert np.isnan(none.behaviour).all() and sampling_metrics(groups)["kept_mass_mean"] is None
    stats = parts.trainer.step(none)
    assert stats.ess is None and stats.ratio == pytest.approx(1, abs=1e-6) and stats.updates > 0
