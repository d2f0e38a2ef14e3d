"""Rounds for a foreign trainer over HTTP: what the engine lost is in the books and in the metrics of the round it was lost in."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "http"))
sys.path.insert(0, str(Path(__file__).parents[1] / "run"))

from bench import resume
from front import Front
from proxy import Proxy

from gfcr.build import build
from gfcr.integrations.rounds import Rounds
from gfcr.recipe import load


def test_faults_of_every_round_are_told_and_their_tokens_booked(tmp_path):
    server = Front()
    proxy = Proxy(server.port, share=0.0, seed=5)
    http = f'{{urls = ["{proxy.url}"], seconds = 8.0, pause = 0.01, attempts = 12}}'
    overrides = [*resume.small(tmp_path), "engine.name=vllm", f"engine.http={http}", "engine.slots=32", "budget.steps=3"]
    parts = build(load("grpo", [*overrides, "control.groups=4", "filter.admission.drop_zero_variance=false"]), 1)
    source = Rounds(parts, tmp_path / "run")
    sampled, aside = server.sampled(), parts.engine.aside
    proxy.share = 0.2
    fed = []
    while True:
        source.publish(len(fed), parts.trainer.weights())
        if (one := source.next()) is None:
            break
        fed.append(one)
    source.faults.of_the_rest()  # of the last publication, which no round followed
    total = source.ledger.total
    assert total.generated + total.evaluated + parts.engine.aside - aside == server.sampled() - sampled
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = sum(sum(row["engine_faults"].values()) for row in rows)
    assert len(fed) == 3 and told + sum(source.faults.row()["engine_faults"].values()) == sum(proxy.injected.values()) > 5
    assert told > 3 and source.budget.spent == total.generated
    assert rows[-1]["tokens_discarded"] == sum(rows[-1]["discarded_by_reason"].values())
    source.close()
    proxy.close()
    server.kill()
