"""No hostile text makes a gate or a verifier of answers raise, hang or say two things (more of them: fuzz_answers.py)."""

from __future__ import annotations

from fuzz_answers import check, judges


def test_hostile_answers() -> None:
    seen = check(150, 7, 3.0)
    assert sum(seen.values()) == 150 * len(judges())
    gates = {key.split()[0] for key in seen if key.endswith("invalid")}
    assert gates == {
        "parse",
        "sections",
        "json-schema",
        "code-compiles",
        "sql-parses",
        "tool-call",
        "language",
        "length",
    }  # each refuses some
    assert {key.split()[0] for key in seen if key.endswith("False")} == {"choice", "structured", "vision"}
