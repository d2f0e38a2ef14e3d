"""What a query may not do, and what it may not cost; who is to blame; nothing is left behind."""

from __future__ import annotations

import os
import pickle
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import Span, Status, StopReason, Task, Verdict

SCHEMA = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, 'z');"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
STUCK = "SELECT trim(hex(zeroblob(450000)), replace(hex(zeroblob(30000)), '0', '1') || '0')"
"""One step of SQLite's machine that takes minutes."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Sql]:
    made = Sql(Sql.Settings(seconds=0.4, rows=20_000, workers=1))
    yield made
    made.close()


def task(gold: Any = "SELECT a FROM t", **meta: Any) -> Task:
    return Task("sql", "q", gold, environment={"schema_sql": SCHEMA}, meta=meta)


def ask(judge: Sql, query: str, of: Task | None = None, stop: StopReason = StopReason.EOS) -> Verdict:
    return judge.judge(of or task(), query, stop)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (ENDLESS, "no end within"),
        (ENDLESS.replace("count(*)", "x"), "more than 20000 rows"),
        ("SELECT hex(zeroblob(900000))", "more than 1000000 bytes"),
        ("SELECT a.b || hex(zeroblob(400000)) FROM t a, t b, t c, t d, t e", "a result of more than 64000000 bytes"),
        ("SELECT 1 --" + "x" * 1_100_000, "query string is too large"),
        ("SELECT b FROM t WHERE b LIKE '" + "%" * 2000 + "'", "too complex"),
        ("SELECT random()", "the function random() is not allowed"),
        ("SELECT * FROM pragma_table_info('t')", "not allowed"),
        ("SELECT * FROM dbstat", "not allowed"),
        ("CREATE VIRTUAL TABLE v USING fts5(a)", "not allowed"),
        ("SAVEPOINT x", "SAVEPOINT is not allowed"),
        ("SELECT 1; SELECT 2", "second statement"),
        ("SELECT ?", "binding"),
        ("SELECT 1\x00", "null character"),
        ("SELECT '\ud800'", "surrogates"),
        ("VALUES", "incomplete input"),
    ],
)
def test_what_the_judged_query_does_wrong_is_a_wrong_answer(judge: Sql, query: str, why: str) -> None:
    verdict = ask(judge, query)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, 0.0, False)
    assert why in verdict.evidence, verdict.evidence


def test_memory_and_width_are_bounded() -> None:
    own, count = (
        Sql(Sql.Settings(seconds=20, workers=1, memory_mb=32)),
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)",
    )
    many = f"{count} SELECT hex(zeroblob(100000 + x)) v FROM (SELECT x FROM c LIMIT 500) ORDER BY v"
    assert "more than 32 MB of memory" in ask(own, many).evidence
    wide = f"{count} SELECT {'x, ' * 1999} x FROM c"
    assert "more than 1000 rows" in ask(own, wide).evidence  # 2,000,000 cells
    own.close()


def test_a_step_that_cannot_be_interrupted_costs_its_process(judge: Sql) -> None:
    started = time.monotonic()
    verdict = ask(judge, STUCK, task(time_limit_s=2.5))
    assert verdict.correct is False and "its process was killed" in verdict.evidence
    assert time.monotonic() - started < 2.5
    assert ask(judge, "SELECT a FROM t").correct is True  # with a process of its own


def test_a_query_that_kills_its_process_is_wrong(judge: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(judge, "SELECT a FROM t").correct is True
    own = Sql(Sql.Settings(workers=1, dialect="sql_databases:Dying"))
    assert "killed by signal" in ask(own, "SELECT die").evidence and ask(own, "SELECT die").correct is False
    assert ask(own, "SELECT a", task("SELECT die")).status is Status.UNSCORABLE
    own.close()


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        ("SELECT none FROM t", "no such column"),
        (ENDLESS, "no end within"),
        ("DROP TABLE t", "not allowed"),
        (STUCK, "its process was killed"),
        ([], "no query"),
        (7, "no query"),
        (None, "no reference"),
    ],
)
def test_what_the_reference_does_wrong_is_unscorable(judge: Sql, gold: Any, why: str) -> None:
    verdict = ask(judge, "SELECT a FROM t", task(gold))
    assert verdict.status is Status.UNSCORABLE and verdict.score is None and why in verdict.evidence, verdict


def test_what_the_database_does_wrong_is_unscorable(judge: Sql, tmp_path: Path) -> None:
    (tmp_path / "rubbish.db").write_bytes(b"this is no database" * 100)
    spoilt = tmp_path / "spoilt.db"
    with sqlite3.connect(spoilt) as db:
        db.executescript(SCHEMA)
    db.close()
    (tmp_path / "spoilt.db-wal").write_bytes(b"x")
    for environment, why in (
        ({"schema_sql": "CREATE TABLE"}, "schema does not run"),
        ({"schema_sql": f"ATTACH '{tmp_path}/new.db' AS n"}, "schema does not run"),
        ({"db_path": str(tmp_path / "none.db")}, "no database file"),
        ({"db_path": str(tmp_path / "rubbish.db")}, "cannot be used"),
        ({"db_path": str(spoilt)}, "write-ahead log"),
        ({"db_id": "x"}, "names no database"),
        ({}, "names no database"),
        ({"schema_sql": SCHEMA, "time_limit_s": "soon"}, "time_limit_s"),
        ({"schema_sql": SCHEMA, "variants": 7}, "variants"),
        ({"schema_sql": SCHEMA, "variants": [{"name": "x"}]}, "named as"),
    ):
        verdict = ask(judge, "SELECT a FROM t", Task("sql", "q", "SELECT a FROM t", environment=environment))
        assert verdict.status is Status.UNSCORABLE and why in verdict.evidence, (environment, verdict)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rubbish.db", "spoilt.db", "spoilt.db-wal"]


def test_the_place_of_the_query_and_its_result_are_told(judge: Sql) -> None:
    reply = "I say:\n```sql\nSELECT a FROM t\n```"
    verdict = ask(judge, reply)
    assert verdict.spans == (Span(reply.index("SELECT"), len(reply) - 4, "answer"),)
    assert verdict.answer == "[[1],[2],[2]]" == ask(judge, "SELECT a FROM t ORDER BY a DESC").answer
    assert ask(judge, "SELECT b FROM t").answer == '[["x"],["y"],["z"]]' and ask(judge, "SELECT").answer is None


def test_a_reason_is_not_as_long_as_the_query(judge: Sql) -> None:
    assert len(ask(judge, "SELECT " + "x" * 50_000).evidence) <= 600


def test_ended_by_us_cut_off_and_no_query(judge: Sql) -> None:
    assert ask(judge, "SELECT a FROM t", stop=StopReason.CANCELLED).status is Status.UNSCORABLE
    assert ask(judge, "SELECT a FROM t", stop=StopReason.MAX_TOKENS).correct is False
    assert ask(judge, "```sql\n\n```").evidence == "there is no query"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t;",
        "SELECT a FROM t ; ;\n",
        "SELECT a FROM t; -- done",
        "SELECT a FROM t -- done ;",
        "/* a; */ SELECT a FROM t",
    ],
)
def test_one_statement_may_be_written_in_many_ways(judge: Sql, query: str) -> None:
    assert ask(judge, query).correct is True


def test_order_counts_where_the_task_or_the_reference_says_so(judge: Sql) -> None:
    turned = "SELECT a FROM t ORDER BY a DESC"
    assert ask(judge, turned, task("SELECT a FROM t ORDER BY a")).correct is False
    assert ask(judge, turned, task("SELECT a FROM t ORDER BY a", ordered=False)).correct is True
    assert ask(judge, turned, task("SELECT a FROM t", ordered=True)).correct is False
    own = Sql(Sql.Settings(compare="bag", workers=1))
    assert ask(own, turned, task("SELECT a FROM t ORDER BY a", ordered=True)).correct is True
    own.close()


def test_any_of_several_references_will_do(judge: Sql) -> None:
    either = task(["SELECT a FROM t WHERE a = 1", "SELECT 7", "SELECT broken"])
    assert ask(judge, "SELECT 7", either).correct is True and ask(judge, "SELECT 1", either).correct is True
    assert ask(judge, "SELECT 8", either).correct is False


def test_text_that_is_no_utf_8_is_compared_byte_by_byte(judge: Sql) -> None:
    made = Task("sql", "q", "SELECT CAST(x'ff41' AS TEXT)", environment={"schema_sql": SCHEMA})
    assert ask(judge, "SELECT CAST(x'ff' AS TEXT) || 'A'", made).correct is True
    assert ask(judge, "SELECT CAST(x'fe41' AS TEXT)", made).correct is False


def test_a_changed_file_is_opened_anew(judge: Sql, tmp_path: Path) -> None:
    file = tmp_path / "a b#?%.sqlite"
    for n in (1, 2):
        db = sqlite3.connect(file)
        db.executescript(f"DROP TABLE IF EXISTS t; CREATE TABLE t(a); INSERT INTO t VALUES ({n});")
        db.close()
        os.utime(file, ns=(n * 10**9, n * 10**9))
        verdict = ask(judge, f"SELECT {n}", Task("sql", "q", "SELECT a FROM t", environment={"db_path": str(file)}))
        assert verdict.correct is True, verdict


def test_databases_are_found_by_their_name(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    db = sqlite3.connect(tmp_path / "shop" / "shop.sqlite")
    db.executescript(SCHEMA)
    db.close()
    settings = Sql.Settings(databases=f"{tmp_path}/{{db_id}}/{{db_id}}.sqlite", workers=1)

    def build(**environment: Any) -> Build:
        return Build(0, [Task("sql", "q", "SELECT a FROM t", environment=environment)], 1, 1, 8)

    own = Sql(settings, build(db_id="shop"))
    assert ask(own, "SELECT a FROM t", Task("sql", "q", "SELECT a FROM t", meta={"db_id": "shop"})).correct is True
    own.close()
    for environment, why in (
        ({"db_id": "gone"}, "no database file"),
        ({"db_id": "../shop"}, "no name"),
        ({}, "names no database"),
    ):
        with pytest.raises(ConfigError, match=why):
            Sql(settings, build(**environment))
    with pytest.raises(ConfigError, match="dialect"):
        Sql(Sql.Settings(dialect="oracle"))


def test_from_many_threads_and_after_travelling(judge: Sql) -> None:
    own = pickle.loads(pickle.dumps(Sql(Sql.Settings(workers=2))))
    out: dict[int, bool | None] = {}
    threads = [
        threading.Thread(target=lambda n=n: out.__setitem__(n, ask(own, f"SELECT {n % 3}", task("SELECT 1")).correct))
        for n in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [out[n] for n in range(24)] == [n % 3 == 1 for n in range(24)]
    own.close()
    assert ask(own, "SELECT 1", task("SELECT 1")).correct is True  # it goes on after closing
    own.close()


def test_no_process_is_left(judge: Sql) -> None:
    own = Sql(Sql.Settings(workers=2))
    ask(own, "SELECT a FROM t")
    runner = own._free.get()
    own._free.put(runner)
    assert runner is not None and runner.alive
    own.close()
    assert not Path(f"/proc/{runner.process.pid}").exists()


def test_another_database_is_a_class_by_its_place() -> None:
    own = Sql(Sql.Settings(workers=1, dialect="sql_databases:Constant"))
    assert ask(own, "anything", task("one thing")).correct is True
    assert ask(own, "other", task("one thing")).correct is False
    own.close()
    own = Sql(Sql.Settings(workers=1, dialect="sql_databases:Missing"))
    assert "no database class" in ask(own, "x", task("x")).evidence
    own.close()
