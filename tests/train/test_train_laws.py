"""What a batch says of tokens sampled under truncating and penalising laws, against the trainer's own forward pass (TRL#6789)."""

import copy

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from gfcr.asks import GenerateAsk
from gfcr.drivers.assemble import Growing
from gfcr.engine.contract import Request
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.filter.assemble import build_batch
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer
from gfcr.types import Credit, Group, GroupState, Member, Node, Normalise, Sampling, Segment, SegmentKind, Task

TRUNCATING = [
    Sampling(top_p=0.7),
    Sampling(temperature=0.7, top_k=4),
    Sampling(temperature=1.3, min_p=0.2),
    Sampling(banned=tuple(range(10))),
    Sampling(temperature=0.8, top_k=9, top_p=0.8, min_p=0.02, banned=(3, 4)),
]


def model():
    torch.manual_seed(0)
    made = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=37,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=64,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim < 2), std=0.2)
    return made


def batch_under(law, later=()):
    made = model()
    engine = EmbeddedEngine(copy.deepcopy(made), EmbeddedSettings(slots=8))
    group = Group("g", Task("d", "p"), 0, 0, state=GroupState.CLOSED)
    prompt = Node("p", None, Segment(SegmentKind.PROMPT, np.arange(5, dtype=np.int32)))
    growing = {}
    for i in range(4):
        request = Request(str(i), (prompt,), law, 24, i + 1, later=later)
        growing[request.id] = Growing(GenerateAsk(request.id, "g", group.task.id, request))
        engine.submit(request)
    while engine.live():
        for chunk in engine.step():
            growing[chunk.request].add(chunk)
    for i, work in enumerate(growing.values()):
        group.members[work.ask.id] = Member(work.rollout(), credit=Credit((-1.0) ** i))
    return made, build_batch([group], Normalise.TOKEN_MEAN, None, 0, 0)


@pytest.mark.parametrize("law", TRUNCATING, ids=lambda law: law.id[:6])
def test_what_was_truncated_is_told_as_the_trainers_law_has_it(law):
    made, batch = batch_under(law)
    trainer = Trainer(made, TrainSettings(tis_cap=2.0))
    want = trainer._logps(trainer.policy, batch, batch.rl_mask)
    own = batch.rl_mask
    assert np.abs(batch.behaviour[own] - want[own]).max() < 1e-4
    stats = trainer.step(batch)
    assert stats.ess is not None and stats.ess > 1 - 1e-6 and stats.ratio == pytest.approx(1)


@pytest.mark.parametrize("law", [Sampling(repetition_penalty=1.3), Sampling(presence_penalty=0.5, top_p=0.9)])
def test_what_was_penalised_has_no_behaviour_and_its_ratio_is_recomputed(law):
    made, batch = batch_under(law)
    assert np.isnan(batch.behaviour).all()
    stats = Trainer(made, TrainSettings(tis_cap=2.0, ratio_base="proximal")).step(batch)
    assert stats.ess is None and stats.ratio == pytest.approx(1) and stats.updates == 1


def test_laws_that_change_within_an_answer_are_told_token_by_token():
    made, batch = batch_under(Sampling(temperature=1.2), later=((6, Sampling(top_p=0.6)), (15, Sampling(temperature=0.5))))
    trainer = Trainer(made, TrainSettings(tis_cap=2.0))
    want = trainer._logps(trainer.policy, batch, batch.rl_mask)
    assert np.abs(batch.behaviour - want)[batch.rl_mask].max() < 1e-4
    assert np.unique(batch.temperature[batch.rl_mask]).tolist() == [np.float32(0.5), 1.0, np.float32(1.2)]
