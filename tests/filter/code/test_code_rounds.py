"""Code from a recipe to a batch: reward tables against their vectors, the offending line as a span, what nobody can say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.sandbox.settings import Sandbox
from gfcr.types import Status, StopReason, Task
from lifecycle_cases import batch_of, row_advantages
from sandbox_cases import needs_sandbox
from text_cases import through

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "code.json").read_text())
LIMITS = {"seconds": 1.0, "total_seconds": 3.0}


@needs_sandbox
@pytest.mark.parametrize("vector", GOLDEN["cases"], ids=lambda c: f"{c['score']}-{'-'.join(c['answers'])}")
def test_rewards_and_advantages_through_the_recipe_equal_the_golden_vector(vector: dict) -> None:
    answers = [GOLDEN["answers"][name] for name in vector["answers"]]
    task = Task("code", "Square it: f", GOLDEN["tests"])
    made, members = through(task, answers, verifiers=[{"name": "code", "score": vector["score"], "limits": LIMITS}])
    assert [m.signals.reward for m in members] == pytest.approx(vector["rewards"])
    assert [m.signals.correct for m in members] == [name == "right" for name in vector["answers"]]
    batch = batch_of(made)
    by_id = dict(zip(batch.rollout_ids, row_advantages(batch)))
    assert [by_id[m.rollout.id] for m in members] == pytest.approx(vector["advantages"], abs=1e-5)
    for name, member in zip(vector["answers"], members):
        spans = member.signals.verdicts["code"].spans
        if name in ("raises", "syntax"):
            ((start, end),) = [(s.start, s.end) for s in spans]
            text = GOLDEN["answers"][name]
            assert text[start:end] in ("return x / 0", "def f(x)")
            assert spans[0].kind == "line" and spans[0].value == (-0.3 if vector["score"] == "rltf" else None)
        else:
            assert spans == ()


@needs_sandbox
def test_rltf_blames_the_whole_program_where_no_line_is_to_blame() -> None:
    task = Task("code", "Square it: f", GOLDEN["tests"])
    deep = "def f(x):\n    return f(x)\n"
    said = "def f(x):\n    raise RuntimeError\n"
    _, members = through(
        task, [GOLDEN["answers"]["endless"], deep, said], verifiers=[{"name": "code", "score": "rltf", "limits": LIMITS}]
    )
    endless, recursive, runtime = (m.signals.verdicts["code"].spans for m in members)
    assert [(s.start, s.end, s.kind, s.value) for s in (*endless, *recursive)] == [
        (0, len(GOLDEN["answers"]["endless"]), "program", -0.3),
        (0, len(deep), "program", -0.3),
    ]
    assert [(said[s.start : s.end], s.kind, s.value) for s in runtime] == [("raise RuntimeError", "line", None)]


@needs_sandbox
def test_a_reference_that_cannot_be_used_leaves_the_answer_out_of_the_batch() -> None:
    task = Task("code", "f", {"type": "asserts", "code": "assert f( == 1"})  # seen when it is run, not before
    _, (a, b) = through(task, ["def f(): pass", "x"], verifiers=[{"name": "code"}])
    assert a.signals.status is b.signals.status is Status.UNSCORABLE and a.signals.reward is None
    assert "the tests" in a.signals.verdicts["code"].evidence


def test_a_task_of_another_kind_in_a_mixed_pool_is_unscorable() -> None:
    judge = Code(Code.Settings(sandbox=Sandbox(kind="weak")), None)
    verdict = judge.judge(Task("math", "6 * 7", "42"), "def f(): pass", StopReason.EOS)
    assert verdict.status is Status.UNSCORABLE and verdict.score is None and "the reference cannot be used" in verdict.evidence


def test_a_recipe_without_a_sandbox_is_refused_before_the_first_token() -> None:
    with pytest.raises(ConfigError, match="judged code cannot be cut off"):
        through(Task("code", "f", GOLDEN["tests"]), ["x"], verifiers=[{"name": "code", "sandbox": {"bwrap": "no-such-bwrap"}}])


@needs_sandbox
@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (
            "import builtins\nbuiltins.len = builtins.type = builtins.dict = builtins.isinstance = None\ndef f(x): return x * x\n",
            True,
        ),
        ("import os, sys\nos.write = sys.exit = None\nsys.modules.clear()\ndef f(x): return x * x\n", True),
        ("import os\nos.fork()\ndef f(x): return x * x\n", True),
        ("import os\ndef f(x):\n    os.fork()\n    return x * x\n", True),
        ("def f(x):\n    print('x' * 3_000_000)\n    return x * x\n", True),
        ("import os\ndef f(x):\n    os.write(1, b'x' * 3_000_000)\n    return x * x\n", True),
        ("def f(x):\n    while True: print('x' * 3_000_000)\n", False),
        ("def f(x):\n    return 'x' * 3_000_000\n", False),
        ("def f(x):\n    r = []\n    for _ in range(100000): r = [r]\n    return r\n", False),
    ],
)
def test_what_an_answer_breaks_or_prints_is_its_own_business(answer: str, right: bool) -> None:
    task = Task("code", "Square it: f", GOLDEN["tests"])
    _, (member, _) = through(task, [answer, "x"], verifiers=[{"name": "code", "limits": {"seconds": 3.0}}])
    assert member.signals.correct is right, member.signals.verdicts["code"].evidence
