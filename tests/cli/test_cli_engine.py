"""`gfcr engine`: capabilities, start-up check, number type, throughput; refusals with the reason."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from gfcr.engine import features_of


@pytest.fixture
def gpt2(tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=37, n_positions=24, n_embd=16, n_layer=2, n_head=2, initializer_range=0.2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def test_json_holds_what_a_recipe_needs_to_know(cli, gpt2):
    found = cli.json("engine", gpt2, "--streams", "1,4", "--tokens", "5")
    assert (found["architecture"], found["layers"], found["max_length"], found["vocabulary"]) == ("gpt2", 2, 24, 37)
    assert found["tied_embeddings"] is True and found["parameters"] > 6_000
    assert set(found["features"]) == features_of("embedded")
    assert found["dtype"] == "float32" and found["dtype_reason"]
    assert 0 < found["self_check"]["difference"] <= found["self_check"]["allowed"] and found["self_check"]["tokens"] == 24
    assert [(row["streams"], row["tokens"]) for row in found["throughput"]] == [(1, 5), (4, 20)]
    assert all(row["tokens_per_cpu_second"] > 0 and row["cpu_seconds"] > 0 for row in found["throughput"])


def test_the_table_says_it_in_words(cli):
    said = " ".join(cli("engine", "lab", "--streams", "2", "--tokens", "4", "--dtype", "bfloat16").stdout.split())
    assert "qwen3" in said and "tied embeddings" in said and "bfloat16 on cpu (asked for)" in said
    assert "nats from the plain forward pass, allowed" in said and "tokens per CPU second" in said


def test_probe_and_check_can_be_left_out(cli, gpt2):
    found = cli.json("engine", gpt2, "--streams", "none", "--check-tokens", "0")
    assert found["throughput"] == [] and found["self_check"]["tokens"] == 0 and found["self_check"]["difference"] is None
    assert "start-up check off" in " ".join(cli("engine", gpt2, "--streams", "none", "--check-tokens", "0").stdout.split())


def test_what_cannot_be_served_is_refused_with_the_reason(cli, tmp_path):
    torch.manual_seed(0)
    MambaForCausalLM(MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, state_size=4)).save_pretrained(tmp_path)
    assert "'mamba' model: it keeps recurrent state" in cli.error("engine", tmp_path)
    assert "no model directory" in cli.error("engine", tmp_path / "nowhere")
    assert "is not a list of numbers" in cli.error("engine", "lab", "--streams", "1,x")
    assert "dtype = 'int3'" in cli.error("engine", "lab", "--dtype", "int3")
    found = cli.json("engine", tmp_path, code=1)
    assert found["error"]["kind"] == "ConfigError" and found["error"]["remedy"]
