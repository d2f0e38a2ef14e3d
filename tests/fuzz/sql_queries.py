"""Generated queries against the SQL verifier: none hangs, crashes or leaks, and each is judged the same twice.

    python tests/fuzz/sql_queries.py 2000 --seed 0

Queries come from a grammar over a small schema (joins, groups, windows, recursion, functions with absurd arguments), from mutations of
such queries, and from a list of attacks; every third one is the reference itself, written differently, which must be right.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import Status, StopReason, Task, Verdict

SCHEMA = """CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT NOT NULL, dept TEXT, pay REAL, boss INTEGER REFERENCES emp(id));
CREATE TABLE dept(code TEXT PRIMARY KEY, title TEXT, budget INTEGER, note BLOB);
CREATE VIEW rich AS SELECT * FROM emp WHERE pay > 90;
CREATE INDEX by_dept ON emp(dept);
INSERT INTO emp VALUES (1,'Ann','IT',100.0,NULL),(2,'Bob','IT',80.0,1),(3,'Cid','HR',80.0,1),(4,'Dee','HR',60.5,3),(5,'Eve',NULL,NULL,1);
INSERT INTO dept VALUES ('IT','Computers',9007199254740993,x'00ff'),('HR','People',-5,NULL),('PR','',0,'text');"""
COLUMNS = ("id", "name", "dept", "pay", "boss")
GOLD = (
    ("SELECT name FROM emp WHERE pay >= 80", "SELECT e.name FROM emp AS e WHERE NOT e.pay < 80 AND {true}"),
    ("SELECT dept, count(*) FROM emp GROUP BY dept", "SELECT dept, sum(1) FROM emp WHERE {true} GROUP BY dept"),
    ("SELECT avg(pay) FROM emp", "SELECT sum(pay) / count(pay) FROM emp WHERE {true}"),
    (
        "SELECT name, title FROM emp JOIN dept ON dept = code ORDER BY name",
        "SELECT name, title FROM dept, emp WHERE code = dept AND {true} ORDER BY 1",
    ),
    ("SELECT max(budget) FROM dept", "SELECT budget FROM dept WHERE {true} ORDER BY budget DESC LIMIT 1"),
)
ATTACKS = (
    "SELECT printf('%.*c', 1000000000, 'x')",
    "SELECT hex(zeroblob(400000))",
    "SELECT length(replace(hex(zeroblob(400000)), '0', 'ab'))",
    "SELECT trim(hex(zeroblob(450000)), replace(hex(zeroblob(30000)), '0', '1') || '0')",
    "SELECT instr(hex(zeroblob(490000)), hex(zeroblob(240000)) || '1')",
    "SELECT hex(zeroblob(450000)) LIKE '%0%0%0%0%0%0%1'",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM c) SELECT * FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c ORDER BY x DESC",
    "SELECT * FROM emp a, emp b, emp c, emp d, emp e, emp f, emp g, emp h, emp i",
    "SELECT count(*) FROM emp a, emp b, emp c, emp d, emp e, emp f, emp g, emp h, emp i, emp j, emp k, emp l",
    "SELECT group_concat(a.name || b.name || c.name, hex(zeroblob(9000))) FROM emp a, emp b, emp c",
    "SELECT json_group_array(json_array(a.id, b.id, c.id, d.id)) FROM emp a, emp b, emp c, emp d",
    "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "SELECT " + " + ".join(["1"] * 3000),
    "SELECT " + ", ".join(["id"] * 3000) + " FROM emp",
    "SELECT 1" + " UNION SELECT 1" * 600,
    "SELECT 1 WHERE 1 IN (" + ", ".join(map(str, range(20000))) + ")",
    "SELECT 'x" + "y" * 90000,
    "SELECT " + "-" * 50000 + "\n1",
    "SELECT randomblob(1000000000)",
    "SELECT random()",
    "SELECT load_extension('x')",
    "SELECT * FROM pragma_database_list",
    "SELECT writefile('out', 'x')",
    "PRAGMA temp_store_directory = '.'",
    "PRAGMA hard_heap_limit = 0",
    "ATTACH 'out.db' AS o",
    "VACUUM INTO 'out.db'",
    "BEGIN EXCLUSIVE",
    "DELETE FROM emp",
    "INSERT INTO emp(name) VALUES ('x') RETURNING *",
    "CREATE TABLE x AS SELECT * FROM emp",
    "CREATE VIRTUAL TABLE v USING fts5(a)",
    "DROP VIEW rich",
    "EXPLAIN SELECT * FROM emp",
    "SELECT 1; SELECT 2",
    "SELECT 1\x00; DROP TABLE emp",
    "SELECT '\ud800'",
    "\ufeffSELECT 1",
    "",
    ";",
    "--",
    "/*",
)
FUNCTIONS = (
    "abs",
    "length",
    "upper",
    "hex",
    "quote",
    "typeof",
    "trim",
    "date",
    "json",
    "char",
    "unicode",
    "zeroblob",
    "sqrt",
    "round",
    "soundex",
)
AGGREGATES = ("count", "sum", "avg", "min", "max", "total", "group_concat", "json_group_array")
LITERALS = (
    "0",
    "1",
    "-1",
    "80",
    "1e308 * 10",
    "9223372036854775807",
    "-9223372036854775808",
    "NULL",
    "''",
    "'IT'",
    "'%'",
    "x'ff'",
    "0.1 + 0.2",
    "'é'",
)


class Grammar:
    """Random queries, most of them valid."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def query(self, depth: int = 0) -> str:
        pick, r = self.rng.choice, self.rng.random
        shape = pick(("plain", "plain", "group", "join", "window", "union", "with", "values"))
        if shape == "values":
            return f"VALUES ({self.expression(depth)}, {self.expression(depth)})"
        if shape == "with" and depth < 2:
            return f"WITH w AS ({self.query(depth + 1)}) SELECT count(*) FROM w"
        if shape == "union" and depth < 2:
            return (
                f"SELECT {self.expression(2)} {pick(('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT'))} SELECT {self.expression(2)}"
            )
        if shape == "group":
            column = pick(COLUMNS)
            return f"SELECT {column}, {pick(AGGREGATES)}({pick(COLUMNS)}) FROM emp GROUP BY {column}" + (
                " HAVING count(*) > 1" if r() < 0.3 else ""
            )
        if shape == "window":
            return f"SELECT name, {pick(('rank()', 'sum(pay)', 'lag(pay, 2)', 'ntile(2)'))} OVER (PARTITION BY {pick(COLUMNS)} ORDER BY {pick(COLUMNS)}) FROM emp"
        source = pick(
            (
                "emp",
                "emp",
                "rich",
                "emp a JOIN dept ON a.dept = code",
                "emp LEFT JOIN dept ON dept = code",
                "(SELECT * FROM emp)",
            )
        )
        columns = ", ".join(self.expression(depth) for _ in range(self.rng.randint(1, 4)))
        text = f"SELECT {'DISTINCT ' if r() < 0.2 else ''}{columns} FROM {source}"
        if r() < 0.6:
            text += f" WHERE {self.expression(depth)} {pick(('=', '<', '>=', '<>', 'IS', 'LIKE', 'IN', 'GLOB'))} "
            text += f"({self.expression(depth)})"
        if r() < 0.3:
            text += f" ORDER BY {self.rng.randint(1, 5)} {pick(('', 'DESC', 'NULLS LAST'))}"
        return text + (f" LIMIT {self.rng.randint(-2, 9)}" if r() < 0.3 else "")

    def expression(self, depth: int) -> str:
        pick = self.rng.choice
        if depth >= 3 or self.rng.random() < 0.5:
            return pick(COLUMNS) if self.rng.random() < 0.6 else pick(LITERALS)
        kind = pick(("call", "binary", "case", "cast", "subquery", "between"))
        one, two = self.expression(depth + 1), self.expression(depth + 1)
        if kind == "call":
            return f"{pick(FUNCTIONS)}({one})"
        if kind == "binary":
            return f"({one} {pick(('+', '-', '*', '/', '%', '||', 'AND', 'OR', '<<'))} {two})"
        if kind == "case":
            return f"CASE WHEN {one} THEN {two} ELSE {pick(LITERALS)} END"
        if kind == "cast":
            return f"CAST({one} AS {pick(('TEXT', 'INTEGER', 'REAL', 'BLOB', 'NUMERIC'))})"
        if kind == "between":
            return f"({one} BETWEEN {two} AND {pick(LITERALS)})"
        return f"(SELECT {pick(AGGREGATES)}({pick(COLUMNS)}) FROM emp)"

    def mutated(self, text: str) -> str:
        """A few characters or words of it dropped, repeated or exchanged."""
        words = text.split(" ")
        for _ in range(self.rng.randint(1, 4)):
            i, j = self.rng.randrange(len(words)), self.rng.randrange(len(words))
            action = self.rng.randrange(4)
            if action == 0:
                words[i], words[j] = words[j], words[i]
            elif action == 1:
                words[i] = words[i][: len(words[i]) // 2]
            elif action == 2:
                words.insert(i, self.rng.choice((";", "'", '"', "(", "--", "/*", "\x00", "SELECT", "\U0001f600", "?1", ":a")))
            elif len(words) > 2:
                del words[i]
        return " ".join(words)


@dataclass
class Found:
    """What a fuzz run saw."""

    queries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    memory: list[int] = field(default_factory=list)
    """Resident bytes of this process, sampled."""


def queries(rng: Random, count: int) -> Iterator[tuple[str, str, bool]]:
    """(reference, query, whether the query must be right)."""
    grammar = Grammar(rng)
    for i in range(count):
        gold, same = rng.choice(GOLD)
        if i % 3 == 0:
            true = rng.choice(("1", "'a' < 'b'", "NULL IS NULL", "2 IN (1, 2)", "(SELECT 1)"))
            yield gold, same.replace("{true}", true), True
        elif i % 3 == 1 and rng.random() < 0.3:
            yield gold, rng.choice(ATTACKS), False
        else:
            text = grammar.query()
            yield gold, grammar.mutated(text) if rng.random() < 0.4 else text, False


def run(count: int, seed: int = 0, seconds: float = 0.5, told: Callable[[str], None] = lambda line: None) -> Found:
    """Judge `count` generated queries twice each, under `seconds` of work per query."""
    found, judge = Found(), Sql(Sql.Settings(seconds=seconds, workers=1, generated=1))
    try:
        for number, (gold, query, right) in enumerate(queries(Random(seed), count)):
            task = Task("sql", f"{number}", gold, environment={"schema_sql": SCHEMA})
            verdicts: list[Verdict] = []
            for _ in range(2):
                started = time.monotonic()
                verdicts.append(judge.judge(task, query, StopReason.EOS))
                found.slowest = max(found.slowest, time.monotonic() - started)
            first, second = verdicts
            if first.status is not Status.SCORED:
                found.faults.append(f"{query[:200]!r}: {first}")
            if (first.status, first.score, first.correct, first.answer) != (
                second.status,
                second.score,
                second.correct,
                second.answer,
            ):
                found.faults.append(f"{query[:200]!r}: {first}, then {second}")
            if right and first.correct is not True:
                found.faults.append(f"{query[:200]!r} must be right: {first}")
            found.queries += 1
            _, lost, why = first.evidence.partition("gives no result: ")
            reason = "right" if first.correct else why.split(":")[0][:40] if lost else "other rows"
            found.outcomes[reason] += 1
            if number % 50 == 49:
                found.memory.append(resident(os.getpid()) + sum(resident(pid) for pid in children(os.getpid())))
                told(
                    f"{number + 1} queries, {len(found.faults)} faults, {found.memory[-1] >> 20} MB, slowest {found.slowest:.1f} s"
                )
    finally:
        judge.close()
    return found


def resident(pid: int) -> int:
    """Bytes of memory a process holds; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def children(pid: int) -> list[int]:
    """Processes started by this one that still run."""
    out = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = place.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(after[1]) == pid and after[0] != "Z":
            out.append(int(place.parent.name))
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = run(options.count, options.seed, told=print)
    print(
        f"{result.queries} queries, slowest verdict {result.slowest:.1f} s, memory {[m >> 20 for m in result.memory[::8]]} MB"
    )
    for reason, n in result.outcomes.most_common():
        print(f"{n:6} {reason}")
    for fault in result.faults[:20]:
        print("FAULT", fault)
    raise SystemExit(bool(result.faults))
