"""The text that is judged. Invariants: the policy's own tokens only; what it wrote in two turns never runs together into one word;
nothing after the stop string that ended it, whatever its last token held beside it (the tokens stay as sampled).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gfcr.engine.stops import cut_at
from gfcr.types import Rollout, SegmentKind, StopReason


def own_text(rollout: Rollout, decode: Callable[[np.ndarray], str], stops: Sequence[str] = (), keep_stop: bool = True) -> str:
    """Text of the policy's own tokens, one line break between turns (what stood between them is not its own); empty when it
    wrote none. `stops`: the recipe's stop strings; `keep_stop`: whether the one that ended the answer stays."""
    texts = [
        decode(parts[0][1] if len(parts) == 1 else np.concatenate([ids for _, ids in parts])) for parts in own_turns(rollout)
    ]
    if texts and rollout.stop is StopReason.STOP_STRING:
        texts[-1] = cut_at(texts[-1], stops, keep_stop)
    return "\n".join(texts) if texts else decode(np.empty(0, np.int32))


def own_turns(rollout: Rollout) -> list[list[tuple[int, np.ndarray]]]:
    """The policy's own tokens turn by turn: (flat offset of the path, ids) of each stretch."""
    turns: list[list[tuple[int, np.ndarray]]] = []
    before, at = None, 0
    for node in rollout.path:
        if node.segment.kind is SegmentKind.ACTION:
            if before is not SegmentKind.ACTION:
                turns.append([])
            turns[-1].append((at, node.segment.ids))
        before = node.segment.kind
        at += len(node.segment)
    return turns
