"""Right by luck: given variants and generated data tell a lucky query from a right one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from gfcr.filter.verifiers.sql.database import Hints
from gfcr.filter.verifiers.sql.perturb import perturb
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import Status, StopReason, Task, Verdict

SCHEMA = """CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT NOT NULL, dept TEXT REFERENCES dept(code), pay REAL, boss INTEGER, mail TEXT UNIQUE);
CREATE TABLE dept(code TEXT PRIMARY KEY, title TEXT);
CREATE TABLE made(a INTEGER, b INTEGER GENERATED ALWAYS AS (a * 2));
CREATE TRIGGER busy AFTER DELETE ON emp BEGIN INSERT INTO dept VALUES (old.id, 'left'); END;
INSERT INTO dept VALUES ('IT', 'Computers'), ('HR', 'People'), ('PR', 'Papers');
INSERT INTO emp VALUES (1,'Ann','IT',100.0,NULL,'a@x'),(2,'Bob','IT',80.0,1,'b@x'),(3,'Cid','HR',80.0,1,NULL),(4,'Dee','HR',60.5,3,'d@x'),
 (5,'Eve','PR',70.0,1,'e@x'),(6,'Fay','IT',90.0,1,'f@x');
INSERT INTO made(a) VALUES (1), (2);"""
LUCKY = (
    ("SELECT name FROM emp WHERE pay >= 90", "SELECT name FROM emp WHERE name IN ('Ann', 'Fay')"),
    ("SELECT name FROM emp WHERE pay >= 90", "SELECT name FROM emp WHERE pay > 85"),
    ("SELECT count(*) FROM emp WHERE dept = 'IT'", "SELECT 3"),
    ("SELECT name FROM emp WHERE boss = 77", "SELECT name FROM emp WHERE pay < 0"),
    ("SELECT name FROM emp WHERE pay = (SELECT max(pay) FROM emp)", "SELECT name FROM emp ORDER BY pay DESC LIMIT 1"),
    ("SELECT name FROM emp WHERE boss = 1", "SELECT name FROM emp WHERE boss < 3"),
    ("SELECT title FROM dept JOIN emp ON code = dept WHERE name = 'Eve'", "SELECT title FROM dept WHERE code = 'PR'"),
    ("SELECT DISTINCT dept FROM emp", "SELECT code FROM dept"),
)
EQUAL = (
    ("SELECT name FROM emp WHERE pay >= 80", "SELECT name FROM emp WHERE NOT (pay < 80)"),
    ("SELECT count(*) FROM emp", "SELECT count(name) FROM emp"),
    ("SELECT count(*) FROM emp", "SELECT count(pay) FROM emp"),
    ("SELECT max(pay) FROM emp", "SELECT pay FROM emp ORDER BY pay DESC LIMIT 1"),
    ("SELECT DISTINCT code FROM dept", "SELECT code FROM dept"),
    ("SELECT dept, count(*) FROM emp GROUP BY dept", "SELECT dept, sum(1) FROM emp GROUP BY 1"),
    (
        "SELECT name FROM emp WHERE id IN (SELECT boss FROM emp)",
        "SELECT name FROM emp e WHERE EXISTS (SELECT 1 FROM emp WHERE boss = e.id)",
    ),
)


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Sql]]:
    made = {"plain": Sql(Sql.Settings(workers=1)), "generated": Sql(Sql.Settings(workers=1, generated=8))}
    yield made
    for one in made.values():
        one.close()


def ask(judge: Sql, gold: str, query: str, **meta: Any) -> Verdict:
    return judge.judge(Task("sql", "q", gold, environment={"schema_sql": SCHEMA}, meta=meta), query, StopReason.EOS)


@pytest.mark.parametrize(("gold", "query"), LUCKY)
def test_a_lucky_query_is_found_out_on_generated_data(judges: dict[str, Sql], gold: str, query: str) -> None:
    assert ask(judges["plain"], gold, query).correct is True
    verdict = ask(judges["generated"], gold, query)
    assert verdict.correct is False and "right on the given data, but on generated data" in verdict.evidence, verdict
    assert ask(judges["generated"], gold, query) == verdict


@pytest.mark.parametrize(("gold", "query"), EQUAL)
def test_a_query_that_says_the_same_stays_right(judges: dict[str, Sql], gold: str, query: str) -> None:
    for name in ("plain", "generated"):
        verdict = ask(judges[name], gold, query)
        assert verdict.correct is True, verdict


def test_a_given_variant_must_be_met_too(judges: dict[str, Sql]) -> None:
    gold, query = LUCKY[1]
    other = SCHEMA.replace("80.0", "87.0")
    for variants in ([other], [SCHEMA, {"schema_sql": other}]):
        verdict = ask(judges["plain"], gold, query, variants=variants)
        assert verdict.correct is False and f"on variant {len(variants)}: 4 rows, wanted 2" in verdict.evidence, verdict
    assert ask(judges["plain"], gold, gold, variants=[other]).correct is True
    broken = ask(judges["plain"], gold, gold, variants=["CREATE TABLE other(x)"])
    assert broken.status is Status.UNSCORABLE and "on variant 1: the reference query gives no result" in broken.evidence


def test_many_copies_do_not_push_out_the_database_they_are_made_of() -> None:
    """More copies than databases are kept, and the lucky query differs on a late one only, if at all."""
    own = Sql(Sql.Settings(workers=1, generated=16, reward="r-ves"))
    gold = EQUAL[0][0]
    for _ in range(2):
        verdict = ask(own, gold, gold)
        assert verdict.correct is True and "1 times as fast" in verdict.evidence, verdict
    assert ask(own, *LUCKY[0]).correct is False
    own.close()


def test_the_difference_may_be_told_only() -> None:
    own = Sql(Sql.Settings(workers=1, generated=8, on_generated="evidence"))
    verdict = ask(own, *LUCKY[2])
    own.close()
    assert verdict.correct is True and "on generated data" in verdict.evidence


def test_an_empty_reference_may_count_as_no_evidence() -> None:
    own = Sql(Sql.Settings(workers=1, empty="unscorable"))
    assert ask(own, *LUCKY[3]).status is Status.UNSCORABLE and ask(own, *LUCKY[0]).correct is True
    own.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_generated_data_keep(seed: int) -> None:
    tables = []
    for _ in range(2):
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(SCHEMA)
        before = db.execute("SELECT * FROM emp").fetchall()
        perturb(db, Hints(str(seed), ("XX", 90)))
        tables.append([db.execute(f"SELECT * FROM {name}").fetchall() for name in ("emp", "dept", "made")])
    assert tables[0] == tables[1]
    emp, dept, made = tables[0]
    assert emp != before and len(emp) >= 3 and made == [(1, 2), (2, 4)]
    assert len({row[0] for row in emp}) == len({row[1] for row in emp}) == len(emp)  # a key, and names that all differed
    mails = [row[5] for row in emp if row[5] is not None]
    assert len(mails) == len(set(mails))
    assert None not in {value for row in emp for value in row[1:4]} | {value for row in dept for value in row}
    assert {row[2] for row in emp} <= {"IT", "HR", "PR"}  # a foreign key's values
    assert not any(row[1] == "left" for row in dept)  # no trigger ran
