"""The composition check: engines whose answers cannot be trained on, and laws that an engine does not serve."""

from compose_cases import rules
from gfcr.build import check_recipe
from gfcr.engine import features_of
from gfcr.recipe import parse
from gfcr.types import Sampling


def on(engine, token_ids=True, **facts):
    return rules(engine_features=features_of(engine, token_ids), **facts)


def test_answers_without_token_ids_are_for_evaluation():
    assert on("openai", token_ids=False) == ["eval_only_engine"]


def test_an_engine_that_takes_no_weights_cannot_be_trained_with():
    assert on("openai") == ["engine_without_weights"]
    assert on("vllm") == on("embedded") == on("scripted") == []


def test_truncation_needs_the_kept_mass():
    assert (
        on("vllm", sampling=Sampling(top_p=0.9))
        == on("vllm", sampling=Sampling(banned=(3,)))
        == ["truncated_without_kept_mass"]
    )
    assert on("embedded", sampling=Sampling(top_p=0.9)) == []


def test_penalties_need_an_engine_that_has_them():
    assert on("vllm", sampling=Sampling(presence_penalty=0.5)) == ["penalties_unserved"]
    assert on("embedded", sampling=Sampling(repetition_penalty=1.1)) == on("vllm", sampling=Sampling(temperature=0.7)) == []


def test_servers_are_named_where_they_are_needed_and_nowhere_else():
    def found(**engine):
        return {finding.rule: finding.why for finding in check_recipe(parse({"engine": engine}))}

    where = {"urls": ["http://127.0.0.1:1"]}
    assert "does not say where" in found(name="vllm")["engine_http"]
    assert "has no servers" in found(name="embedded", http=where)["engine_http"]
    assert found(name="vllm", http=where) == {}
    assert "judged and not trained on" in found(name="openai", http={**where, "token_ids": False})["eval_only_engine"]
    assert list(found(name="openai", http=where)) == ["engine_without_weights"]
