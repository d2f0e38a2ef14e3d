"""Conversion of a GGUF file, on a llama of two layers with Q4_1 weights that the test writes itself."""

import json
import os
import time

import numpy as np
import pytest
import torch

from gfcr.engine.models import load_model, load_tokenizer
from gfcr.engine.smollm2 import convert
from gfcr.generate.render import TokenizerRenderer
from gfcr.types import Message, Part, PartKind, Task

gguf = pytest.importorskip("gguf")

WIDTH, HEADS, KV, INNER, LAYERS = 64, 4, 2, 96, 2
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<go>{% endif %}"


def bytes_alphabet():
    """The 256 printable stand-ins that byte-level BPE gives to bytes (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


def write(path, rng):
    """A GGUF llama; returns its weights as they are after quantisation, by GGUF name."""
    tokens = ["<unk>", "<s>", "</s>", *bytes_alphabet(), "an"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([2, 3, 3, *[1] * 257])
    writer.add_token_merges(["a n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    stored = {}

    def add(name, shape):
        values = rng.normal(0, 0.1, shape).astype(np.float32)
        if len(shape) == 2:
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            values = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, values)
        stored[name] = values

    add("token_embd.weight", (len(tokens), WIDTH))
    add("output_norm.weight", (WIDTH,))
    side = KV * WIDTH // HEADS
    for i in range(LAYERS):
        for name, shape in (
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (side, WIDTH)),
            ("attn_v", (side, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_gate", (INNER, WIDTH)),
            ("ffn_up", (INNER, WIDTH)),
            ("ffn_down", (WIDTH, INNER)),
            ("attn_norm", (WIDTH,)),
            ("ffn_norm", (WIDTH,)),
        ):
            add(f"blk.{i}.{name}.weight", shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    place = tmp_path_factory.mktemp("gguf")
    stored = write(place / "tiny.gguf", np.random.default_rng(0))
    for name, age in ((".hf-killed", 86_400), (".hf-at-work", 60)):
        (place / name).mkdir()
        os.utime(place / name, (time.time() - age,) * 2)
    convert(place / "tiny.gguf", place / "hf", "float32")
    return place, stored


def test_the_weights_are_those_of_the_file_dequantised(converted):
    place, stored = converted
    model = load_model(place / "hf")
    own = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    np.testing.assert_array_equal(own["model.embed_tokens.weight"], stored["token_embd.weight"])
    np.testing.assert_array_equal(own["model.layers.1.mlp.down_proj.weight"], stored["blk.1.ffn_down.weight"])
    np.testing.assert_array_equal(own["model.layers.0.self_attn.v_proj.weight"], stored["blk.0.attn_v.weight"])
    # llama.cpp interleaves the two halves of each head that rotate together; transformers keeps them apart
    q = stored["blk.0.attn_q.weight"].reshape(HEADS, WIDTH // HEADS // 2, 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
    np.testing.assert_array_equal(own["model.layers.0.self_attn.q_proj.weight"], q)
    with torch.no_grad():
        assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()


def test_the_directory_is_plain_and_complete_and_left_alone(converted):
    place, _ = converted
    config = json.loads((place / "hf" / "config.json").read_text())
    assert "quantization_config" not in config
    # neither its own scratch directory stays nor a killed conversion's; one that may be at work does
    assert sorted(p.name for p in place.iterdir()) == [".hf-at-work", "hf", "tiny.gguf"]
    before = (place / "hf" / "model.safetensors").stat().st_mtime_ns
    convert(place / "tiny.gguf", place / "hf", "float32")
    assert (place / "hf" / "model.safetensors").stat().st_mtime_ns == before


def test_the_tokenizer_and_its_chat_template_come_along(converted):
    place, _ = converted
    tokenizer = load_tokenizer(place / "hf")
    render = TokenizerRenderer(tokenizer)
    prompt = render(Task("x", (Message("user", (Part(PartKind.TEXT, "3 + 4 ="),)),)))
    assert render.decoder()(prompt.ids) == "<user>3 + 4 =<go>"
    assert tokenizer.eos_token_id == 2
