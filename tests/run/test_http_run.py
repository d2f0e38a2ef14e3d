"""Whole runs over HTTP: the session, its ledger and its metrics, with a proxy that spoils a fifth of all replies."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "http"))

import pytest
from front import Front
from proxy import Proxy
from real_runs import create

from gfcr.run.directory import RunDirectory
from gfcr.run.session import Session


def started(path, url, *more):
    http = f'{{urls = ["{url}"], seconds = 8.0, pause = 0.01, attempts = 12}}'
    return create(
        path,
        "engine.name=vllm",
        f"engine.http={http}",
        "engine.slots=32",
        "control.groups=4",
        "budget.steps=3",
        "evaluate.limit=4",
        *more,
        recipe="grpo",
    )


@pytest.fixture(scope="module")
def server():
    front = Front()
    yield front
    front.kill()


def booked(session, aside):
    """Tokens in the ledger, and those that scoring had to sample."""
    total = session.ledger.total
    return total.generated + total.evaluated + session.parts.engine.aside - aside


def test_a_run_through_a_proxy_that_spoils_a_fifth_of_all_replies(tmp_path, server):
    proxy = Proxy(server.port, share=0.0, seed=5, twice=0.02)
    session = started(tmp_path / "run", proxy.url)
    sampled, aside = server.sampled(), session.parts.engine.aside
    proxy.share = 0.2
    assert session.run() == "steps"
    assert booked(session, aside) == server.sampled() - sampled
    with RunDirectory.read(tmp_path / "run") as run:
        rows = run.metrics()
        groups = [group for step in (1, 2, 3) for group in run.groups(step)]
    faults = sum(sum(row["engine_faults"].values()) for row in rows)
    injected = sum(proxy.injected.values()) - proxy.injected["twice"]
    assert faults == injected > 10
    assert all(len(group.members) == group.planned for group in groups)  # nothing lost
    last = rows[-1]
    assert last["tokens_discarded"] == sum(last["discarded_by_reason"].values()) > 0
    assert last["published_gap"] < 1e-4 and last["step"] == 3
    assert len({row["published_fingerprint"] for row in rows}) == 4
    proxy.close()


def test_a_run_goes_on_from_its_last_commit_with_the_server_started_anew(tmp_path):
    front = Front()
    session = started(tmp_path / "run", front.url, "budget.steps=2")
    rows = []
    session.progress = lambda row: (rows.append(row), front.kill() if row["step"] == 1 else None)
    session.parts.engine._pool.outage = 0.5
    with pytest.raises(Exception, match=r"no_server|took version|answers the probe|scored"):
        session.run()
    front.start()
    assert Session.resume(tmp_path / "run").run() == "steps"
    with RunDirectory.read(tmp_path / "run") as run:
        assert [row["step"] for row in run.metrics()] == [0, 1, 2]
        assert run.metrics()[-1]["published_gap"] < 1e-4
    front.kill()
