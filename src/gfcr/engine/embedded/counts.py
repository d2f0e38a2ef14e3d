"""Token counts that penalties read. Invariant: a stream's counts equal a recount of its path and answer at every moment."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.embedded.model import Model
from gfcr.engine.embedded.streams import Stream, Streams
from gfcr.types import SegmentKind

Counts = tuple[Tensor, Tensor]
"""int32 [slots, vocabulary]: every token of the path, and the sampled ones."""


def count_contexts(model: Model, state: Streams, streams: Iterable[Stream], old: Counts | None) -> Counts:
    """Counts of `old` (None = none yet), with room for every slot and `streams` counted anew."""
    size = (len(state.new), model.vocabulary)
    path, sampled = (torch.zeros(size, dtype=torch.int32, device=model.device) for _ in range(2))
    if old is not None:
        for new, before in zip((path, sampled), old):
            new[: len(before)] = before
    for stream in streams:
        own = [n.segment.ids for n in stream.request.path if n.segment.kind is SegmentKind.ACTION]
        answer = state.ids[stream.slot, : state.new[stream.slot]]
        for count, parts in ((path, [stream.context, answer]), (sampled, [*own, answer])):
            tally = np.bincount(np.concatenate(parts), minlength=size[1]).astype(np.int32)
            count[stream.slot] = torch.from_numpy(tally)
    return path, sampled


def count_drawn(counts: Counts, slots: Tensor, tokens: Tensor) -> None:
    """Add one token, int64[n], to each of `slots`, int64[n]."""
    one = torch.ones_like(tokens, dtype=torch.int32)
    for count in counts:
        count.index_put_((slots, tokens), one, accumulate=True)
