"""Gates on programs, queries and tool calls. Right answers in odd formats pass."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from gate_cases import judge, passes

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.gates.tools import ToolCall
from gfcr.types import Status, Task

CODE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"```python\n{CODE}```",
        f"```Python\n{CODE}```",
        f"```py\r\n{CODE}```\r\n".replace("\n", "\r\n"),
        f"```\n{CODE}```",
        f"~~~python\n{CODE}~~~",
        f"````python\n{CODE}````",
        f"```{{.python}}\n{CODE}```",
        f"Here:\n\n```python\n{CODE}```\n\nIt adds one. Run it with:\n\n```bash\npython f.py\n```",
        f"First try:\n```python\ndef f(x:\n```\nNo.\n```python\n{CODE}```",
        f"```python\n{CODE}",
        f"\ufeff{CODE}",
        "1. Like this:\n\n   ```python\n   def f(x):\n       return x + 1\n   ```",
        ">>> def f(x):\n...     return x + 1\n...\n>>> f(1)\n2",
        f"<think>def f(</think>\n{CODE}",
        f"I think so.</think>\n```python\n{CODE}```",
        "```python\ns = '<think>'\n```",
        's = """\n```\n(\n```\n"""',
        "def ф(x): return x  # ünïcode “quotes”",
        "print(1) ; x = 'It’s'",
        json.dumps({"a.py": CODE, "b.py": "import a", "data.txt": "((("}),
        "x = 1\n" * 20_000,
    ],
)
def test_programs_in_odd_formats_pass(text: str) -> None:
    verdict = judge("code-compiles", text)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no program"),
        ("```python\n```", "no program|invalid"),
        ("```python\ndef f(x:\n    return\n```", "line 1"),
        ("I cannot do that, sorry.", "line 1"),
        ("```python\nreturn 5\n```", "outside function"),
        ("```python\nx = \x00\n```", "null"),
        ("```python\n" + "(" * 5000 + "\n```", "nested|closed|never"),
        ("```python\n" + "-" * 100_000 + "1\n```", "nested too deeply"),
        ("```python\nx = " + ".a" * 50_000 + "\n```", "line|deeply"),
        (json.dumps({"a.py": "def", "b.py": ""}), "a.py: line 1"),
    ],
)
def test_what_does_not_compile_is_refused_with_its_line(text: str, why: str) -> None:
    import re

    verdict = judge("code-compiles", text)
    assert verdict.status is Status.INVALID and re.search(why, verdict.evidence), verdict.evidence


def test_a_fence_can_be_required() -> None:
    assert passes("code-compiles", CODE) and not passes("code-compiles", CODE, need_fence=True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select a, count(*) from t where x = 'it''s; fine' group by a having count(*) > 1 order by 2 desc limit 3;",
        "SELECT 1;;\n",
        "SELECT 1; -- done",
        "```sql\nSELECT * FROM nowhere\n```",
        "```SQL\r\nSELECT *\r\nFROM nowhere;\r\n```",
        "```sqlite\nSELECT 1\n```\nThis gives one.",
        "```\nSELECT 1\n```",
        "~~~sql\nSELECT 1\n~~~",
        "``` SELECT 1 ```",
        "<answer>SELECT 1</answer>",
        "<sql>SELECT 1</sql>",
        "<think>SELEC</think>SELECT 1",
        "\ufeffSELECT 1",
        "/* hm */ SELECT 1",
        "-- hm\nSELECT 1",
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a UNION ALL SELECT 2",
        "EXPLAIN SELECT 1",
        "EXPLAIN QUERY PLAN SELECT 1",
        'SELECT `a b`, [c d], "e f" FROM "g h"',
        "SELECT x, row_number() OVER (PARTITION BY y ORDER BY z) FROM t WHERE a = ?1 AND b = :name",
        "VALUES (1, 2), (3, 4)",
        "INSERT INTO t(a) VALUES (1)",
        "SELECT '<think>'",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE t SET a = 1; DELETE FROM t; END",
    ],
)
def test_queries_in_odd_formats_pass(text: str) -> None:
    verdict = judge("sql-parses", text)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no query"),
        (";", "no query"),
        ("SELCT 1", "syntax error"),
        ("SELECT a FROM", "incomplete|syntax"),
        ("SELECT 'a", "unrecognized token"),
        ("I cannot answer this.", "syntax error"),
        ("```sql\nSELECT (1\n```", "incomplete|syntax"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT 1; DROP TABLE t", "several statements"),
        ("SELECT " + "(" * 5000 + "1", "parser stack overflow|incomplete"),
    ],
)
def test_what_is_no_sql_is_refused(text: str, why: str) -> None:
    import re

    verdict = judge("sql-parses", text)
    assert verdict.status is Status.INVALID and re.search(why, verdict.evidence), verdict.evidence


def test_nothing_is_run_expanded_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    doubling = "WITH a0 AS (SELECT 1)" + "".join(f", a{i} AS (SELECT * FROM a{i - 1}, a{i - 1})" for i in range(1, 40))
    for query in (
        "ATTACH 'x.db' AS x",
        "VACUUM INTO 'x.db'",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        f"{doubling} SELECT * FROM a39",
        "SELECT load_extension('x')",
    ):
        assert passes("sql-parses", query)
    assert list(tmp_path.iterdir()) == []
    assert passes("sql-parses", "SELECT 1; SELECT 2", one=False)


TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "required": ["a", "b"],
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        },
    },
}
PLAIN = {"name": "now", "parameters": {"type": "object", "properties": {}}}
TASK = Task("t", "q", None, tools=(json.dumps(TOOL), json.dumps(PLAIN)))
CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'


@pytest.mark.parametrize(
    "text",
    [
        "No tool is needed: 3.",
        "Use {braces} as you like, or [1].",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<TOOL_CALL>{CALL}</TOOL_CALL>",
        f"Let me see.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
        f"<tool_call>{CALL}",
        f"<tool_call>\r\n```json\r\n{CALL}\r\n```\r\n</tool_call>",
        f"<|python_tag|>{CALL}<|eom_id|>",
        f"[TOOL_CALLS][{CALL}, {CALL}]",
        CALL,
        f"[{CALL}]",
        f"```json\n{CALL}\n```",
        '{"name": "add", "parameters": {"a": 1, "b": 2}}',
        '{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}}',
        '{"function": "add", "parameters": {"a": 1, "b": 2}}',
        "<tool_call>{'name': 'add', 'arguments': {'a': 1, 'b': 2,}}</tool_call>",
        '<tool_call>{"name": "now"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": null}</tool_call>',
        '<tool_call>{"name": "now", "arguments": ""}</tool_call>',
        f"<think>perhaps {{</think><tool_call>{CALL}</tool_call><|im_end|>",
        '```json\n{"result": 5}\n```',
    ],
)
@pytest.mark.parametrize("arguments", ["any", "required", "schema"])
def test_calls_in_odd_formats_pass(text: str, arguments: str) -> None:
    verdict = judge("tool-call", text, task=TASK, arguments=arguments)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<tool_call></tool_call>", "no JSON"),
        ('<tool_call>{"name": "add", </tool_call>', "no JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', "names no tool"),
        ("<tool_call>[]</tool_call>", "empty list"),
        ("<tool_call>5</tool_call>", "no object"),
        ('<tool_call>{"name": "sub", "arguments": {}}</tool_call>', "there is no tool 'sub'"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', "lacks the argument 'b'"),
        ('<tool_call>{"name": "add", "arguments": [1, 2]}</tool_call>', "not an object"),
        ('<tool_call>{"name": "add", "arguments": "1, 2"}</tool_call>', "arguments are no JSON"),
        (f'<tool_call>{CALL}</tool_call><tool_call>{{"name": 1}}</tool_call>', "call 2: it names no tool"),
    ],
)
def test_broken_calls_are_named(text: str, why: str) -> None:
    verdict = judge("tool-call", text, task=TASK)
    assert verdict.status is Status.INVALID and why in verdict.evidence, verdict.evidence


def test_need_schema_and_bad_tools() -> None:
    assert not passes("tool-call", "3", task=TASK, need=True)
    wrong = '<tool_call>{"name": "add", "arguments": {"a": "1", "b": 2}}</tool_call>'
    assert passes("tool-call", wrong, task=TASK) and not passes("tool-call", wrong, task=TASK, arguments="schema")
    assert passes("tool-call", '{"name": "anything"}')  # a task without tools names none
    bad = Task("t", "q", None, tools=("{",))
    assert judge("tool-call", CALL, task=bad).status is Status.UNSCORABLE
    with pytest.raises(ConfigError, match="is no JSON"):
        ToolCall(ToolCall.Settings(), Build(0, [bad], 1, 1, 8))
    made = ToolCall(ToolCall.Settings(), Build(0, [TASK], 1, 1, 8))
    assert made.bounded and pickle.loads(pickle.dumps(made)).settings == made.settings
