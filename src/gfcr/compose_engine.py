"""Rules of the composition check about engines: what is sampled but cannot be trained on, and laws that nobody serves."""

from __future__ import annotations

from gfcr.compose import Facts, Finding, rule


@rule
def eval_only_engine(facts: Facts) -> Finding | None:
    if "text_only" not in facts.engine_features:
        return None
    return Finding(
        "eval_only_engine",
        f"the engine {facts.engine!r} gives text without token ids: what we would make of it are not the tokens that were sampled, and "
        "they have no log-probabilities, so its answers can be judged and not trained on",
        "use an endpoint that gives token ids (vLLM does), or the engine embedded",
    )


@rule
def engine_without_weights(facts: Facts) -> Finding | None:
    if "token_ids" not in facts.engine_features or "weights" in facts.engine_features:
        return None
    return Finding(
        "engine_without_weights",
        f"the engine {facts.engine!r} takes no weights: after the first step it would sample from a policy that is no longer the one in "
        "training",
        'use engine.name = "vllm" or "embedded"; from Python, gfcr.engine.http.openai serves a policy that somebody else updates',
    )


@rule
def truncated_without_kept_mass(facts: Facts) -> Finding | None:
    who = facts.truncating
    if not who or "token_ids" not in facts.engine_features or "kept_mass" in facts.engine_features:
        return None
    return Finding(
        "truncated_without_kept_mass",
        f"{who} truncates sampling (top-p, top-k, min-p or bans), and the engine {facts.engine!r} does not tell the kept mass, without "
        "which its log-probabilities cannot be compared with the trainer's",
        f"keep top_p = 1, top_k = 0, min_p = 0 and no bans in {who}, or use the engine embedded",
    )


@rule
def penalties_unserved(facts: Facts) -> Finding | None:
    who = facts.penalising
    if not who or "token_ids" not in facts.engine_features or "penalties" in facts.engine_features:
        return None
    return Finding(
        "penalties_unserved",
        f"{who} has penalties, which the engine {facts.engine!r} does not serve",
        f"leave repetition_penalty, presence_penalty and frequency_penalty out of {who}, or use the engine embedded",
    )
