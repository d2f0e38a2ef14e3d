"""reasoning-gym through the whole loop: chat prompts, the scorer, packed batches, resume; on a llama of one layer."""

import numpy as np
import pytest
import torch

from gfcr.recipe import parse
from gfcr.run.directory import RunDirectory
from gfcr.run.session import Session

pytest.importorskip("reasoning_gym")

ALPHABET = "0123456789+-= ."
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a random model and a tokenizer of digits and signs, with a chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    marks = ["<pad>", "<end>", "<system>", "<user>", "<assistant>"]
    ids = {token: i for i, token in enumerate([*marks, *ALPHABET])}
    raw = Tokenizer(models.WordLevel(ids))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", additional_special_tokens=marks[2:]
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(ids),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
    )
    place = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def recipe(model, **loss):
    gym = {
        "datasets": [{"name": "chain_sum", "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}],
        "size": 40,
        "heldout": "chain_sum",
        "system": "0",
        "shots": [{"question": "3 + 4 =", "answer": "7"}],
        "question": "{expression} =",
    }
    return parse(
        {
            "tasks": {"source": "reasoning-gym", "gym": gym},
            "model": {"path": str(model)},
            "generate": {"topology": {"name": "group", "k": 8}, "max_tokens": 12},
            "filter": {"verifiers": [{"name": "reasoning-gym"}]},
            "control": {"groups": 6},
            "train": {"lr": 1e-2},
            "loss": loss,
            "budget": {"steps": 3},
            "evaluate": {"every_tokens": None, "samples": 1, "greedy": False, "limit": 20},
            "run": {"checkpoint_every": 2},
        }
    )


def weights(session):
    return {name: value.clone() for name, value in session.parts.trainer.weights().items()}


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("runs") / "whole"
    session = Session.create(recipe(model, packed=True), 0, path)
    assert session.run() == "steps"
    return path, weights(session)


def test_the_prompt_is_the_models_own_chat(whole):
    with RunDirectory.read(whole[0]) as run:
        task = run.groups(1)[0].task
        prompt = next(iter(run.groups(1)[0].members.values())).rollout.path[0].segment
    expression = task.meta["metadata"]["expression"]
    text = f"<system>0<end><user>3 + 4 =<end><assistant>7<end><user>{expression} =<end><assistant>"
    ids = {token: i for i, token in enumerate(["<pad>", "<end>", "<system>", "<user>", "<assistant>", *ALPHABET])}
    wanted = []
    while text:
        token = next(t for t in ids if text.startswith(t))
        wanted.append(ids[token])
        text = text[len(token) :]
    assert prompt.ids.tolist() == wanted
    assert prompt.template is not None


def test_rewards_are_the_scorers_and_something_was_learnt_from(whole):
    with RunDirectory.read(whole[0]) as run:
        rows = run.metrics()
        signals = [m.signals for g in run.groups(1) for m in g.members.values()]
    assert {s.reward for s in signals} == {0.0, 1.0}
    assert all(s.verdict.verifier == "reasoning-gym" for s in signals)
    assert sum(row.get("train_updates") or 0 for row in rows[1:]) >= 1
    assert rows[0]["heldout_unscorable"] == 0
    assert rows[0]["heldout_accuracy"] is not None


def test_a_run_stopped_between_checkpoints_goes_on_bit_equal(model, whole, tmp_path):
    def stop(row):
        if row["step"] == 1:
            raise KeyboardInterrupt

    session = Session.create(recipe(model, packed=True), 0, tmp_path / "run", stop)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    resumed = Session.resume(tmp_path / "run")
    resumed.run()
    for name, value in whole[1].items():
        assert torch.equal(weights(resumed)[name], value), name


def test_packing_changes_the_rows_and_not_the_gradient(model, whole, tmp_path):
    plain = Session.create(recipe(model), 0, tmp_path / "plain")
    plain.run()
    with RunDirectory.read(whole[0]) as run, RunDirectory.read(tmp_path / "plain") as other:
        packed, single = (r.metrics()[1] for r in (run, other))
        rows, more = (len(r.batch(1)) for r in (run, other))
        rollouts = [
            np.concatenate([m.rollout.own_tokens() for g in r.groups(1) for m in g.members.values()]) for r in (run, other)
        ]
    assert np.array_equal(*rollouts)  # the first round is the same; later ones may part where a sum was rounded otherwise
    assert 0 < rows < more  # what goes through the layers is no less: rows of their own share their prompts there too
    assert packed["train_grad_norm"] == pytest.approx(single["train_grad_norm"], rel=1e-4)
    assert packed["train_loss"] == pytest.approx(single["train_loss"], rel=1e-4, abs=1e-6)
