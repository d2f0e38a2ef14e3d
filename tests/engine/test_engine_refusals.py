"""Architectures the embedded engine cannot serve are refused with the reason, and the start-up check with its figure."""

import numpy as np
import pytest
import torch
import transformers as hf
from engine_helpers import GPT2, SHAPES, SIZES, VOCABULARY, WINDOW, make_engine, make_model, request, run

from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings, passes
from gfcr.engine.embedded.dtype import choose_dtype
from gfcr.errors import ConfigError

T5 = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
SMALL = {**SIZES, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32}
REFUSED = {
    "encoder-decoder": (lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5)), "'t5' model: it is an encoder-decoder"),
    "recurrent state": (
        lambda: hf.MambaForCausalLM(hf.MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, state_size=4)),
        "'mamba' model: it keeps recurrent state",
    ),
    "some recurrent layers": (
        lambda: hf.RecurrentGemmaForCausalLM(
            hf.RecurrentGemmaConfig(
                vocab_size=20, hidden_size=16, num_hidden_layers=3, intermediate_size=32, num_attention_heads=2, lru_width=16
            )
        ),
        "keeps recurrent state",
    ),
    "shared keys and values": (
        lambda: hf.Gemma4ForCausalLM(
            hf.Gemma4TextConfig(
                **{**SMALL, "num_hidden_layers": 4},
                head_dim=16,
                global_head_dim=16,
                layer_types=["full_attention"] * 4,
                num_kv_shared_layers=2,
                hidden_size_per_layer_input=8,
                vocab_size_per_layer_input=VOCABULARY,
            )
        ),
        "shares keys and values between layers",
    ),
    "chunked attention": (
        lambda: hf.Llama4ForCausalLM(
            hf.Llama4TextConfig(**SMALL, head_dim=16, intermediate_size_mlp=32, num_local_experts=1, attention_chunk_size=8)
        ),
        "attends within chunks of 8 positions",
    ),
    "latent attention": (
        lambda: hf.DeepseekV3ForCausalLM(
            hf.DeepseekV3Config(**SMALL, kv_lora_rank=8, q_lora_rank=8, n_routed_experts=2, n_group=1, topk_group=1)
        ),
        "latent attention",
    ),
    "a bias by distance": (
        lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=20, hidden_size=16, n_layer=1, n_head=2)),
        "cannot be rerouted",
    ),
    "attention of its own": (
        lambda: hf.StableLmForCausalLM(hf.StableLmConfig(**SMALL)),
        "does not go through transformers' AttentionInterface",
    ),
    "attention sinks": (
        lambda: hf.GptOssForCausalLM(
            hf.GptOssConfig(**SMALL, head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=8)
        ),
        "it attends with attention sinks",
    ),
    "later tokens": (
        lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SMALL, head_dim=16, use_bidirectional_attention=True)),
        "attends to later tokens",
    ),
    "logits changed after the head": (
        lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**SMALL, logits_scaling=4.0)),
        "changes its logits after the head",
    ),
    "pictures": (
        lambda: hf.Gemma3ForConditionalGeneration(
            hf.Gemma3Config(
                text_config={**SMALL, "head_dim": 16},
                vision_config={
                    "hidden_size": 16,
                    "intermediate_size": 16,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 1,
                    "image_size": 28,
                    "patch_size": 14,
                },
            )
        ),
        "wraps its language model",
    ),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_refused_with_the_reason(what):
    make, reason = REFUSED[what]
    with pytest.raises(ConfigError) as error:
        EmbeddedEngine(make())
    assert reason in str(error.value) and error.value.remedy


def test_a_mixed_model_names_the_layer_it_cannot_serve():
    model = make_model()
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigError, match="layers of type 'linear_attention'"):
        EmbeddedEngine(model)


@pytest.mark.parametrize("kind", ["qwen3", *SHAPES])
def test_the_start_up_check_refuses_a_wrong_mask_with_the_figure(kind, monkeypatch):
    real = passes.DecodePass.mask
    monkeypatch.setattr(passes.DecodePass, "mask", lambda self, window: real(self, window) * 0)
    with pytest.raises(ConfigError, match=r"differ from its full forward pass by \d.* on rows of \d+ tokens, allowed is"):
        make_engine(kind)


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_the_start_up_check_sees_a_window_of_another_length_because_its_rows_are_longer(kind, monkeypatch):
    real = passes._unseen
    monkeypatch.setattr(passes, "_unseen", lambda ahead, window: real(ahead, window and window + 1))
    with pytest.raises(ConfigError, match="start-up check"):
        make_engine(kind)
    assert not make_engine(kind, check_tokens=WINDOW).check.beyond_window  # rows that short cannot see it, and it says so


def test_the_check_can_be_turned_off(monkeypatch):
    real = passes.DecodePass.mask
    monkeypatch.setattr(passes.DecodePass, "mask", lambda self, window: real(self, window) * 0)
    engine = make_engine(check_tokens=0)
    assert engine.check.tokens == 0 and np.isnan(engine.check.difference)
    with pytest.raises(ConfigError, match="check_tokens = -1"):
        EmbeddedSettings(check_tokens=-1)


def test_a_model_whose_attention_is_not_rerouted_is_refused_without_the_check_too(monkeypatch):
    model = make_model("phi")
    monkeypatch.setattr(type(model), "set_attn_implementation", lambda self, name: None)
    engine = EmbeddedEngine(model, EmbeddedSettings(check_tokens=0))
    engine.submit(request("x", [1, 2, 3], 4))
    with pytest.raises(ConfigError, match="0 of the model's 2 layers attended through the engine"):
        engine.step()


def test_rotary_frequencies_that_change_with_the_batch_bound_the_length():
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64, **factors}
    config = hf.Phi3Config(**SIZES, num_key_value_heads=2, original_max_position_embeddings=64, rope_parameters=rope)
    torch.manual_seed(0)
    model = hf.Phi3ForCausalLM(config)
    with pytest.raises(ConfigError, match=r"max_length = 65, but beyond 64 positions.*longrope"):
        EmbeddedEngine(model, EmbeddedSettings(max_length=65))
    engine = EmbeddedEngine(model)
    assert engine.max_length == 64
    assert len(run(engine, [request("x", np.arange(30), 99)])["x"].ids) == 34


def test_a_model_shorter_than_its_window_is_served():
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**{**GPT2, "n_positions": 12}))
    assert EmbeddedEngine(model).check.tokens == 12


@pytest.mark.parametrize(
    ("asked", "parameters", "slots", "device", "native", "chosen"),
    [
        ("auto", 85_000, 256, "cpu", True, "float32"),
        ("auto", 135_000_000, 256, "cpu", True, "bfloat16"),
        ("auto", 135_000_000, 16, "cpu", True, "float32"),
        ("auto", 135_000_000, 256, "cpu", False, "float32"),
        ("auto", 135_000_000, 1, "cuda", True, "bfloat16"),
        ("float32", 135_000_000, 256, "cuda", True, "float32"),
        ("bfloat16", 85_000, 1, "cpu", False, "bfloat16"),
    ],
)
def test_auto_takes_bfloat16_where_it_is_faster(asked, parameters, slots, device, native, chosen, monkeypatch):
    monkeypatch.setattr("gfcr.engine.embedded.dtype.native_bfloat16", lambda device: native)
    dtype, why = choose_dtype(asked, parameters, slots, device)
    assert dtype == chosen and why


def test_what_was_chosen_is_told():
    details = make_engine(slots=4).capabilities().details
    assert details["dtype"] == "float32" and details["dtype_reason"]
    assert 0 < details["self_check"]["difference"] <= details["self_check"]["allowed"]
    with pytest.raises(ConfigError, match="dtype = 'int8'"):
        EmbeddedSettings(dtype="int8")
