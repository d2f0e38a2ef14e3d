"""Rows that tie under ORDER BY: their order does not count, and no doubt makes a wrong answer right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gfcr.filter.verifiers.sql.ties import sort_keys, with_keys
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import StopReason, Task

SCHEMA = """CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, dept TEXT, pay REAL);
INSERT INTO emp VALUES (1,'Ann','IT',90),(2,'Bob','IT',80),(3,'Cid','HR',80),(4,'Dee','HR',60),(5,'Eve',NULL,80);"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Sql]:
    made = Sql(Sql.Settings(workers=1))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("gold", "query", "right"),
    [
        ("SELECT name FROM emp ORDER BY pay", "SELECT name FROM emp ORDER BY pay, id DESC", True),
        ("SELECT name FROM emp ORDER BY pay DESC", "SELECT name FROM emp ORDER BY pay DESC, name DESC", True),
        ("SELECT name, pay FROM emp ORDER BY 2 DESC", "SELECT name, pay FROM emp ORDER BY pay DESC, name DESC", True),
        ("SELECT name FROM emp e ORDER BY e.pay * 2 NULLS LAST", "SELECT name FROM emp ORDER BY pay, name DESC", True),
        ("SELECT name FROM emp ORDER BY dept, pay LIMIT 4", "SELECT name FROM emp ORDER BY dept, pay LIMIT 4", True),
        ("SELECT dept, count(*) FROM emp GROUP BY dept ORDER BY count(*)", "SELECT dept, count(*) FROM emp GROUP BY dept ORDER BY 2, 1 DESC", True),
        ("WITH w AS (SELECT * FROM emp ORDER BY id) SELECT name FROM w ORDER BY pay", "SELECT name FROM emp ORDER BY pay, id DESC", True),
        ("SELECT name FROM emp ORDER BY pay", "SELECT name FROM emp ORDER BY pay DESC", False),
        ("SELECT name FROM emp ORDER BY pay", "SELECT name FROM emp ORDER BY name", False),
        ("SELECT name FROM emp ORDER BY pay, name", "SELECT name FROM emp ORDER BY pay, name DESC", False),
        ("SELECT name FROM emp ORDER BY pay LIMIT 2", "SELECT name FROM emp ORDER BY pay, id DESC LIMIT 2", False),
        # an alias goes before a column: these rows do not tie, though the column's values do
        ("SELECT name, id AS dept FROM emp ORDER BY dept", "SELECT name, id AS dept FROM emp ORDER BY emp.dept, id", False),
        # no certain keys: the order counts
        ("SELECT DISTINCT dept FROM emp ORDER BY length(dept)", "SELECT DISTINCT dept FROM emp ORDER BY length(dept), dept", False),
        ("SELECT name FROM emp UNION SELECT 'Zoe' ORDER BY name", "SELECT name FROM emp UNION SELECT 'Zoe' ORDER BY 1 DESC", False),
    ],
)  # fmt: skip
def test_an_order_is_judged_up_to_ties(judge: Sql, gold: str, query: str, right: bool) -> None:
    task = Task("sql", "q", gold, environment={"schema_sql": SCHEMA})
    verdict = judge.judge(task, query, StopReason.EOS)
    assert verdict.correct is right, verdict
    assert judge.judge(task, query, StopReason.EOS) == verdict


def test_as_written_leaves_no_choice() -> None:
    own = Sql(Sql.Settings(workers=1, ties="as-written"))
    task = Task("sql", "q", "SELECT name FROM emp ORDER BY pay", environment={"schema_sql": SCHEMA})
    verdict = own.judge(task, "SELECT name FROM emp ORDER BY pay, id DESC", StopReason.EOS)
    own.close()
    assert verdict.correct is False and "their order is not" in verdict.evidence


@pytest.mark.parametrize(
    ("sql", "names", "keys"),
    [
        ("SELECT a FROM t ORDER BY b DESC, c", ["a"], ["b", "c"]),
        ("SELECT a FROM t ORDER BY a", ["a"], [0]),
        ("SELECT a, b FROM t ORDER BY 2, f(c, d) LIMIT 3", ["a", "b"], [1, "f(c, d)"]),
        ('SELECT a FROM t ORDER BY "A" ASC NULLS FIRST;', ["a"], [0]),
        ("SELECT a FROM t ORDER BY t.a", ["a"], ["t.a"]),
        ("SELECT a FROM t ORDER BY a + 1", ["a"], None),
        ("SELECT a, a FROM t ORDER BY a", ["a", "a"], None),
        ("SELECT a FROM t ORDER BY 7", ["a"], None),
        ("SELECT a FROM t", ["a"], None),
        ("SELECT DISTINCT a FROM t ORDER BY b", ["a"], None),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", ["a"], None),
        ("SELECT a IS DISTINCT FROM b FROM t ORDER BY c", ["x"], None),
        ("SELECT a FROM t ORDER BY", ["a"], None),
        ("VALUES (1) ORDER BY 1", ["a"], None),
    ],
)
def test_sort_keys(sql: str, names: list[str], keys: list[int | str] | None) -> None:
    found = sort_keys(sql, names)
    assert (None if found is None else found[0]) == keys


def test_the_query_with_its_keys() -> None:
    assert with_keys("SELECT a FROM t ORDER BY b, 1", ["a"]) == ("SELECT a , (b) FROM t ORDER BY b, 1", [1, 0])
