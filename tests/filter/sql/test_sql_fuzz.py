"""A part of the generated queries (tests/fuzz/sql_queries.py runs thousands): no fault, no hang, memory as it was."""

from __future__ import annotations

from fuzz.sql_queries import run


def test_a_hundred_generated_queries() -> None:
    found = run(100, seed=1, seconds=0.2)
    assert found.faults == [] and found.queries == 100
    assert found.slowest < 20  # wall limit .8 s per query, a killed process, a crowded machine
    assert found.outcomes["right"] >= 34 and found.outcomes["other rows"] >= 5 and len(found.outcomes) >= 8
    assert found.memory[-1] - found.memory[0] < 64 << 20
