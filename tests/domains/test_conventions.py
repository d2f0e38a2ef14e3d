"""Column conventions: each framework's own rows are recognised, what could be two things is refused with both names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gfcr.domains.answers import Extract
from gfcr.domains.rows import write_rows
from gfcr.domains.source import FileTasks, Loaded
from gfcr.errors import ConfigError, DataError
from gfcr.recipe import TasksSection
from gfcr.task_sets import load_tasks

CHAT = [{"role": "user", "content": "What is 2+3?"}]
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": CHAT,
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "5"},
    "extra_info": {"split": "train", "index": 0, "answer": "2+3=5 #### 5"},
}


def read(path: Path, *rows: Any, **settings: Any) -> Loaded:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return FileTasks(path, "math", **settings).read(path)


@pytest.mark.parametrize(
    ("row", "convention", "prompt", "reference", "extract"),
    [
        ({"prompt": "2+3?", "solution": "5"}, "TRL columns", "prompt", "solution", "whole"),
        ({"prompt": CHAT, "answer": "5"}, "TRL columns", "prompt", "answer", "whole"),
        ({"prompt": CHAT, "ground_truth": "5"}, "TRL columns", "prompt", "ground_truth", "whole"),
        (VERL, "verl columns", "prompt", "reward_model.ground_truth", "whole"),
        ({"input": "2+3?", "label": "5"}, "OpenRLHF columns", "input", "label", "whole"),
        (
            {"question": "2+3?", "answer": "5", "info": {"a": 1}},
            "columns of the library verifiers",
            "question",
            "answer",
            "whole",
        ),
        ({"prompt": CHAT, "answer": "5", "info": "{}"}, "columns of the library verifiers", "prompt", "answer", "whole"),
        ({"question": "2+3?", "answer": "2+3=<<2+3=5>>5\n#### 5"}, "GSM8K columns", "question", "answer", "hash"),
        (
            {"problem": "2+3?", "solution": r"So \boxed{5}.", "level": 1, "type": "a"},
            "MATH columns",
            "problem",
            "solution",
            "boxed",
        ),
        ({"problem": "2+3?", "solution": r"So \boxed{5}.", "answer": "5"}, "MATH-500 columns", "problem", "answer", "whole"),
        ({"messages": CHAT, "answer": "5"}, "AReaL columns", "messages", "answer", "whole"),
        ({"prompt": "2+3?", "label": "5", "metadata": {}}, "slime columns", "prompt", "label", "whole"),
    ],
)
def test_every_convention(
    tmp_path: Path, row: dict[str, Any], convention: str, prompt: str, reference: str, extract: str
) -> None:
    loaded = read(tmp_path / "a.jsonl", row)
    found = loaded.recognised
    assert (found.convention, found.columns["prompt"], found.columns["reference"], found.extract) == (
        convention,
        prompt,
        reference,
        extract,
    )
    (task,) = loaded.tasks
    assert task.reference == "5"
    assert (task.prompt if isinstance(task.prompt, str) else task.prompt[0].parts[0].text) in ("2+3?", "What is 2+3?")
    assert f"prompt from '{prompt}'" in str(found) and f"reference from '{reference}'" in str(found)


def test_what_is_not_a_field_is_carried(tmp_path: Path) -> None:
    (task,) = read(tmp_path / "a.jsonl", VERL).tasks
    assert task.meta["extra_info"]["index"] == 0 and task.meta["data_source"] == "openai/gsm8k" and task.category == "math"
    worked = "2+3=<<2+3=5>>5\n#### 5"
    (task,) = read(tmp_path / "b.jsonl", {"question": "2+3?", "answer": worked}).tasks
    assert task.meta == {"answer": worked, "solution": worked}  # the worked solution, with the final answer apart


def test_nested_columns_are_reached_by_the_map(tmp_path: Path) -> None:
    row = {"data": {"q": {"text": "2+3?"}}, "info": '{"gold": "5"}'}
    loaded = read(tmp_path / "a.jsonl", row, columns={"prompt": "data.q.text", "reference": "info.gold"})
    assert (loaded.tasks[0].prompt, loaded.tasks[0].reference, loaded.recognised.convention) == ("2+3?", "5", "your column map")
    with pytest.raises(ConfigError, match=r"reads reference from 'info\.silver', but .* has data, info"):
        read(tmp_path / "a.jsonl", row, columns={"prompt": "data.q.text", "reference": "info.silver"})


@pytest.mark.parametrize(
    ("rows", "both", "remedy"),
    [
        (
            [{"prompt": "p", "solution": "5", "answer": "6"}],
            r"'answer' and 'solution' could both be the reference",
            "reference",
        ),
        (
            [{"prompt": "p", "question": "q", "answer": "6"}],
            r"'prompt' and 'question' could both be the prompt.*'p' and 'q'",
            "prompt",
        ),
        ([{**VERL, "answer": "6"}], r"'answer' and 'reward_model\.ground_truth' could both be the reference", "reference"),
        (
            [{"prompt": "p", "label": "1", "answer": "1"}, {"prompt": "q", "label": "1", "answer": "2"}],
            "first in row 2",
            "answer",
        ),
    ],
)
def test_what_could_be_two_things_is_refused_with_both(tmp_path: Path, rows: list[Any], both: str, remedy: str) -> None:
    with pytest.raises(DataError, match=both) as caught:
        read(tmp_path / "a.jsonl", *rows)
    assert "columns = {" in caught.value.remedy and remedy in caught.value.remedy


def test_two_columns_that_say_the_same_are_one_and_a_map_decides(tmp_path: Path) -> None:
    row = {"prompt": "p", "question": "p", "label": 5, "answer": "5"}
    assert read(tmp_path / "a.jsonl", row).columns["prompt"] == "prompt"
    row = {"prompt": "p", "solution": "5", "answer": "6"}
    assert read(tmp_path / "a.jsonl", row, columns={"reference": "solution"}).tasks[0].reference == "5"


def test_a_mark_that_only_some_rows_have(tmp_path: Path) -> None:
    rows = [{"question": "a", "answer": "#### 5"}, {"question": "b", "answer": "six"}]
    with pytest.raises(DataError, match=r"1 of 2 values of 'answer' mark their final answer with '####'") as caught:
        read(tmp_path / "a.jsonl", *rows)
    assert 'tasks.extract = "hash"' in caught.value.remedy
    assert [t.reference for t in read(tmp_path / "a.jsonl", *rows, extract=Extract.WHOLE).tasks] == ["#### 5", "six"]
    with pytest.raises(DataError, match=r"a\.jsonl:2, column 'answer': no reference: 'six'"):
        read(tmp_path / "a.jsonl", *rows, extract=Extract.HASH)
    found = read(tmp_path / "a.jsonl", *rows, extract=Extract.HASH, need_reference=False)
    assert [t.reference for t in found.tasks] == ["5", None] and found.without_reference == 1


def test_a_prompt_that_ends_with_the_answer_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the last message is the assistant's"):
        read(tmp_path / "a.jsonl", {"messages": [*CHAT, {"role": "assistant", "content": "5"}], "answer": "5"})


def test_datasets_saved_and_in_memory_give_the_tasks_of_the_rows(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    train = datasets.Dataset.from_list([VERL, {**VERL, "prompt": [{"role": "user", "content": "3+4?"}]}])
    test = datasets.Dataset.from_list([{**VERL, "prompt": [{"role": "user", "content": "1+1?"}]}])
    both = datasets.DatasetDict({"train": train, "test": test})
    both.save_to_disk(tmp_path / "both")
    train.save_to_disk(tmp_path / "one")
    one = FileTasks(tmp_path / "one", "math").read(tmp_path / "one")
    assert one.recognised.convention == "verl columns" and [t.reference for t in one.tasks] == ["5", "5"]
    section = TasksSection(source="file", path=str(tmp_path / "both"), split="train", heldout_split="test")
    found = load_tasks(section)
    assert (len(found.tasks), len(found.heldout)) == (2, 1) and found.recognised.startswith(
        "verl columns: prompt from 'prompt'"
    )
    with pytest.raises(ConfigError, match="has the splits train, test"):
        load_tasks(section.model_copy(update={"split": None}))
    with pytest.raises(ConfigError, match="has no split 'dev'"):
        load_tasks(section.model_copy(update={"split": "dev"}))
    assert write_rows(both, tmp_path / "mem.jsonl", "train") == 2
    again = FileTasks(tmp_path / "mem.jsonl", "math").read(tmp_path / "mem.jsonl")
    assert [t.id for t in again.tasks] == [t.id for t in one.tasks]


def test_rows_in_memory_that_are_no_tasks(tmp_path: Path) -> None:
    assert write_rows([{"prompt": "p", "answer": 1}], tmp_path / "a.jsonl") == 1
    for data, error, what in (
        ([], DataError, "no rows"),
        ([3], DataError, "row 1 of the data set is int"),
        ([{"prompt": "p", "image": b"x"}], DataError, "row 1 of the data set, column 'image': bytes is no JSON data"),
        ([{"prompt": "p", "a": {"x": [0.0, float("nan")]}}], DataError, r"column 'a' at x\[1\]: nan is not a finite number"),
        ({"a": [], "b": []}, ConfigError, "has the splits a, b"),
    ):
        with pytest.raises(error, match=what):
            write_rows(data, tmp_path / "b.jsonl")
    with pytest.raises(ConfigError, match="is one table and has no split 'train'"):
        FileTasks(tmp_path / "a.jsonl", "math").read(tmp_path / "a.jsonl", "train")


def test_missing_references_by_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p", "answer": "1"}\n{"prompt": "q", "answer": null}\n')
    section = TasksSection(source="file", path=str(path))
    with pytest.raises(DataError, match="1 of 2 rows"):
        load_tasks(section)
    found = load_tasks(section.model_copy(update={"need_reference": False}))
    assert [t.reference for t in found.tasks] == ["1", None]
    assert found.notes == ["1 of 2 tasks have no reference: verifiers that need one cannot judge them"]
