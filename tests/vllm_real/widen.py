"""The lab model with attention heads of 32 numbers instead of 16: the same function, in a shape that vLLM's CPU attention serves.

Each head's numbers are padded with zeros; rotation pairs stay pairs (number i turns with i + half) at the frequencies they had, and the
norms of queries and keys are scaled by what the zeros change of the mean. In training the zeros get no gradient, so they stay.
"""

from __future__ import annotations

from pathlib import Path

from gfcr.engine.models import load_model, load_tokenizer, model_path


def widened(place: Path, to: int = 32) -> Path:
    import torch

    narrow = load_model(model_path("lab"))
    config = narrow.config
    old = config.head_dim
    theta = config.rope_parameters["rope_theta"] ** (to / old)
    rope = {"rope_type": "default", "rope_theta": theta}
    wide = type(narrow)(type(config)(**{**config.to_dict(), "head_dim": to, "rope_parameters": rope}))
    at = torch.cat([torch.arange(old // 2), to // 2 + torch.arange(old // 2)])
    tensors = {}
    for name, tensor in narrow.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            heads = tensor.view(-1, old, tensor.shape[1])
            padded = tensor.new_zeros(heads.shape[0], to, tensor.shape[1])
            padded[:, at] = heads
            tensor = padded.reshape(-1, tensor.shape[1])
        elif name.endswith("o_proj.weight"):
            padded = tensor.new_zeros(tensor.shape[0], tensor.shape[1] // old, to)
            padded[:, :, at] = tensor.view(tensor.shape[0], -1, old)
            tensor = padded.reshape(tensor.shape[0], -1)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            padded = tensor.new_zeros(to)
            padded[at] = tensor * ((old / to) ** 0.5 if name.endswith("k_norm.weight") else 1.0)
            tensor = padded
        tensors[name] = tensor
    wide.load_state_dict(tensors)
    wide.generation_config = narrow.generation_config
    ids = torch.arange(200).view(2, 100) % config.vocab_size
    with torch.no_grad():
        gap = (torch.log_softmax(wide(ids).logits, -1) - torch.log_softmax(narrow(ids).logits, -1)).abs().max()
    assert gap < 1e-3, gap
    wide.save_pretrained(place)
    load_tokenizer(model_path("lab")).save_pretrained(place)
    return place
