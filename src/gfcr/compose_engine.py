"""Rules of the composition check about engines: what is sampled but cannot be trained on, and laws that nobody serves."""

from __future__ import annotations

from dataclasses import replace

from gfcr.compose import Facts, Finding, rule


@rule
def eval_only_engine(facts: Facts) -> Finding | None:
    if not facts.trains or "text_only" not in facts.engine_features:
        return None
    return Finding(
        "eval_only_engine",
        f"the engine {facts.engine!r} gives text without token ids: what we would make of it are not the tokens that were sampled, and "
        "they have no log-probabilities, so its answers can be judged and not trained on",
        'to train, use engine.name = "vllm" or "embedded"; to look at its answers, `gfcr sample`',
    )


@rule
def engine_without_weights(facts: Facts) -> Finding | None:
    if not facts.trains or "token_ids" not in facts.engine_features or "weights" in facts.engine_features:
        return None
    return Finding(
        "engine_without_weights",
        f"the engine {facts.engine!r} takes no weights: after the first step it would sample from a policy that is no longer the one in "
        "training",
        'to train, use engine.name = "vllm" or "embedded"; to look at its answers, `gfcr sample`; from Python, '
        "gfcr.engine.http.openai.OpenAiEngine serves a policy that somebody else updates",
    )


@rule
def law_over_text(facts: Facts) -> Finding | None:
    """What a text endpoint is asked for: temperature and top-p."""
    if "text_only" not in facts.engine_features:
        return None
    methods = [who for trait in ("truncates", "penalises", "lays out laws") for who in facts.having(trait)]
    beyond = replace(facts.sampling, top_p=1.0, id="")
    if not methods and not beyond.truncated and not beyond.penalised:
        return None
    who = methods[0] if methods else "generate.sampling"
    return Finding(
        "law_over_text",
        f"{who} has more than temperature and top-p, and an endpoint of texts is asked for no other law",
        f"keep top_k = 0, min_p = 0, no bans and no penalties in {who}, or use the engine embedded",
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
