"""Exactness of JSON, arrays and states, for values nobody thought of."""

from __future__ import annotations

import json
import math
from collections import Counter
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from store_examples import groups, same, tree

from gfcr.run.exact_json import dumps, dumps_exact, loads
from gfcr.run.failures import RunDirectoryError
from gfcr.run.payload import Payload, read_array
from gfcr.run.state import decode_state, encode_state
from gfcr.types import Artifact, ArtifactKind, GroupState, Rollout

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner)
        | st.frozensets(st.integers())
        | st.sets(st.text())
    ),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_exact_json_gives_back_value_and_types(value: Any) -> None:
    text = dumps_exact(value)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    same(value, loads(text))


@given(plain)
def test_fast_json_too(value: Any) -> None:
    text = dumps(value)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    same(value, loads(text))


def test_tags_cannot_be_forged() -> None:
    for value in ({"$float": "nan"}, {"$tuple": [1]}, {"a": '"$x'}, ["$dict"], {"$same": 0}):
        same(value, loads(dumps(value)))
        same(value, loads(dumps_exact(value)))


def test_numbers_of_numpy_and_enums_become_plain() -> None:
    found = loads(dumps([np.float32(0.1), np.int64(3), np.bool_(True), GroupState.OPEN, np.float64(-0.0)]))
    same([float(np.float32(0.1)), 3, True, "open", -0.0], found)
    assert [type(x) for x in found] == [float, int, bool, str, float]


@settings(max_examples=200)
@given(
    hnp.arrays(
        st.sampled_from(["<f4", "<f8", ">i2", "?", "<u8", "<c16", "<U3", "S2"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    )
)
def test_arrays_keep_every_bit(array: np.ndarray) -> None:
    payload = Payload()
    payload.add(b"odd")
    reference = loads(dumps(payload.array(array)))
    found = read_array(payload.bytes(), reference)
    same(array, found)
    assert not found.flags.writeable


@given(st.lists(st.tuples(st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan]), st.integers(1, 400)), max_size=6))
def test_runs_keep_every_bit_and_save_space(runs: list[tuple[float, int]]) -> None:
    array = np.concatenate([np.empty(0, np.float32), *(np.full(n, x, np.float32) for x, n in runs)])
    payload = Payload()
    reference = payload.array(array)
    same(array, read_array(payload.bytes(), reference))
    assert payload.size <= max(64, 16 * len(runs) + 16, 0 if len(array) > 200 else array.nbytes + 8)


def test_state_keeps_arrays_scalars_types_and_sharing() -> None:
    root = tree().members["tree0"].rollout.path[0]
    state = {
        "a": np.arange(6).reshape(2, 3),
        "s": np.float32(0.1),
        "n": (1, [2.0, None]),
        3: {"x", "y"},
        "e": GroupState.PARKED,
        "groups": groups(),
        "nodes": [root, root],
        "counter": Counter("abca"),
        "view": MappingProxyType({"k": b"\0"}),
        "artifact": Artifact("z", ArtifactKind.TRAJECTORY, "t", tree().members["tree1"].rollout, {"why": (1, 2)}),
    }
    found = decode_state(encode_state(state, lambda rollout: None), lambda step, key: pytest.fail("nothing was stored"))
    same(
        {k: v for k, v in state.items() if k not in ("groups", "artifact")},
        {k: v for k, v in found.items() if k not in ("groups", "artifact")},
    )
    same(state["groups"], found["groups"])
    same(state["artifact"], found["artifact"])
    assert found["nodes"][0] is found["nodes"][1] and found["a"].flags.writeable
    assert type(found["s"]) is np.float32 and found["e"] is GroupState.PARKED


def test_state_refers_to_stored_rollouts() -> None:
    rollout = tree().members["tree1"].rollout
    body = encode_state({"kept": [rollout, rollout]}, lambda found: (3, 7) if found is rollout else None)
    assert len(body) < 200

    def fetch(step: int, key: int) -> Rollout:
        assert (step, key) == (3, 7)
        return rollout

    assert decode_state(body, fetch)["kept"] == [rollout, rollout]


def test_a_state_names_only_types_of_gfcr() -> None:
    for name in ("os:system", "gfcr.run.files:remove", "gfcr.errors:GfcrError", "gfcr.types.nothing:X"):
        text = dumps_exact({}).replace("{}", json.dumps({"x": {"$object": [name, {}]}})).encode()
        body = len(text).to_bytes(8, "little") + text + b"\0" * (-len(text) % 8)
        with pytest.raises(RunDirectoryError, match=r"which this gfcr does not have\n.*card.json"):
            decode_state(body, lambda step, key: pytest.fail("no rollout"))
