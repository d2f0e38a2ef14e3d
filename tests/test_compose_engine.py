"""The composition check: engines whose answers cannot be trained on, and laws that an engine does not serve."""

import pytest

from compose_cases import made, real, rules
from gfcr.build import check_recipe
from gfcr.engine import FEATURES, features_of
from gfcr.recipe import parse
from gfcr.registry import Slot, names
from gfcr.types import Sampling


def on(engine, *methods, token_ids=True, **facts):
    return rules(*methods, engine_features=features_of(engine, token_ids), **facts)


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


CUT = {"top_p": 0.9, "top_k": 5, "min_p": 0.1, "banned": (3,)}
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.1}
OFF = {"top_p": 1.0, "min_p": 0.0, "top_k": 0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
HEAT = {"temperature": 0.7}


def scheduled(name, value):
    """Every way a schedule may come to a value, and back from it."""
    off = OFF.get(name, 1.0)
    yield {"what": name, "start": off, "end": value}
    yield {"what": name, "start": value, "end": off, "shape": "cosine"}
    yield {"what": name, "start": off, "shape": "steps", "points": ((0.5, value),)}
    yield {"what": name, "start": value, "shape": "steps", "points": ((0.5, off),)}


CONFIGURERS = {
    "schedule": (HEAT | PENALTIES | {n: v for n, v in CUT.items() if n != "banned"}, scheduled),
    "within": (
        HEAT | {n: v for n, v in CUT.items() if n != "banned"},
        lambda n, v: [{"what": n, "points": ((0, v),)}, {"what": n, "points": ((5, OFF.get(n, 1.0)), (9, v))}],
    ),
    "by-turn": (HEAT | PENALTIES | CUT, lambda n, v: [{"turns": ({"turn": 1}, {"turn": 4, n: v})}]),
    "by-category": (HEAT | PENALTIES | CUT, lambda n, v: [{"laws": {"one": {}, "two": {n: v}}}]),
    "uncertain": (HEAT, lambda n, v: [{"low": v, "high": 1.3}]),
}
"""By configurer: what of a law it may change, and settings that do. A new one has to be added."""
OVER_HTTP = ("vllm", "openai")


@pytest.mark.parametrize("name", names(Slot.CONFIGURE))
def test_an_engine_is_held_against_every_law_a_configurer_may_give(name):
    changes, ways = CONFIGURERS[name]
    for what, value in changes.items():
        wanted = {"truncated_without_kept_mass": what in CUT, "penalties_unserved": what in PENALTIES}
        for settings in ways(what, value):
            method = real(Slot.CONFIGURE, name, **settings)
            turns = [made(Slot.TOPOLOGY, "interactive")]
            for engine in FEATURES:
                ids = "token_ids" in FEATURES[engine]
                found = set(on(engine.removesuffix("-text"), method, *turns, token_ids=ids))
                served = {"kept_mass": "kept_mass" in FEATURES[engine], "penalties": "penalties" in FEATURES[engine]}
                expected = {
                    "truncated_without_kept_mass": wanted["truncated_without_kept_mass"] and ids and not served["kept_mass"],
                    "penalties_unserved": wanted["penalties_unserved"] and ids and not served["penalties"],
                }
                assert {rule: rule in found for rule in expected} == expected, (engine, settings)


def test_the_sentence_names_the_configurer_and_what_to_do():
    where = {"urls": ["http://127.0.0.1:1"]}
    base = {"engine": {"name": "vllm", "http": where}}
    configure = {"name": "schedule", "what": "top_p", "start": 1.0, "end": 0.9}
    (finding,) = check_recipe(parse(base | {"control": {"configure": configure}}))
    assert (
        finding.why.startswith("control.configure 'schedule' truncates sampling")
        and "'vllm' does not tell the kept mass" in finding.why
    )
    assert (
        finding.remedy
        == "keep top_p = 1, top_k = 0, min_p = 0 and no bans in control.configure 'schedule', or use the engine embedded"
    )
    (own,) = check_recipe(parse(base | {"generate": {"sampling": {"top_p": 0.9}}}))
    assert own.why.startswith("generate.sampling truncates sampling")


def test_servers_are_named_where_they_are_needed_and_nowhere_else():
    def found(**engine):
        return {finding.rule: finding.why for finding in check_recipe(parse({"engine": engine}))}

    where = {"urls": ["http://127.0.0.1:1"]}
    assert "does not say where" in found(name="vllm")["engine_http"]
    assert "has no servers" in found(name="embedded", http=where)["engine_http"]
    assert found(name="vllm", http=where) == {}
    assert "judged and not trained on" in found(name="openai", http={**where, "token_ids": False})["eval_only_engine"]
    assert list(found(name="openai", http=where)) == ["engine_without_weights"]


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"generate": {"sampling": {"temperature": 0.7, "top_p": 0.9}}}, False),
        ({"generate": {"sampling": {"top_k": 5}}}, True),
        ({"generate": {"sampling": {"presence_penalty": 0.5}}}, True),
        ({"control": {"configure": {"name": "schedule", "what": "top_p", "start": 1.0, "end": 0.9}}}, True),
    ],
)
def test_where_nothing_is_trained_an_endpoint_of_texts_serves_what_it_can_be_asked_for(settings, refused):
    http = {"urls": ["http://127.0.0.1:1"], "token_ids": False}
    recipe = parse({"engine": {"name": "openai", "http": http}, **settings})
    assert [f.rule for f in check_recipe(recipe, trains=False)] == ["law_over_text"] * refused
    assert "eval_only_engine" in [f.rule for f in check_recipe(recipe)]
