"""The module behind the engine: the one place where tokens go through it, and where they are counted.

Invariants: every layer of every pass attends through the engine, or the pass is an error; `through` and `heads` are counted
from the tensors handed to the module, not from what requests ask for; padding positions repeat the last real position of
their row, so an outside observer can tell them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.embedded.lean import Lean, lean
from gfcr.engine.embedded.passes import NAME, FullPass
from gfcr.errors import ConfigError


class Model:
    """A Hugging Face causal LM behind block attention; the module is the engine's own from here on."""

    def __init__(self, module: Any, few: bool = False) -> None:
        """`few`: small models of known families run in few operations (`Lean`), which a start-up check must prove."""
        self.module = module.eval()
        self.base = module.base_model
        self.head_layer = module.get_output_embeddings()
        self.parameter = next(module.parameters())
        self.device, self.dtype = self.parameter.device, self.parameter.dtype
        self.vocabulary = int(self.head_layer.weight.shape[0])
        self.layers = int(module.config.num_hidden_layers)
        self.softcap = getattr(module.config, "final_logit_softcapping", None)
        self.through = 0
        """Tokens that went through the layers."""
        self.heads = 0
        """Positions whose logits were computed."""
        # Any 4-D mask makes transformers build none of its own; block attention does not read it.
        self._no_mask = torch.zeros(1, 1, 1, 1, device=self.device)
        module.set_attn_implementation(NAME)
        self.lean = Lean(module) if few and lean(module) else None
        """What runs the layers; None = the module itself."""

    def renew(self) -> None:
        """The module's weights were changed in place."""
        if self.lean is not None:
            self.lean.renew()

    def hidden(self, ids: np.ndarray, positions: np.ndarray, work: Any) -> Tensor:
        """Last hidden states [n, length, hidden size] of int64 [n, length] tokens and positions (padding right)."""
        # Real tokens are those whose position grows along the row.
        self.through += len(ids) + (int((np.diff(positions, axis=1) > 0).sum()) if ids.shape[1] > 1 else 0)
        hidden = self.lean.hidden(ids, positions, work) if self.lean else self._full(ids, positions, work)
        if work.layers != self.layers:
            raise ConfigError(
                f"{work.layers} of the model's {self.layers} layers attended through the engine",
                "leave the engine's module alone (its attention implementation was changed?), or, at start-up, "
                "use a model whose layers all have plain attention",
            )
        return hidden

    def _full(self, ids: np.ndarray, positions: np.ndarray, work: Any) -> Tensor:
        """As transformers runs it."""
        out: Tensor = self.base(
            input_ids=torch.from_numpy(ids).to(self.device),
            position_ids=torch.from_numpy(positions).to(self.device),
            attention_mask=self._no_mask,
            use_cache=False,
            gfcr_pass=work,
        )[0]
        return out

    def head(self, hidden: Tensor) -> Tensor:
        """Logits float32 [n, vocabulary] of [n, hidden size]."""
        self.heads += len(hidden)
        logits = self.head_layer(hidden).float()
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap

    def logits(self, ids: np.ndarray) -> Tensor:
        """Logits float32 [n, length, vocabulary] of whole, equally long sequences: probes."""
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        hidden = self.hidden(ids, positions, FullPass())
        return self.head(hidden.flatten(0, 1)).view(*ids.shape, -1)


def pad(rows: list[np.ndarray], starts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Right-padded int64 ids and positions [n, longest]; row i's first token has position `starts[i]`."""
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    column = np.minimum(np.arange(ids.shape[1]), lengths[:, None] - 1)
    return ids, np.array(starts)[:, None] + column


def batches(lengths: list[int], budget: int) -> list[list[int]]:
    """Indices grouped so that each group, padded to its longest, has at most `budget` positions; lengths descend."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[list[int]] = []
    for i in order:
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
