"""Tiny networks with random weights."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def small_llama(vocabulary, room=128):
    """A Llama of one layer with random weights, large enough that its laws are not flat."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        vocab_size=vocabulary,
        max_position_embeddings=room,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    made = LlamaForCausalLM(config)
    for parameter in made.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()
