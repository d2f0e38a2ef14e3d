"""SmolLM2-135M on a real vLLM server: ten training steps with a reload of all weights each. Needs `make smollm2`."""

from __future__ import annotations

import pytest
from vllm_cases import Watched

from gfcr.engine import smollm2
from gfcr.engine.http.untie import untie
from gfcr.engine.models import load_tokenizer

PORT = 8321


@pytest.fixture(scope="module")
def place():
    found = smollm2.place()
    if not (found / "config.json").is_file():
        pytest.skip("SmolLM2 is not there: make smollm2")
    return found


@pytest.fixture(scope="module")
def server(vllm, place, tmp_path_factory):
    started = vllm(
        untie(place, tmp_path_factory.mktemp("smollm2") / "untied"), PORT, "--max-model-len", "1024", "--block-size", "32"
    )
    yield started
    started.kill()


def test_ten_steps_with_a_reload_each(tmp_path, server, place):
    tokenizer = load_tokenizer(place)
    texts = ["The capital of France is", "12 + 7 =", "Once upon a time there was", "Water boils at"]
    overrides = [
        "engine.name=vllm",
        f'engine.http={{urls = ["{server.url}"], seconds = 300}}',
        f"model.path={place}",
        'generate.topology={name = "group", k = 4}',
        "generate.max_tokens=16",
        "control.groups=2",
        "control.min_groups=1",
        "budget.steps=10",
        "evaluate.every_tokens=none",
        "evaluate.limit=4",
        "evaluate.samples=1",
        "run.checkpoint_every=10",
    ]
    watched = Watched(tmp_path / "run", "smollm2_answer_tags", overrides, [tokenizer.encode(text) for text in texts], 12)
    counts = watched.go(server)
    print("smollm2", counts, "worst gaps", watched.worst, "published gap", max(r["published_gap"] for r in watched.rows))
    assert [row["step"] for row in watched.rows] == list(range(11))
    assert len({row["published_fingerprint"] for row in watched.rows}) == len({row["version"] for row in watched.rows}) > 1
    assert max(watched.worst.values()) < 1e-3
    assert counts["server generated"] == counts["ledger generated"]
    assert counts["server prompts"] == counts["ours prompts"]
