"""What a server may say, and what is a fault of which kind."""

import json
import math

import pytest

from gfcr.engine.http.faults import Fault, Tally
from gfcr.engine.http.law import law_of, mean_gap, probe
from gfcr.engine.http.pool import choose
from gfcr.engine.http.replies import completed, generated, parsed, scored, tempered
from gfcr.engine.http.server import Server


def event(**changes):
    """An event of two tokens after three others, changed."""
    data = {
        "request_id": "generate-tokens-mine",
        "usage": {"prompt_tokens": 4, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}},
        "choices": [
            {
                "finish_reason": "length",
                "stop_reason": None,
                "token_ids": [7, 8],
                "weight_versions": [{"version": "v1", "start": 0, "end": 5}],
                "logprobs": {"content": [{"token_id": 7, "logprob": -0.5}, {"token_id": 8, "logprob": 1e-5}]},
            }
        ],
    }
    for key, value in changes.items():
        (data if key in data else data["choices"][0])[key] = value
    return data


def read(data, before=3, label="v1"):
    return generated(data, "mine", before, 37, label)


def test_a_sound_event_gives_its_tokens():
    part = read(event())
    assert (part.ids, part.logprobs, part.finish, part.prompt, part.cached) == ([7, 8], [-0.5, 0.0], "length", 4, 3)
    assert read(event(choices=[], usage={"prompt_tokens": 4, "completion_tokens": 3})).last
    assert read(event(finish_reason=None, weight_versions=None)).finish is None  # told at the end only
    assert read(event(weight_versions=None), label=None).ids == [7, 8]


def content(*values):
    return {"content": [{"token_id": token, "logprob": value} for token, value in zip((7, 8), values)]}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"request_id": "generate-tokens-other"}, "foreign"),
        ({"choices": None}, "shape"),
        ({"choices": [{}, {}]}, "shape"),
        ({"token_ids": [7]}, "shape"),
        ({"token_ids": None}, "shape"),
        ({"logprobs": None}, "shape"),
        ({"token_ids": [7, 37]}, "vocabulary"),
        ({"token_ids": [7, -1]}, "vocabulary"),
        ({"token_ids": [7, 8.0]}, "shape"),
        ({"token_ids": [7, True]}, "shape"),
        ({"token_ids": [8, 7]}, "logprob"),
        ({"logprobs": content(-0.5, 0.2)}, "logprob"),
        ({"logprobs": content(-0.5, -9999.0)}, "logprob"),
        ({"logprobs": content(-0.5, None)}, "logprob"),
        ({"logprobs": content(-0.5, math.nan)}, "logprob"),
        ({"usage": {"prompt_tokens": 4, "completion_tokens": 6}}, "count"),
        ({"usage": {"prompt_tokens": 4, "completion_tokens": 3}}, "count"),
        ({"usage": None}, "shape"),
        ({"logprobs": [1]}, "shape"),
        ({"logprobs": "content"}, "shape"),
        ({"logprobs": content(-0.5, 10**400)}, "logprob"),
        ({"logprobs": content(-0.5, -(10**400))}, "logprob"),
        ({"usage": {"prompt_tokens": -4, "completion_tokens": 5}}, "count"),
        (
            {"usage": {"prompt_tokens": 4, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}},
            "count",
        ),
        (
            {"usage": {"prompt_tokens": 4, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 5}}},
            "count",
        ),
        ({"usage": {"prompt_tokens": 4, "completion_tokens": "\ud800"}}, "count"),
        ({"weight_versions": None}, "version"),
        ({"weight_versions": [{"version": "v2", "start": 0, "end": 5}]}, "version"),
        ({"weight_versions": [{"version": "v1", "start": 0, "end": 4}]}, "version"),
        ({"weight_versions": [{"version": "v1", "start": 1, "end": 5}]}, "version"),
        ({"weight_versions": [{"version": "v1", "start": 0, "end": 2}, {"version": "v0", "start": 2, "end": 5}]}, "version"),
    ],
)
def test_what_is_wrong_with_an_event_is_a_fault_of_its_kind(changes, kind):
    with pytest.raises(Fault) as caught:
        read(event(**changes))
    assert caught.value.kind == kind and str(caught.value).startswith(f"{kind}: ")
    str(caught.value).encode()  # half a surrogate pair would break the database


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{", "bad_json"), ('{"a": NaN}', "bad_json"), ('{"a": -Infinity}', "bad_json"), ("[1]", "shape"), (b"\xff", "bad_json")],
)
def test_what_is_no_json_object_is_a_fault(text, kind):
    with pytest.raises(Fault) as caught:
        parsed(text)
    assert caught.value.kind == kind


def completion(**changes):
    own = {
        "token_ids": [7, 8],
        "prompt_token_ids": [1, 5],
        "finish_reason": "stop",
        "stop_reason": 8,
        "logprobs": {"token_logprobs": [-0.5, -0.25]},
        **changes,
    }
    return {"choices": [own], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}


def test_completions_are_checked_alike():
    part = completed(completion(), [1, 5], 37)
    assert (part.ids, part.logprobs, part.finish, part.stop) == ([7, 8], [-0.5, -0.25], "stop", 8)
    for changes, kind in (
        ({"prompt_token_ids": [1, 6]}, "foreign"),
        ({"token_ids": [7, 99]}, "vocabulary"),
        ({"token_ids": [7]}, "shape"),
        ({"logprobs": {"token_logprobs": [-0.5, 0.5]}}, "logprob"),
        ({"logprobs": {"token_logprobs": [-0.5, 10**400]}}, "logprob"),
        ({"logprobs": [-0.5, -0.5]}, "shape"),
    ):
        with pytest.raises(Fault) as caught:
            completed(completion(**changes), [1, 5], 37)
        assert caught.value.kind == kind


def test_scores_are_of_the_tokens_asked_for():
    rows = [None, {"5": {"logprob": -1.0}}, {"6": {"logprob": -9999.0}, "7": {"logprob": -0.1}}]
    assert scored({"prompt_logprobs": rows}, [1, 5, 6]) == [-1.0, -math.inf]
    for wrong in (rows[:2], [None, {"4": {"logprob": -1.0}}, rows[2]], [None, {"5": {"logprob": -(10**400)}}, rows[2]], None):
        with pytest.raises(Fault):
            scored({"prompt_logprobs": wrong}, [1, 5, 6])
    one = {"index": 1, "logprobs": {"top_logprobs": [{"token_id:6": -2.0}]}}
    two = {"index": 0, "logprobs": {"top_logprobs": [{"token_id:5": -1.0}]}}
    assert tempered({"choices": [one, two]}, [5, 6]) == [-1.0, -2.0]
    for choices in (
        [one],
        [one, one],
        [one, {**two, "index": 2}],
        [one, {**two, "logprobs": None}],
        [one, {**two, "logprobs": [1]}],
    ):
        with pytest.raises(Fault):
            tempered({"choices": choices}, [5, 6])


def test_the_law_is_found_out_by_asking():
    ones = [{1: -0.1, 2: -0.2}, {1: -0.2, 2: -2.2, 3: -4.2}]
    assert law_of(ones, [{1: -0.1, 2: -0.3}, {1: -0.1, 2: -4.1, 3: -8.1}]) == "processed"
    assert law_of(ones, ones) == "raw"
    assert law_of(ones, [{1: -0.1}, {1: -0.1, 2: -9.0, 3: -11.0}]) == "unclear"
    assert law_of([{1: -3.0, 2: -3.01}], [{1: -3.0, 2: -3.02}]) == "unclear"  # nothing to see
    assert len({tuple(row) for row in probe(37)}) == 2 and max(map(max, probe(37))) < 37
    assert mean_gap([-1.0, -2.0], [-1.5, -2.0]) == 0.25 and mean_gap([-1.0], [-math.inf]) == math.inf


def test_siblings_go_to_one_server_until_it_is_busier_than_the_others():
    servers = [Server(f"http://s{i}", None) for i in range(3)]
    homes = {name: choose(servers, name, 64) for name in map(str, range(60))}
    assert {server.url for server in homes.values()} == {server.url for server in servers}
    assert all(choose(servers, name, 64) is home for name, home in homes.items())
    left = servers[:2]
    assert all(choose(left, name, 64) is home for name, home in homes.items() if home in left)  # the others keep theirs
    home = homes["7"]
    home.live = 8
    assert choose(servers, "7", 64) is home
    home.live = 9
    assert choose(servers, "7", 64) is not home


def test_faults_are_told_once_and_their_tokens_with_them():
    tally = Tally()
    tally.add("timeout", 3)
    tally.add("timeout")
    tally.lose("unseen", 2)
    first, second = tally.take(), tally.take()
    assert (first.faults, first.tokens) == ({"timeout": 2}, {"timeout": 3, "unseen": 2})
    assert (second.faults, second.tokens) == ({}, {})
    assert tally.all() == {"timeout": 2} and tally.lost == 5
    assert json.dumps(dict(first.faults))
