"""`gfcr verify`: one row out for every row in, in order, whatever stands in it; resumed after a kill; refused where it is another's."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

GRADER = """
import os, time

def right(text, reference, id=None):
    if text == "loop":
        while True: pass
    if text == "die":
        os.kill(os.getpid(), 9)
    if text.startswith("slow"):
        time.sleep(0.02)
        text = text[4:]
    if reference is None:
        return None
    return {"score": float(text == reference), "evidence": f"{text!r} against {reference!r}"}
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "grader.py").write_text(GRADER)
    return tmp_path


def write(path, rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(path):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read(path)]


def rows(n, slow=False):
    return [
        {
            "id": f"r{i}",
            "kind": f"k{i % 3}",
            "gold": "4",
            "prediction": ("slow" if slow else "") + "45"[i % 2],
            "expected": i % 2 == 0,
        }
        for i in range(n)
    ]


def test_every_row_gets_one_in_order_whatever_it_is(cli, place):
    source = write(
        place / "in.jsonl",
        [
            "\ufeff" + json.dumps({"id": "a", "gold": "4", "prediction": "4"}) + "\r\n",
            {"id": 7, "gold": "4", "prediction": "5"},
            "\n",
            {"id": "loop", "gold": "4", "prediction": "loop"},
            '{"id": "cut", "gold": \n',
            "[1, 2]\n",
            {"gold": "4", "prediction": "4"},
            {"id": "a", "gold": "4", "prediction": None},
            {"id": "n", "gold": None, "prediction": "4"},
            {"id": "die", "gold": "4", "prediction": "die"},
            {"id": "no", "gold": "4"},
            {"id": "text", "gold": "4", "prediction": 4},
            '{"id": "half \\ud800", "gold": "4", "prediction": "4"}\n',
            "[" * 100_000 + "\n",
            json.dumps({"id": "last", "gold": "4", "prediction": "4"}),  # without a line end
        ],
    )
    out = place / "out.jsonl"
    found = cli.json(
        "verify", "function", source, "--out", out, "--function", f"{place}/grader.py:right", "--workers", 2, "--timeout", 1
    )
    got = read(out)
    assert [(r["id"], r["correct"], r["score"]) for r in got] == [
        ("a", True, 1.0),
        (7, False, 0.0),
        ("loop", None, None),
        ("line 5", None, None),
        ("line 6", None, None),
        ("line 7", True, 1.0),
        ("a", False, 0.0),
        ("n", None, None),
        ("die", None, None),
        ("no", None, None),
        ("text", None, None),
        ("half \ud800", True, 1.0),
        ("line 14", None, None),
        ("last", True, 1.0),
    ]
    evidence = {r["id"]: r["evidence"] for r in got}
    assert evidence["loop"] == "no verdict within 1 s; killed"
    assert "killed by signal 9" in evidence["die"]
    assert "no JSON" in evidence["line 5"] and "list, not an object" in evidence["line 6"]
    assert "has no field 'prediction'" in evidence["no"] and "int, not text" in evidence["text"]
    assert got[0].keys() == {"id", "status", "correct", "score", "answer", "evidence", "seconds", "verifier"}
    assert {r["status"] for r in got if r["correct"] is None} == {"unscorable"}
    assert got[0]["verifier"].startswith("grader:right ")
    assert (found["rows"], found["correct"], found["wrong"], found["unscorable"]) == (14, 4, 2, 8)
    assert found["without_debatable"]["accuracy"] is None


def test_the_table_counts_errors_by_kind_and_keeps_debatable_rows_apart(cli, place):
    given = rows(12)
    given[0]["expected"], given[1]["expected"] = False, True  # a false positive of k0, a false negative of k1
    given += [{"id": "d", "gold": "4", "prediction": "4", "expected": False, "debatable": True}]
    given += [{"id": "u", "kind": "k2", "prediction": "4", "expected": True}]
    given += [{"id": "free", "kind": "k2", "gold": "4", "prediction": "4", "expected": None}]
    source = write(place / "in.jsonl", given)
    command = ("verify", f"{place}/grader.py:right", source, "--out", place / "out.jsonl", "--workers", 1)
    found = cli.json(*command)
    total = {
        "rows": 14,
        "expected": 13,
        "right": 10,
        "false_positives": 1,
        "false_negatives": 1,
        "unscorable": 1,
        "accuracy": 10 / 13,
    }
    assert found["without_debatable"] == total
    assert found["debatable"]["false_positives"] == 1
    assert {kind: (t["right"], t["expected"]) for kind, t in found["kinds"].items()} == {
        "k0": (3, 4),
        "k1": (3, 4),
        "k2": (4, 5),
    }
    said = cli(*command).stdout  # again: nothing is judged twice
    assert "15 rows" in said and "15 of them before" in said
    assert "76.9 %" in said and "0 of 3 kinds without a fault" in said and "returned None: it abstains" in said
    assert len(read(place / "out.jsonl")) == 15


def test_columns_of_other_names_and_settings(cli, place):
    source = write(place / "in.jsonl", [{"q": {"key": "4"}, "reply": r"so \boxed{4}", "gold": "9"}, {"reply": r"\boxed{4}"}])
    out = place / "out.jsonl"
    cli("verify", "answer", source, "--out", out, "--map", "gold=q.key,prediction=reply", "--set", "mode=boxed", "--workers", 1)
    assert [(r["correct"], r["status"]) for r in read(out)] == [(True, "scored"), (None, "unscorable")]
    assert "mode" in cli.error("verify", "answer", source, "--out", out, "--set", "mode=nowhere", "--fresh")
    assert "--map 'gold'" in cli.error("verify", "answer", source, "--out", out, "--map", "gold")


def test_what_a_row_expects_is_read_from_any_column_and_also_as_1_and_0(cli, place):
    wanted = [True, 1, 0, False, "yes", None]
    given = [{"gold": "4", "right": x, "prediction": "4" if x else "5", "name": f"n{i}"} for i, x in enumerate(wanted)]
    source, out = write(place / "in.jsonl", given), place / "out.jsonl"
    command = ("verify", "exact", source, "--out", out, "--map", "expected=right,id=name", "--workers", 1)
    found = cli.json(*command)
    assert [row["id"] for row in read(out)] == [f"n{i}" for i in range(6)]
    assert (found["without_debatable"]["expected"], found["expected_unread"]) == (4, 1)
    assert found["without_debatable"]["right"] == 4
    assert "1 rows have an `expected` that is neither true nor false" in cli(*command).stdout


def test_two_columns_may_change_places_and_a_reason_comes_with_its_remedy(cli, place):
    source = write(place / "in.jsonl", [{"gold": "it is \\boxed{4}", "prediction": "4"}, {"prediction": "4"}])
    out = place / "out.jsonl"
    cli("verify", "math", source, "--out", out, "--map", "gold=prediction,prediction=gold", "--workers", 1)
    first, second = read(out)
    assert first["answer"] == "4" and first["correct"] is True and second["status"] == "unscorable"
    cli("verify", "math", source, "--out", out, "--fresh", "--workers", 1)
    assert "no field 'gold'" in read(out)[1]["evidence"] and "--map gold=COLUMN" in read(out)[1]["evidence"]
    cli("verify", "vision", write(source, [{"gold": 3, "prediction": "3"}]), "--out", out, "--fresh", "--workers", 1)
    assert read(out)[0]["evidence"] == "no kind is given, neither by a setting nor by the task"


def test_a_killed_run_goes_on_and_gives_what_an_uncut_one_gives(cli, place):
    source = write(place / "in.jsonl", rows(70, slow=True))
    name = f"{place}/grader.py:right"
    cli("verify", name, source, "--out", place / "uncut.jsonl", "--workers", 2)
    out = place / "out.jsonl"
    command = [sys.executable, "-m", "gfcr", "verify", name, str(source), "--out", str(out), "--workers", "2"]
    for at_least in (10, 30):  # twice
        work = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 60
        while (not out.exists() or out.read_bytes().count(b"\n") < at_least) and time.monotonic() < end:
            time.sleep(0.005)
        os.kill(work.pid, signal.SIGKILL)
        work.wait()
        assert at_least <= out.read_bytes().count(b"\n") < 70
    with out.open("ab") as file:
        file.write(b'{"id": "r9", "sta')  # cut while it was written
    found = cli.json("verify", name, source, "--out", out, "--workers", 1)
    assert 30 <= found["rows_before"] < 70 and found["rows"] == 70
    assert timeless(out) == timeless(place / "uncut.jsonl")
    whole = cli.json("verify", name, source, "--out", place / "uncut.jsonl")
    assert {k: v for k, v in found.items() if k not in ("out", "seconds", "rows_before")} == {
        k: v for k, v in whole.items() if k not in ("out", "seconds", "rows_before")
    }


def test_an_interrupted_run_keeps_its_rows_ends_its_processes_and_says_how_to_go_on(cli, place):
    source, out = (
        write(place / "in.jsonl", [*rows(30, slow=True), {"id": "x", "gold": "4", "prediction": "loop"}]),
        place / "out.jsonl",
    )
    name = f"{place}/grader.py:right"
    command = [sys.executable, "-m", "gfcr", "verify", name, str(source), "--out", str(out), "--workers", "2", "--timeout", "1"]
    work = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 60
    while (not out.exists() or out.read_bytes().count(b"\n") < 5) and time.monotonic() < end:
        time.sleep(0.005)
    work.send_signal(signal.SIGINT)
    said = work.communicate(timeout=60)[1]
    assert work.returncode == 130 and "go on with: the same command without --fresh" in " ".join(said.split())
    assert "Traceback" not in said
    assert 5 <= cli.json("verify", name, source, "--out", out, "--workers", 1, "--timeout", 1)["rows_before"] < 31
    assert [r["id"] for r in read(out)] == [*(f"r{i}" for i in range(30)), "x"]


def test_an_output_of_something_else_is_refused_and_kept(cli, place):
    source, out = write(place / "in.jsonl", rows(4)), place / "out.jsonl"
    name = f"{place}/grader.py:right"
    cli("verify", name, source, "--out", out, "--workers", 1)
    before = out.read_text()
    other = write(place / "other.jsonl", rows(5))
    assert "rows of another input" in cli.error("verify", name, other, "--out", out)
    assert "another settings" in cli.error("verify", name, source, "--out", out, "--set", "right_at=0.5")
    assert "another seconds" in cli.error("verify", name, source, "--out", out, "--timeout", 3)
    (place / "grader.py").write_text(GRADER + "\n# corrected\n")
    code = "import sys; sys.argv[0] = 'gfcr'; from gfcr.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "verify", name, source, "--out", out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "another verifier" in done.stderr
    (place / "grader.py").write_text(GRADER)
    lines = before.splitlines(keepends=True)
    out.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert "row 1 is 'r1', and the input's row is 'r0'" in cli.error("verify", name, source, "--out", out)
    out.write_text(before)
    (place / "out.jsonl.about.json").unlink()
    assert "nothing beside it says" in cli.error("verify", name, source, "--out", out)
    assert out.read_text() == before
    found = cli.json("verify", name, other, "--out", out, "--fresh", "--workers", 1)
    assert (found["rows"], found["rows_before"], len(read(out))) == (5, 0, 5)


@pytest.mark.parametrize(
    "verifier", ["choice", "exact", "math", "structured", "vision --set kind=ocr", "answer --set mode=whole"]
)
def test_a_reference_that_pandas_wrote_as_missing_judges_nobody(cli, place, verifier):
    source = write(place / "in.jsonl", ['{"gold": NaN, "prediction": "nan"}\n', '{"gold": Infinity, "prediction": "4"}\n'])
    cli("verify", *verifier.split(), source, "--out", place / "out.jsonl", "--workers", 1)
    assert [row["status"] for row in read(place / "out.jsonl")] == ["unscorable"] * 2


def test_a_verifier_that_can_judge_no_row_is_refused_at_once(cli, place):
    source = write(place / "in.jsonl", [{"gold": "4", "prediction": "4"}])
    assert "rows of a file are none" in cli.error("verify", "reasoning-gym", source, "--out", place / "out.jsonl")


def test_refusals_name_what_to_do(cli, place):
    source = write(place / "in.jsonl", rows(1))
    out = ("--out", place / "out.jsonl")
    assert "there is no verifier 'maths'" in cli.error("verify", "maths", source, *out)
    assert "there is no --out" in cli.error("verify", "answer", source)
    assert "--out is the input itself" in cli.error("verify", "exact", source, "--out", source)
    assert "there is no file" in cli.error("verify", "exact", place / "no.jsonl", *out)
    assert "is a folder" in cli.error("verify", "exact", place, *out)
    assert "--function is None" in cli.error("verify", "function", source, *out)
    assert "there is no file" in cli.error("verify", "function", source, *out, "--function", "no_such.py:f")
    assert not (place / "out.jsonl").exists()


def test_memory_does_not_grow_with_the_file(place):
    """30 MB of rows, read 8 ahead."""
    import gc

    from gfcr.filter.judge_file import judge_file
    from gfcr.filter.judge_rows import Reader, generic
    from gfcr.filter.killable import KillableVerifier
    from gfcr.filter.pool.serve import resident_bytes
    from killable_cases import Judge

    line = json.dumps({"id": "x", "prediction": "judge" * 6_000}) + "\n"
    (place / "big.jsonl").write_text(line * 1_000)
    verifier = KillableVerifier(Judge(), 5)
    gc.collect()
    before = resident_bytes(os.getpid())
    most = 0

    def watch(done, lines, summary):
        nonlocal most
        most = max(most, resident_bytes(os.getpid())) if done % 100 == 0 else most
        assert lines == 1_000

    try:
        summary = judge_file(Reader(place / "big.jsonl", generic), place / "out.jsonl", verifier, {}, progress=watch)
    finally:
        verifier.close()
    assert summary.correct == 1_000
    assert most - before < 15 * 2**20


def test_a_run_directory_is_compared_with_what_was_committed(cli, tmp_path):
    from gfcr.recipe import load
    from gfcr.run.directory import RunDirectory

    recipe = load("grpo")
    with RunDirectory.create(tmp_path / "run", {"recipe": recipe.frozen(), "seed": 0, "hash": recipe.hash()}, {}):
        pass
    assert cli.json("verify", "run", tmp_path / "run")["differences"] == []
    file = tmp_path / "run" / "recipe.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1').replace('"seed":0', '"seed":1'))
    found = cli.json("verify", "run", tmp_path / "run", code=1)["differences"]
    assert [d["where"] for d in found] == ["recipe.json"]
    assert "recipe.json: expected" in cli("verify", "run", tmp_path / "run", code=1).stdout


def test_control_characters_of_a_file_never_reach_the_terminal(cli, place):
    given = [{"id": "a", "kind": "\x1b[31mred\u202e", "gold": "4", "prediction": "5", "expected": True}]
    said = cli("verify", "exact", write(place / "in.jsonl", given), "--out", place / "out.jsonl", "--workers", 1).stdout
    assert "\\x1b[31mred\\u202e" in said and "\x1b" not in said


def test_a_verifier_with_rows_of_its_own_reads_its_own_fields(cli, place):
    given = [
        {
            "id": "a",
            "schema_sql": "CREATE TABLE t(a); INSERT INTO t VALUES (1), (2)",
            "gold_sql": "SELECT a FROM t",
            "pred_sql": sql,
        }
        for sql in ("SELECT a FROM t ORDER BY a DESC", "SELECT 1", None)
    ]
    found = cli.json("verify", "sql", write(place / "in.jsonl", [*given, {"id": "b"}]), "--out", place / "out.jsonl")
    assert (found["correct"], found["wrong"], found["unscorable"]) == (1, 2, 1)
    assert [r["correct"] for r in read(place / "out.jsonl")] == [True, False, False, None]
    assert "no 'gold_sql'" in read(place / "out.jsonl")[3]["evidence"]
