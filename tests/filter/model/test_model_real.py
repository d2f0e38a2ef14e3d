"""The model verifier with real generation: a tiny model with random weights, and the lab's own, through the embedded engine."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chat_cases import toy
from gfcr.engine.contract import Request
from gfcr.filter.verifiers.model.ask import GREEDY
from gfcr.filter.verifiers.model.verifier import ModelVerifier
from gfcr.run.ledger import Ledger
from gfcr.types import Node, Segment, SegmentKind, Status, StopReason, Task
from lifecycle_cases import lab, tasks

TASK = Task("t", "6*7?", "42")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A tiny Qwen3 with random weights and a toy tokenizer, and the two tokens it greedily says to one prompt."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
    from gfcr.engine.models import load_model

    torch.set_num_threads(1)
    torch.manual_seed(3)
    made = toy("chatml")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    config = Qwen3Config(
        **sizes, intermediate_size=64, vocab_size=len(made.tokenizer), max_position_embeddings=512, eos_token_id=None
    )
    model = Qwen3ForCausalLM(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    place = tmp_path_factory.mktemp("judge")
    model.save_pretrained(place)
    made.tokenizer.save_pretrained(place)
    probe = ModelVerifier(ModelVerifier.Settings(path=str(place), prompt="{answer}"))
    engine = EmbeddedEngine(load_model(place), EmbeddedSettings())
    probe.use(engine, made.tokenizer)
    assert probe._codec is not None
    ids = probe._prompt(probe._codec, TASK, "it is 42", None)
    node = Node("p", None, Segment(SegmentKind.PROMPT, np.asarray(ids, np.int32)))
    engine.submit(Request("r", (node,), GREEDY, 2, 0))
    said = [int(i) for chunk in engine.step() for i in chunk.ids]
    engine.close()
    return place, said


@pytest.mark.parametrize("workers", [1, 2])
def test_real_generation_decides_through_the_embedded_engine(directory: tuple[Path, list[int]], workers: int) -> None:
    """The word that the model really says is made the label, and what it says next its end token: then it judges."""
    place, said = directory
    tokenizer = toy("chatml").tokenizer
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": said[1]}))
    label = tokenizer.decode(said[:1])
    assert label.strip() and said[0] != said[1]
    for right, wrong, expected in ((label, "no such word", True), ("no such word", label, False), ("yes", "no", None)):
        own = ModelVerifier.Settings(
            path=str(place), prompt="{answer}", right=right, wrong=wrong, decoys=(), workers=workers, dtype="float32"
        )
        verifier = pickle.loads(pickle.dumps(ModelVerifier(own)))
        first, again = (verifier.judge(TASK, "it is 42", StopReason.EOS) for _ in range(2))
        verifier.close()
        assert first.correct is expected and first.tokens > 5 and first.seconds > 0
        assert replace(again, seconds=first.seconds) == first
        if workers > 1:
            break


def test_in_a_round_a_judge_decides_and_its_tokens_are_in_the_ledger() -> None:
    """The lab's own small model as judge: its greedy reply to the right answer is made the label."""
    own = {
        "name": "model",
        "path": "lab",
        "chat": False,
        "prompt": "{answer}",
        "decoys": (),
        "max_tokens": 12,
        "dtype": "float32",
    }
    alone = ModelVerifier(ModelVerifier.Settings(**{k: v for k, v in own.items() if k != "name"}))
    first = alone.judge(tasks(1)[0], "a+?11", StopReason.EOS)
    alone.close()
    assert first.status is Status.UNSCORABLE and first.tokens > 6, first
    label = first.evidence.split("'")[1]
    run = lab(lambda prompt, nth: ("=a+?11", "=b")[nth], k=2, filter={"verifiers": [{**own, "right": label}], "gates": []})
    round_ = run.drive()
    run.cascade.close()
    (group,) = round_.groups.values()
    right, other = (m.signals for m in group.members.values())
    assert right.correct is True and right.reward == 1.0 and other.correct is None and other.reward is None
    ledger = Ledger()
    ledger.settle_round([group], {})
    assert ledger.total.judged == sum(s.verdicts["model"].tokens for s in (right, other)) > first.tokens
