"""What a round's sampling looked like. Invariant: fresh members only; a mean over nothing is None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gfcr.filter.semantic import clusters
from gfcr.types import Group, Sampling, SegmentKind

MOST = 8
"""Laws told by name; the rest are `other`."""


def sampling_metrics(closed: Sequence[Group]) -> dict[str, Any]:
    """`distinct_answers`: mean over groups of different final answers per member; `kept_mass_mean` over tokens of truncating laws whose
    mass the engine tells; `laws`: share of sampled tokens by law."""
    members = [group.fresh() for group in closed]
    distinct = [len(set(clusters(fresh))) / len(fresh) for fresh in members if fresh]
    own = [
        node.segment
        for fresh in members
        for member in fresh
        for node in member.rollout.path
        if node.segment.kind is SegmentKind.ACTION and node.segment.sampling is not None
    ]
    told = [segment.tracks["kept_mass"] for segment in own if "kept_mass" in segment.tracks]
    masses = np.concatenate(told) if told else np.empty(0)
    masses = masses[~np.isnan(masses)]
    tokens = Counter[Sampling]()
    for segment in own:
        assert segment.sampling is not None
        tokens[segment.sampling] += len(segment)
    total = tokens.total()
    shares = {label(law): n / total for law, n in tokens.most_common(MOST)} if total else {}
    if (rest := total - sum(n for _, n in tokens.most_common(MOST))) > 0:
        shares["other"] = rest / total
    return {
        "distinct_answers": float(np.mean(distinct)) if distinct else None,
        "kept_mass_mean": float(masses.mean(dtype=np.float64)) if len(masses) else None,
        "laws": shares,
    }


def label(law: Sampling) -> str:
    """What of the law is not as in plain sampling, in words."""
    plain, parts = Sampling(), [f"temperature {law.temperature:g}"]
    for name in ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        if (value := getattr(law, name)) != getattr(plain, name):
            parts.append(f"{name} {value:g}")
    if law.banned:
        parts.append(f"{len(law.banned)} banned")
    return ", ".join(parts)
