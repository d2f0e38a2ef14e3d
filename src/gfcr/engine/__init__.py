"""Engines: what samples and scores tokens."""

from __future__ import annotations

_COMMON = frozenset(
    {
        "cancel",
        "resume",
        "fork",
        "score",
        "processed_logprobs",
        "kept_mass",
        "entropy",
        "stop_strings",
        "versions",
        "fingerprint",
        "deterministic",
        "laws",
        "token_ids",
        "weights",
    }
)
FEATURES: dict[str, frozenset[str]] = {
    "embedded": _COMMON | {"penalties"},
    "scripted": _COMMON,
    "vllm": _COMMON - {"kept_mass", "entropy", "deterministic", "laws"},
    "openai": frozenset({"token_ids", "processed_logprobs", "resume", "stop_strings"}),
    "openai-text": frozenset({"text_only", "stop_strings"}),
}
"""What each engine offers, for the composition check before an engine exists; each engine's test holds it to its word. `openai-text` is
`openai` with an endpoint that gives no token ids."""


def features_of(name: str, token_ids: bool = True) -> frozenset[str]:
    """Features of an engine by recipe name (`Capabilities.features`). `token_ids`: whether its endpoint takes and gives them."""
    return FEATURES[name if token_ids or name != "openai" else "openai-text"]
