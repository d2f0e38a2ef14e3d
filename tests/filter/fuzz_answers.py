"""Hostile answers for gates and verifiers: pieces that readers stumble over, put together at random; and every gate and verifier of this
room with tasks it can judge. `python tests/filter/fuzz_answers.py 20000` runs more of them outside CI.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gfcr.context import Build
from gfcr.registry import Slot, find, settings_of
from gfcr.types import Status, StopReason, Task, Verdict

PIECES = [
    "", " ", "\n", "\r\n", "\ufeff", "\u200b", "\x00", "\ud800", "é", "e\u0301", "的", "½", "²", "٣", "𝟛", "Ｂ", "ﬁ", "ß", "İ", "\u202e", "“", "”", "’", "−",
    "<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|python_tag|>", "[TOOL_CALLS]", "</s>", "<box>",
    "```", "```python\n", "```json\n", "~~~\n", "\n```\n", "`", "$", "$$", "\\(", "\\[", "\\boxed{", "\\text{", "\\frac{1}{2}", "\\left(", "}", "{", "[", "]", "(", ")",
    '"', "'", '"""', "\\", "\\u12", "/*", "*/", "//", "--", "#", "####", ";", ":", ",", ",,", ".", "..", "|", "&", "*", "**", "_", "~", "%", "=", ">>> ", "... ",
    "A", "B", "b", "(B)", "B.", "A or B", "a bee", "not B", "answer", "The answer is ", "Answer:", "final answer", "答案：", "None", "null", "true", "True", "NaN", "Infinity", "-0",
    "0", "1", "42", "1e5", "1e999999999", "-1", "0.5", "1,000", "1/0", "3 or 4", "9" * 400, "0x10", "0b1", "[1, 2, 3, 4]", "(1,2),(3,4)", '{"a": 1}', '{"name": "add", "arguments": ',
    "{'a': True}", '{"a": 1, "a": 2}', "twenty-one", "one", "million", "2.5 m", "250 cm", "two hundred and", "SELECT ", "FROM t", "WHERE ", "WITH a AS (", "INSERT", "ATTACH 'x'",
    "def f(", "return", "lambda:", "async ", "f'{", "print(", "import os", "\t", "if 1:", "- x\n", "1. y\n", "* z\n", "wait, no, that is wrong", "If the answer is B", "?", "!",
]  # fmt: skip
LONG = ["[", "(", "{", "a", "1", "-", "\\boxed{", "<answer>", "```\n", '{"a":', "the answer is ", "B or ", "not ", "(1,2", "ha ", "的", "' ", '"', ", ", "| a |\n", "<think>", "{{", "1+", "SELECT (", "/*", " ", "\n", " \n", "\\[", '\\"', "/**/", "1,111,", "!", "``` `", "- ", "answer ", "\\begin{a}", "</", "#"]  # fmt: skip
TOOL = json.dumps(
    {"name": "add", "parameters": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}}
)
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
STOPS = (*[StopReason.EOS] * 8, StopReason.MAX_TOKENS, StopReason.CANCELLED)


def texts(n: int, seed: int) -> Iterator[str]:
    """n hostile texts; one in twenty is long."""
    draw = random.Random(seed)
    for i in range(n):
        if i % 20 == 19:
            middle = draw.choice(LONG) * draw.choice([50, 400, 3000])
            yield (
                draw.choice(PIECES)
                + middle
                + draw.choice(PIECES)
                + (middle[: draw.randrange(50)] if draw.random() < 0.3 else "")
            )
        else:
            yield "".join(draw.choice(PIECES) for _ in range(draw.randrange(1, 14)))


def judges() -> list[tuple[Any, Task]]:
    """(gate or verifier, task) for every one of this room."""
    rows: list[tuple[Slot, str, dict[str, Any], Any]] = [
        (Slot.GATE, "parse", {"forms": ["boxed", "tags", "hash", "json", "fence", "stated", "last-number", "words"]}, None),
        (Slot.GATE, "sections", {"last": True}, None),
        (Slot.GATE, "json-schema", {"json_schema": SCHEMA}, None),
        (Slot.GATE, "code-compiles", {}, None),
        (Slot.GATE, "sql-parses", {}, None),
        (Slot.GATE, "tool-call", {"arguments": "schema"}, None),
        (Slot.GATE, "repetition", {}, None),
        (Slot.GATE, "language", {"language": "en", "letters": 5}, None),
        (Slot.GATE, "length", {"max_chars": 100, "min_words": 1, "max_lines": 5}, None),
        (Slot.VERIFIER, "choice", {}, "B"),
        (Slot.VERIFIER, "choice", {}, "A, C"),
        (Slot.VERIFIER, "choice", {}, "Yes"),
        (Slot.VERIFIER, "choice", {}, r"odd $n$"),
        (Slot.VERIFIER, "structured", {}, {"a": 1, "b": [1, {"c": None}]}),
        (Slot.VERIFIER, "structured", {"ordered": False, "rel_tol": 0.1, "partial": True, "number_text": True}, [1, 2, "x"]),
        (Slot.VERIFIER, "structured", {"kind": "list", "ordered": False, "partial": True}, ["x", 1, 0.5]),
        (Slot.VERIFIER, "structured", {"kind": "regex", "match": "search"}, r"\d+ or \w"),
        (Slot.VERIFIER, "structured", {}, "plain words"),
        (Slot.VERIFIER, "vision", {"kind": "iou"}, [1, 2, 3, 4]),
        (Slot.VERIFIER, "vision", {"kind": "iou"}, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        (Slot.VERIFIER, "vision", {"kind": "mra"}, "2.5 m"),
        (Slot.VERIFIER, "vision", {"kind": "count"}, 3),
        (Slot.VERIFIER, "vision", {"kind": "ocr"}, ["the answer", "42"]),
    ]
    made = []
    for slot, name, settings, reference in rows:
        task = Task("t", "q", reference, tools=(TOOL,), meta={"size": [10, 20]})
        found = find(slot, name)
        assert found.cls is not None
        made.append((found.cls(settings_of(found, settings), Build(0, [task], 1, 1, 8)), task))
    with_options = Task("t", "q", "Paris", meta={"choices": ["London", "Paris", "1", "not B"]})
    choice = find(Slot.VERIFIER, "choice")
    assert choice.cls is not None
    return [*made, (choice.cls(settings_of(choice, {}), Build(0, [with_options], 1, 1, 8)), with_options)]


def check(n: int, seed: int, slowest: float) -> Counter[str]:
    """Judge n texts with everything, twice; the statuses by judge. Raises AssertionError for a verdict that is none, that comes out
    otherwise the second time, that says right to an empty answer, or that takes longer than `slowest` seconds of CPU."""
    seen: Counter[str] = Counter()
    made = judges()
    draw = random.Random(seed + 1)
    for text in texts(n, seed):
        stop = draw.choice(STOPS)
        for judge, task in made:
            began = time.process_time()
            verdict = judge.judge(task, text, stop)
            took = time.process_time() - began
            assert isinstance(verdict, Verdict), (judge.name, text)
            assert took < slowest, (judge.name, took, text[:80])
            assert judge.judge(task, text, stop) == verdict, (judge.name, text)
            assert verdict.correct is None or verdict.status is Status.SCORED
            assert not verdict.correct or text.strip("\ufeff\u200b \r\n"), (judge.name, text)
            assert verdict.score is None or 0 <= verdict.score <= 1
            assert all(0 <= s.start < s.end <= len(text) for s in verdict.spans), (judge.name, text, verdict.spans)
            seen[f"{judge.name} {verdict.status}{'' if verdict.correct is None else f' {verdict.correct}'}"] += 1
    return seen


if __name__ == "__main__":
    began = time.monotonic()
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for key, count in sorted(check(number, int(sys.argv[2]) if len(sys.argv) > 2 else 0, 10.0).items()):
        print(f"{count:8} {key}")
    print(f"{number} texts in {time.monotonic() - began:.0f} s")
