"""Task files, good and bad: what is read, and that every refusal names the place."""

import builtins
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gfcr.domains.source import FileTasks, Loaded
from gfcr.errors import ConfigError, DataError, MissingExtra

GOOD = [{"question": "1+1", "answer": "2", "level": 3, "note": None}, {"question": "2+2", "answer": 4, "level": 1, "note": "x"}]


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows))
    return path


def read(path: Path, **settings: Any) -> Loaded:
    return FileTasks(path, "math", **settings).read(path)


def test_jsonl_by_convention(tmp_path: Path) -> None:
    loaded = read(jsonl(tmp_path / "a.jsonl", *GOOD))
    assert loaded.columns == {"prompt": "question", "reference": "answer", "category": "level"}
    first, second = loaded.tasks
    assert (first.prompt, first.reference, first.category, dict(first.meta)) == ("1+1", "2", "3", {})
    assert (second.reference, dict(second.meta), second.origin.source) == (4, {"note": "x"}, "a.jsonl")
    assert first.domain == "math" and loaded.rows == 2 and not loaded.duplicates


def test_csv_and_parquet_give_the_same_tasks(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"problem": 'a, "b"\nc', "solution": "2"}, {"problem": "é?", "solution": "7"}]
    (tmp_path / "a.csv").write_text('problem,solution\n"a, ""b""\nc",2\n\né?,7\n', "utf-8")
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    tables = [read(tmp_path / "a.csv"), read(tmp_path / "a.parquet"), read(jsonl(tmp_path / "a.jsonl", *rows))]
    assert len({tuple((t.id, t.prompt, t.reference) for t in table.tasks) for table in tables}) == 1


def test_column_map_goes_before_conventions(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "p", "question": "q", "key": "k", "answer": "a", "rev": 2})
    task = read(path, columns={"prompt": "question", "reference": "key", "reference_rev": "rev"}, meta=("answer",)).tasks[0]
    assert (task.prompt, task.reference, task.reference_rev, dict(task.meta)) == ("q", "k", "2", {"answer": "a"})


def test_one_column_serves_one_field(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "p", "input": "i", "label": "l"})
    assert read(path, columns={"category": "prompt"}).columns["prompt"] == "input"


def test_chat_prompts(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    prompt = read(jsonl(tmp_path / "a.jsonl", {"prompt": chat, "answer": "x"})).tasks[0].prompt
    assert not isinstance(prompt, str) and [m.role for m in prompt] == ["system", "user"] and prompt[1].parts[0].text == "hi"
    with pytest.raises(DataError, match=r"a\.jsonl:1, column 'prompt': a message needs"):
        read(jsonl(tmp_path / "a.jsonl", {"prompt": [{"role": "user"}], "answer": "x"}))


def test_duplicates_are_kept_once_and_reported(tmp_path: Path) -> None:
    loaded = read(
        jsonl(
            tmp_path / "a.jsonl",
            {"prompt": "p", "answer": "1"},
            {"prompt": "p", "answer": "1"},
            {"prompt": "q", "answer": "1"},
            {"prompt": "p", "answer": "2"},
        )
    )
    assert [t.reference for t in loaded.tasks] == ["1", "1"] and loaded.rows == 4
    same, other = loaded.duplicates
    assert (same.kept, same.dropped, same.conflict) == ("a.jsonl:1", "a.jsonl:2", False)
    assert (other.kept, other.dropped, other.conflict) == ("a.jsonl:1", "a.jsonl:4", True)
    assert "ANOTHER reference" in str(other) and "ANOTHER" not in str(same)


def test_missing_references(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "p", "answer": "1"}, {"prompt": "q"}, {"prompt": "r", "answer": " "})
    with pytest.raises(DataError, match=r"2 of 3 rows") as caught:
        read(path)
    assert "a.jsonl:2, column 'answer'" in caught.value.what and "a.jsonl:3" in caught.value.what
    assert [t.reference for t in read(path, need_reference=False).tasks] == ["1", None, None]
    assert read(jsonl(path, {"prompt": "p"}), need_reference=False).columns == {"prompt": "prompt"}
    assert read(jsonl(path, {"prompt": "p", "answer": 0})).tasks[0].reference == 0  # 0 and False are references
    assert read(jsonl(path, {"prompt": "p", "answer": False})).tasks[0].reference is False


def test_line_separators_inside_strings_do_not_split_rows(tmp_path: Path) -> None:
    assert read(jsonl(tmp_path / "a.jsonl", {"prompt": "a\u2028b\x85c", "answer": "1"})).tasks[0].prompt == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", '{"prompt": "p", "answer": 1}\n{"prompt": \n', r"a\.jsonl:2 is not JSON.*begins '\{\"prompt\": '"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1 is '\[1\]', not a JSON object"),
        ("a.jsonl", '{"prompt": "p", "answer": NaN}\n', r"a\.jsonl:1, column 'answer': nan is not a finite number"),
        ("a.jsonl", '{"prompt": "p", "answer": 1e999}\n', r"a\.jsonl:1, column 'answer': inf is not a finite number"),
        (
            "a.jsonl",
            '{"prompt": "p", "answer": 1}\n{"prompt": "q", "answer": {"cases": [1, {"x": NaN}]}}\n',
            r"a\.jsonl:2, column 'answer' at cases\[1\]\.x: nan is not a finite number",
        ),
        (
            "a.jsonl",
            '{"prompt": "p", "answer": 1, "more": [[-Infinity]]}\n',
            r"a\.jsonl:1, column 'more' at \[0\]\[0\]: -inf is not",
        ),
        (
            "a.jsonl",
            '{"prompt": "p", "answer": 1, "more": Infinity}\n',
            r"a\.jsonl:1, column 'more': inf is not a finite number",
        ),
        ("a.jsonl", '{"prompt": 5, "answer": 1}\n', r"a\.jsonl:1, column 'prompt': .*not '5'"),
        ("a.jsonl", '{"prompt": "  ", "answer": 1}\n', r"a\.jsonl:1, column 'prompt'"),
        ("a.jsonl", "", "has no rows"),
        ("a.jsonl", "\n\n", "has no rows"),
        ("a.csv", "prompt,answer\n", "has no rows"),
        ("a.csv", "prompt,answer\np,1\nq,1,2\n", r"a\.csv:3 has 3 fields, the header has 2: 'q,1,2'"),
        ("a.csv", 'prompt,answer\n"p,1\n', r"a\.csv:2 is not CSV"),
        ("a.csv", "prompt,answer,answer\np,1,2\n", "two columns named 'answer'"),
        (
            "a.csv",
            "text,gold\np,1\n",
            "no column for the prompt: looked for prompt, question, problem, input, messages; it has text, gold",
        ),
        ("a.csv", "prompt,gold\np,1\n", "no column for the reference: looked for answer, solution.*it has prompt, gold"),
        ("a.parquet", "nonsense", "not a Parquet file"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=expected) as caught:
        read(tmp_path / name)
    assert caught.value.remedy
    assert 'reference = "prompt"' not in caught.value.remedy  # a task is no answer to itself


def test_a_cell_that_is_nan_is_a_missing_one_but_for_references(tmp_path: Path) -> None:
    """As tables of numbers spell it (a parquet file of pandas'); a reference that is no number is told."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"prompt": ["p", "q"], "answer": [1.0, 2.0], "category": [float("nan"), 3.0], "level": [float("nan"), 5.0]}
    parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    first, second = read(tmp_path / "a.parquet").tasks
    assert (first.category, dict(first.meta)) == ("", {})
    assert (second.category, dict(second.meta)) == ("3.0", {"level": 5.0})
    parquet.write_table(pa.table({**rows, "answer": [float("nan"), 2.0]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet:1, column 'answer': nan is not a finite number"):
        read(tmp_path / "b.parquet", need_reference=False)


def test_what_a_run_could_not_keep_is_refused_before_it_starts(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    when = datetime(2020, 1, 1)
    parquet.write_table(pa.table({"prompt": ["p"], "answer": [1], "made": [when]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet:1, column 'made': datetime is no JSON data"):
        read(tmp_path / "a.parquet")


def test_many_bad_rows_are_counted_and_some_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="30 of 31 rows") as caught:
        read(jsonl(tmp_path / "a.jsonl", {"prompt": "p", "answer": "1"}, *[{"prompt": None, "answer": "1"}] * 30))
    assert "and 22 more" in caught.value.what


def test_other_refusals(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *GOOD)
    with pytest.raises(ConfigError, match="a field 'promt'"):
        read(path, columns={"promt": "question"})
    with pytest.raises(ConfigError, match=r"from 'text', but .* has question, answer, level, note"):
        read(path, columns={"prompt": "text"})
    with pytest.raises(ConfigError, match="no column 'x' to carry"):
        read(path, meta=("x",))
    with pytest.raises(ConfigError, match=r"'\.txt' is none of"):
        read(tmp_path / "a.txt")
    for name in ("b.jsonl", "b.parquet"):
        with pytest.raises(DataError, match="there is no file"):
            read(tmp_path / name)
    (tmp_path / "latin.csv").write_bytes(b"prompt,answer\n\xe9,1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read(tmp_path / "latin.csv")


def test_parquet_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"gfcr\[parquet\]"):
        read(tmp_path / "a.parquet")


def test_heldout_is_kept_apart(tmp_path: Path) -> None:
    train, held = jsonl(tmp_path / "a.jsonl", *GOOD), jsonl(tmp_path / "b.jsonl", {"question": "3+3", "answer": "6"})
    assert FileTasks(train, "math").heldout() is None
    assert [t.reference for t in FileTasks(train, "math", heldout_path=held).heldout() or []] == ["6"]
    with pytest.raises(DataError, match="1 of 1 held-out tasks"):
        FileTasks(train, "math", heldout_path=jsonl(held, GOOD[0])).heldout()
