"""Stops, cancelling, bad requests, weights, failures: what the contract says at its edges."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_helpers import VOCABULARY, drain, make_engine, make_model, node, request, run, shared_engine
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM, T5Config, T5ForConditionalGeneration

from gfcr.engine import features_of
from gfcr.engine.contract import ScoreItem, WeightsRef
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.embedded.weights import file_digest
from gfcr.engine.models import load_model, load_tokenizer
from gfcr.errors import ConfigError, DataError
from gfcr.types import Sampling, StopReason

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789#"


def decode(ids):
    return "".join(LETTERS[i] for i in ids)


def test_any_of_several_end_tokens_ends_the_stream_and_is_returned():
    engine = shared_engine()
    free = run(engine, [request("x", [1, 2, 3], 60, key=7)])["x"].ids
    ends = (int(free[40]), int(free[9]), 36)
    first = min(int(np.flatnonzero(free == e)[0]) for e in ends if e in free)
    out = run(engine, [request("x", [1, 2, 3], 60, key=7, eos=ends)])["x"]
    assert out.stop is StopReason.EOS
    assert out.ids.tolist() == free[: first + 1].tolist()


def test_the_pad_token_may_be_the_end_token():
    engine = shared_engine()
    rng = np.random.default_rng(0)
    contexts = [np.concatenate([rng.integers(0, VOCABULARY, n), [0, 0, 5, 0]]) for n in (1, 9, 30)]
    out = run(engine, [request(f"r{i}", c, 80, key=i, eos=(0,)) for i, c in enumerate(contexts)])
    for i, context in enumerate(contexts):
        alone = run(engine, [request("x", context, 80, key=i)])["x"].ids
        hits = np.flatnonzero(alone == 0)
        assert out[f"r{i}"].ids.tolist() == (alone[: hits[0] + 1] if len(hits) else alone).tolist()


def test_stop_strings_are_found_across_token_borders():
    engine = make_engine(decode=decode)
    free = run(engine, [request("x", [1, 2], 60, key=3)])["x"].ids
    text = decode(free)
    stop = text[41:44]
    out = run(engine, [request("x", [1, 2], 60, key=3, strings=("never!", stop)), request("y", [4], 30, key=5)])
    assert out["x"].stop is StopReason.STOP_STRING
    assert decode(out["x"].ids) == text[: text.index(stop) + 3]
    assert out["y"].stop is StopReason.MAX_TOKENS


def test_limits_have_their_own_reasons():
    engine = make_engine(max_length=20)
    out = run(engine, [request("full", np.arange(15), 9), request("max", np.arange(15), 5), request("one", np.arange(19), 3)])
    assert (out["full"].stop, len(out["full"].ids)) == (StopReason.CONTEXT_FULL, 5)
    assert (out["max"].stop, len(out["max"].ids)) == (StopReason.MAX_TOKENS, 5)
    assert (out["one"].stop, len(out["one"].ids)) == (StopReason.CONTEXT_FULL, 1)


def test_cancel_gives_back_what_was_not_returned():
    engine = make_engine(slots=2)
    want = run(engine, [request("a", [1, 2], 30, key=1)])["a"]
    for name, n in (("a", 30), ("b", 9), ("queued", 30)):
        engine.submit(request(name, [1, 2], n, key=1))
    queued = engine.cancel("queued")
    assert (len(queued.ids), queued.stop) == (0, StopReason.CANCELLED)
    assert [c.request for c in engine.step()] == ["b"]
    chunk = engine.cancel("a")
    assert chunk.stop is StopReason.CANCELLED
    assert chunk.ids.tolist() == want.ids[: len(chunk.ids)].tolist()
    assert len(chunk.ids) == 9
    assert engine.cancel("a") is None
    assert engine.cancel("nobody") is None
    assert engine.live() == 0
    assert engine.step() == []


def test_priorities_go_first_and_equal_ones_in_order():
    engine = make_engine(slots=1)
    for name, priority in (("late", 5), ("a", 1), ("b", 1), ("urgent", 0)):
        engine.submit(request(name, [1], 2, priority=priority))
    assert list(drain(engine)) == ["urgent", "a", "b", "late"]


BAD = [
    ({"ids": [], "n": 3}, "no tokens"),
    ({"ids": np.zeros(256), "n": 3}, "leaves no room"),
    ({"ids": [1], "n": 0}, "at least 1"),
    ({"ids": [1, 37], "n": 3}, "vocabulary"),
    ({"ids": [1], "n": 3, "eos": (99,)}, "stop.eos"),
    ({"ids": [1], "n": 3, "strings": ("x",)}, "decode="),
    ({"ids": [1], "n": 3, "fork_of": "nobody", "fork_at": 1}, "neither live nor retained"),
    ({"ids": [1, 2], "n": 3, "fork_of": "live", "fork_at": 2}, "differs from its parent"),
    ({"ids": [1, 3], "n": 3, "fork_of": "live", "fork_at": 9}, "must lie in"),
    ({"ids": [1], "n": 3, "name": "live"}, "unique"),
    ({"ids": [1], "n": 3, "sampling": Sampling(banned=(37,))}, "banned"),
    ({"ids": [1], "n": 3, "sampling": Sampling(banned=tuple(range(37)))}, "whole vocabulary"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_request_is_refused_and_nothing_is_lost(bad, message):
    engine = shared_engine()
    engine.submit(request("live", [1, 3, 5], 20, key=6))
    engine.step(2)
    with pytest.raises(ValueError, match=message):
        engine.submit(request(**{"name": "bad", **bad}))
    assert engine.live() == 1
    assert len(drain(engine)["live"].ids) == 18
    with pytest.raises(ValueError, match="tokens=0"):
        engine.step(0)


def test_load_is_refused_while_requests_live_and_replaces_weights_whole():
    engine = make_engine(seed=0)
    other = make_model(seed=1)
    before = engine.fingerprint()
    engine.submit(request("x", [1, 2, 3], 9, retain=True))
    with pytest.raises(RuntimeError, match="1 requests are live"):
        engine.load(WeightsRef(1, "memory:"), other.state_dict())
    drain(engine)
    for broken, message in (({"nothing": torch.zeros(1)}, "no tensor"), ({}, "missing")):
        with pytest.raises(DataError, match=message):
            engine.load(WeightsRef(1, "memory:"), broken)
    wrong = {**other.state_dict(), "model.norm.weight": torch.zeros(3)}
    with pytest.raises(DataError, match="shape"):
        engine.load(WeightsRef(1, "memory:"), wrong)
    assert engine.fingerprint() == before
    engine.load(WeightsRef(1, "memory:"), other.state_dict())
    assert engine.fingerprint() == EmbeddedEngine(make_model(seed=1), EmbeddedSettings()).fingerprint() != before
    assert run(engine, [request("y", [1], 2)])["y"].version == 1
    with pytest.raises(ConfigError, match="adapter"):
        engine.load(WeightsRef(2, "memory:", kind="adapter"), {})


def test_nothing_computed_under_old_weights_survives_a_load():
    engine, prompt = make_engine(seed=0), np.arange(20)
    run(engine, [request("p", prompt, 5, key=1, retain=True)])
    engine.load(WeightsRef(1, "memory:"), make_model(seed=1).state_dict())
    with pytest.raises(ValueError, match="neither live nor retained"):
        engine.submit(request("f", prompt, 5, key=2, fork_of="p", fork_at=20))
    got = run(engine, [request("f", prompt, 30, key=2)])["f"]
    fresh = run(make_engine(seed=1), [request("f", prompt, 30, key=2)])["f"]
    assert got.ids.tolist() == fresh.ids.tolist()
    assert got.logprobs.tobytes() == fresh.logprobs.tobytes()


def test_loaded_tensors_are_copied():
    engine, other = make_engine(), make_model(seed=1)
    engine.load(WeightsRef(1, "memory:"), other.state_dict())
    before = engine.fingerprint()
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(2)
    assert engine.fingerprint() == before


def test_weights_from_files_are_verified(tmp_path):
    engine, other = make_engine(), make_model(seed=1)
    tied_left_out = {k: v.clone() for k, v in other.state_dict().items() if k != "lm_head.weight"}
    save_file(tied_left_out, tmp_path / "model.safetensors")
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    assert file_digest(tmp_path) == digest
    with pytest.raises(DataError, match="sha256"):
        engine.load(WeightsRef(1, str(tmp_path), "0" * 64))
    engine.load(WeightsRef(1, str(tmp_path), digest))
    engine.load(WeightsRef(2, str(tmp_path / "model.safetensors"), digest))
    assert engine.fingerprint() == EmbeddedEngine(make_model(seed=1)).fingerprint()
    with pytest.raises(DataError, match="no safetensors"):
        engine.load(WeightsRef(3, str(tmp_path / "nowhere")))
    (tmp_path / "model.safetensors").write_bytes(b"\x08" * 100)
    with pytest.raises(DataError, match="cannot be read"):
        engine.load(WeightsRef(3, str(tmp_path)))


@pytest.mark.parametrize("law", [Sampling(), Sampling(temperature=0), Sampling(top_k=3, temperature=0.5)])
def test_non_finite_weights_fail_the_request_and_nothing_else(law):
    engine = make_engine()
    broken = {k: v.clone() for k, v in make_model().state_dict().items()}
    broken["model.norm.weight"][3] = float("nan")
    engine.load(WeightsRef(1, "memory:"), broken)
    out = run(engine, [request(f"r{i}", np.arange(1, 9), 5, law, key=i) for i in range(3)])
    assert {(c.stop, len(c.ids)) for c in out.values()} == {(StopReason.FAILED, 0)}
    engine.load(WeightsRef(2, "memory:"), make_model().state_dict())
    again = run(engine, [request("x", np.arange(1, 9), 12, law, key=1)])["x"]
    assert again.ids.tolist() == run(make_engine(), [request("x", np.arange(1, 9), 12, law, key=1)])["x"].ids.tolist()


def test_one_failing_row_leaves_its_neighbours_alone():
    engine = make_engine()
    requests = [request(f"r{i}", np.arange(1, 9 + i), 30, key=i) for i in range(6)]
    want = run(engine, requests)
    for one in requests:
        engine.submit(one)
    parts = {c.request: c.ids for c in engine.step(8)}
    pool = engine._core.pool
    with torch.inference_mode():
        pool.keys[1][pool.owner[: pool.active].tolist().index(engine._running["r2"].slot)] = float("nan")
    out = drain(engine)
    assert out["r2"].stop is StopReason.FAILED
    for name, chunk in out.items():
        if name != "r2":
            assert np.concatenate([parts[name], chunk.ids]).tolist() == want[name].ids.tolist()


def test_scoring_says_what_it_cannot_score():
    engine = shared_engine()
    ids = np.arange(6, dtype=np.int32)
    scored = engine.score(
        [ScoreItem("a", ids, ((2, 4, Sampling()), (5, 6, Sampling(temperature=0.5)))), ScoreItem("none", ids, ())]
    )
    assert np.isnan(scored[0].logprobs).tolist() == [True, True, False, False, True, False]
    assert np.isnan(scored[1].entropy).all()
    for span in ((0, 3), (3, 3), (2, 7)):
        with pytest.raises(ValueError, match="token 0 has no context"):
            engine.score([ScoreItem("a", ids, ((*span, Sampling()),))])
    with pytest.raises(ValueError, match="the model takes"):
        engine.score([ScoreItem("a", np.zeros(300, np.int32), ())])


def test_architectures_it_cannot_serve_are_refused_with_the_reason():
    small = {"vocab_size": 20, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    with pytest.raises(ConfigError, match="encoder-decoder"):
        EmbeddedEngine(
            T5ForConditionalGeneration(T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
        )
    model = make_model()
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigError, match="linear_attention"):
        EmbeddedEngine(model)
    model = make_model()
    model.model.layers[1].self_attn.scaling *= 1.5
    engine = EmbeddedEngine(model)  # consistent in both paths: served
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(request("x", [1], 1))
    GPT2LMHeadModel(GPT2Config(**small))  # plain attention with learned positions is served too
    assert EmbeddedEngine(GPT2LMHeadModel(GPT2Config(**small)), EmbeddedSettings(max_length=32)).check.difference <= 1e-4


def test_the_start_up_check_refuses_a_wrong_engine(monkeypatch):
    from gfcr.engine.embedded import passes

    real = passes.DecodePass.mask
    monkeypatch.setattr(passes.DecodePass, "mask", lambda self, window: real(self, window) * 0)
    with pytest.raises(ConfigError, match="start-up check"):
        make_engine()


def test_a_module_changed_behind_the_engines_back_is_an_error():
    engine = make_engine("phi")
    engine.submit(request("x", [1, 2, 3], 9))
    engine.step(2)
    engine._model.module.set_attn_implementation("sdpa")
    with pytest.raises(ConfigError, match="0 of the model's 2 layers"):
        engine.step(1)


def test_sliding_windows_are_enforced_by_mask():
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=32,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
            max_position_embeddings=128,
            initializer_range=0.2,
        )
    )
    assert "sliding_attention" in model.config.layer_types
    engine = EmbeddedEngine(model)
    requests = [request("a", np.arange(30), 40, key=1), request("b", np.arange(5), 60, key=2)]
    out = run(engine, requests)
    model.set_attn_implementation("sdpa")
    for one in requests:
        ids = np.concatenate([one.path[0].segment.ids, out[one.id].ids])
        with torch.no_grad():
            want = torch.log_softmax(model(torch.from_numpy(ids)[None].long()).logits[0], -1)
        n = len(one.path[0].segment)
        got = want[np.arange(n - 1, len(ids) - 1), ids[n:]].numpy()
        assert np.abs(got - out[one.id].logprobs).max() < 5e-5


def test_capabilities_keep_their_word():
    capabilities = shared_engine().capabilities()
    assert capabilities.features == features_of("embedded")
    assert (capabilities.max_length, capabilities.vocabulary) == (256, VOCABULARY)
    with pytest.raises(ConfigError, match="slots"):
        EmbeddedSettings(slots=0)
    assert replace(EmbeddedSettings(), slots=4).slots == 4


def test_models_that_cannot_be_read_name_the_directory(tmp_path):
    for load in (load_model, load_tokenizer):
        with pytest.raises(ConfigError, match="nowhere"):
            load(tmp_path / "nowhere")
        with pytest.raises(ConfigError, match="holds no"):
            load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ConfigError, match="cannot be read"):
        load_model(tmp_path)
    make_model().save_pretrained(tmp_path / "good")
    assert EmbeddedEngine(load_model(tmp_path / "good")).fingerprint() == make_engine().fingerprint()


def test_a_fork_never_reads_another_request_that_took_its_parents_name():
    engine = make_engine(slots=1)
    want = run(engine, [request("f", np.arange(1, 13), 9, key=5)])["f"]
    engine.submit(request("p", np.arange(1, 13), 3, key=1))
    engine.step(1)
    engine.submit(request("f", np.arange(1, 13), 9, key=5, fork_of="p", fork_at=12, priority=1))
    assert engine.step()[0].request == "p"
    engine.submit(request("p", np.arange(20, 35), 9, key=2))
    assert drain(engine)["f"].ids.tolist() == want.ids.tolist()


def test_ids_can_be_reused_and_a_retained_request_resumed_under_its_own_name():
    engine = shared_engine()
    first = run(engine, [request("x", [1, 2, 3], 10, key=8, retain=True)])["x"]
    path = (node([1, 2, 3]), node(first.ids))
    rest = run(engine, [request("x", path, 10, key=8, fork_of="x", fork_at=13)])["x"]
    whole = run(engine, [request("x", [1, 2, 3], 20, key=8)])["x"]
    assert np.concatenate([first.ids, rest.ids]).tolist() == whole.ids.tolist()
    assert engine._core.pool is None
