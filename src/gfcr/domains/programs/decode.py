"""A small static-batch sampler, to measure warm starts and to screen tasks before any engine exists.

Invariants: equal-length prompts run together, so there is no padding and no mask; finished rows leave the batch; the law is
softmax(logits / temperature) in float32, temperature 0 is greedy; one torch generator decides all draws.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from gfcr.domains.programs.language import ANSWER_TOKENS
from gfcr.domains.programs.tokenizer import END_ID, decode, encode_prompt
from gfcr.domains.programs.verify import check_outcome
from gfcr.types import StopReason


@torch.no_grad()
def sample_ids(
    model: Any,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    rng: torch.Generator,
    batch: int = 256,
    limit: int = ANSWER_TOKENS,
) -> list[list[int]]:
    """New token ids of each prompt (end token included when emitted), in the order of `prompts`."""
    out: list[list[int]] = [[] for _ in prompts]
    by_length = defaultdict(list)
    for i, prompt in enumerate(prompts):
        by_length[len(prompt)].append(i)
    for rows in by_length.values():
        for at in range(0, len(rows), batch):
            part = rows[at : at + batch]
            _sample_block(model, [prompts[i] for i in part], [out[i] for i in part], temperature, rng, limit)
    return out


def _sample_block(
    model: Any, prompts: list[Sequence[int]], sinks: list[list[int]], temperature: float, rng: torch.Generator, limit: int
) -> None:
    from transformers import DynamicCache

    cache, argument = DynamicCache(), _cache_argument(model)
    tokens = torch.tensor(prompts)
    alive = torch.arange(len(prompts))
    for step in range(limit):
        logits = model(tokens, use_cache=True, **{argument: cache}).logits[:, -1].float()
        if temperature == 0:
            new = logits.argmax(-1)
        else:
            new = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=rng)[:, 0]
        for row, token in zip(alive.tolist(), new.tolist()):
            sinks[row].append(token)
        keep = (new != END_ID).nonzero()[:, 0]
        if not len(keep) or step == limit - 1:
            return
        if len(keep) < len(new):
            cache.batch_select_indices(keep)
            alive, new = alive[keep], new[keep]
        tokens = new[:, None]


def _cache_argument(model: Any) -> str:
    """`cache` in newer releases of transformers, `past_key_values` before."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def outcomes(
    model: Any, prompts: Sequence[str], finals: Sequence[str], samples: int, temperature: float, seed: int
) -> tuple[list[int], list[list[list[int]]]]:
    """(right answers of `samples` per prompt, the answers' ids)."""
    rng = torch.Generator().manual_seed(seed)
    ids = sample_ids(model, [encode_prompt(p) for p in prompts for _ in range(samples)], temperature, rng)
    answers = [ids[i * samples : (i + 1) * samples] for i in range(len(prompts))]
    return [sum(is_right(final, a) for a in group) for final, group in zip(finals, answers)], answers


def is_right(final: str, ids: list[int]) -> bool:
    """The outcome verdict on sampled ids."""
    stop = StopReason.EOS if ids and ids[-1] == END_ID else StopReason.MAX_TOKENS
    return check_outcome(final, decode(ids), stop)[0]
