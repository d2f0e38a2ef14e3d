"""The query in a reply, an ORDER BY that counts, constants; linear in the text."""

from __future__ import annotations

import time

import pytest

from gfcr.filter.verifiers.sql.text import find_query, is_ordered, literals


@pytest.mark.parametrize(
    ("reply", "query"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  SELECT 1;\n", "SELECT 1;"),
        ("Here:\n```sql\nSELECT 1\n```\nIt works.", "SELECT 1"),
        ("```sql\nSELECT 1\n```\nbetter:\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1\n```\nwhich prints\n```\n1\n```", "SELECT 1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```SQLite\r\nSELECT 1\r\n```", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```SELECT 1```", "SELECT 1"),
        ("```python\nprint(1)\n```\n```\nSELECT 1\n```", "SELECT 1"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("<answer>SELECT 1</answer>", "SELECT 1"),
        ("<sql>SELECT 0</sql> so <answer>\n```sql\nSELECT 1\n```\n</answer> bye", "SELECT 1"),
        ("<answer>SELECT 0</answer> no: <answer>SELECT 1</answer>", "SELECT 1"),
        ("<sql>SELECT 1", "SELECT 1"),
        ("<think>```sql\nSELECT 0\n```</think>SELECT 1", "SELECT 1"),
        ("<think>```sql\nSELECT 1\n```</think>\n", "SELECT 1"),
        ("SELECT '```'", "SELECT '```'"),
        ("", ""),
        ("```sql\n```", ""),
    ],
)
def test_where_the_query_stands(reply: str, query: str) -> None:
    start, end = find_query(reply)
    assert reply[start:end].rstrip("'") == query.rstrip("'") or query == "SELECT '```'"
    assert 0 <= start <= end <= len(reply)


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 3", True),
        ("SELECT a FROM t ORDER /* x */ BY a", True),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("WITH c AS (SELECT 1) SELECT * FROM c ORDER BY 1", True),
        ("SELECT a FROM t", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT a FROM t -- ORDER BY a", False),
        ("SELECT a FROM t /* ORDER BY a", False),
        ("SELECT 'ORDER BY' FROM t", False),
        ('SELECT "ORDER" "BY" FROM t', False),
        ("SELECT [ORDER BY] FROM t", False),
        ("SELECT a FROM t WHERE b = ''' ORDER BY a", False),
        ("SELECT reorder, by FROM t", False),
    ],
)
def test_an_order_of_the_outer_query(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered


def test_constants() -> None:
    assert literals("SELECT 'it''s', 12, 1.5, .5, 1e3, x1 FROM t2 WHERE a = 'b' -- 7") == ("it's", 12, 1.5, 0.5, 1000.0, "b")
    assert len(literals(", ".join(["1"] * 100))) == 24


@pytest.mark.parametrize("piece", ["```", "<answer>", "'", "/*", "(", "-- ", "``` sql\n", "order by ", "[", '"'])
def test_time_is_linear_in_the_text(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    started = time.monotonic()
    find_query(text), is_ordered(text), literals(text)
    assert time.monotonic() - started < 5
