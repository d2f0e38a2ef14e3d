"""Answers about images, in the forms models write them."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verifiers.vision import boxes as bx
from gfcr.filter.verifiers.vision import numbers as nu
from gfcr.filter.verifiers.vision.reading import distance, similarity
from gfcr.filter.verifiers.vision.rows import case
from gfcr.filter.verifiers.vision.verifier import Vision
from gfcr.types import Status, StopReason, Task, Verdict


def judge(kind: str, text: str, reference: object, meta: dict | None = None, **own: object) -> Verdict:
    verifier = Vision(Vision.Settings.model_validate({"kind": kind, **own}))
    return verifier.judge(Task("t", "q", reference, meta=meta or {}), text, StopReason.EOS)


@pytest.mark.parametrize(
    "text",
    [
        "[10, 20, 30, 40]",
        "[10,20,30,40]",
        "(10, 20, 30, 40)",
        "(10,20),(30,40)",
        "<box>(10,20),(30,40)</box>",
        "<|box_start|>(10,20),(30,40)<|box_end|>",
        "<box>[[10, 20, 30, 40]]</box>",
        "[[10, 20], [30, 40]]",
        "[10.0, 20.0, 30.0, 40.0]",
        "The box is [10, 20, 30, 40].",
        "<think>[1, 2, 3, 4]</think><answer>[10, 20, 30, 40]</answer>",
        "<answer>{[10, 20, 30, 40]}</answer>",
        "First I thought [1, 2, 3, 4], but it is [10, 20, 30, 40]",
        r"\boxed{[10, 20, 30, 40]}",
        '```json\n[{"bbox_2d": [10, 20, 30, 40], "label": "cat"}]\n```',
        "```json\r\n{'bbox': [10, 20, 30, 40],}\r\n```",
        '{"x1": 10, "y1": 20, "x2": 30, "y2": 40}',
        '{"x": 10, "y": 20, "width": 20, "height": 20}',
        '{"left": 10, "top": 20, "right": 30, "bottom": 40}',
        '{"objects": [{"box": [10, 20, 30, 40]}]}',
        "\ufeff[10, 20, 30, 40]<|im_end|>",
        "Answer: [10 20 30 40]",
    ],
)
def test_boxes_in_odd_formats_are_read(text: str) -> None:
    verdict = judge("iou", text, [10, 20, 30, 40])
    assert (verdict.score, verdict.correct) == (1.0, True), verdict.evidence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no box",
        "[10, 20, 30]",
        "10",
        "[NaN, 20, 30, 40]",
        "[30, 40, 10, 20]",
        "[1e400, 0, 1, 1]",
        "[" * 1000,
        "<answer>[10,20,30,40],[50,50,60,60]</answer>",
    ],
)
def test_these_are_not_the_box(text: str) -> None:
    verdict = judge("iou", text, [10, 20, 30, 40])
    assert verdict.status is Status.SCORED and verdict.correct is False


def test_layouts_and_scales() -> None:
    for layout, text in (
        ("xyxy", "[10, 20, 30, 60]"),
        ("xywh", "[10, 20, 20, 40]"),
        ("cxcywh", "[20, 40, 20, 40]"),
        ("yxyx", "[20, 10, 60, 30]"),
    ):
        assert judge("iou", text, [10, 20, 30, 60], layout=layout).score == 1.0
        assert judge("iou", "[10, 20, 30, 60]", [float(v) for v in text[1:-1].split(",")], reference_layout=layout).score == 1.0
    size = {"size": [100, 200]}
    assert judge("iou", "[0.1, 0.1, 0.3, 0.3]", [10, 20, 30, 60], size, scale="unit").score == pytest.approx(1.0)
    assert judge("iou", "[100, 100, 300, 300]", [10, 20, 30, 60], size, scale="thousand").score == pytest.approx(1.0)
    assert judge(
        "iou", "[0.1, 0.1, 0.3, 0.3]", [100, 100, 300, 300], scale="unit", reference_scale="thousand"
    ).score == pytest.approx(1)
    # the model saw the image at half its width: undone
    assert (
        judge("iou", "[5, 20, 15, 60]", [10, 20, 30, 60], {"size": [100, 200], "resized": {"width": 50, "height": 200}}).score
        == 1.0
    )
    lacks = judge("iou", "[0.1, 0.1, 0.3, 0.3]", [10, 20, 30, 60], scale="unit")
    assert lacks.status is Status.UNSCORABLE and "no image size" in lacks.evidence


def test_several_boxes_labels_and_none() -> None:
    gold = [{"bbox": [0, 0, 10, 10], "label": "cat"}, {"bbox": [20, 20, 30, 30], "label": "dog"}]
    right = '[{"bbox_2d": [20, 20, 30, 30], "label": "Dog"}, {"bbox_2d": [0, 0, 10, 10], "label": "cat"}]'
    assert judge("iou", right, gold).correct is True
    assert judge("iou", right.replace("Dog", "cat"), gold).correct is False
    assert judge("iou", "[0,0,10,10], [20,20,30,30]", gold).correct is True  # without labels
    for text, correct in (
        ("[]", True),
        ("None.", True),
        ("<answer>none</answer>", True),
        ("", False),
        ("[0,0,1,1]", False),
        ("a cat", False),
    ):
        assert judge("iou", text, []).correct is correct, text
    assert judge("iou", "[]", [0, 0, 1, 1]).correct is False
    many = str([[i, 0, i + 1, 1] for i in range(150)])
    assert judge("iou", many, gold).score == 0.0


def test_bad_references_are_unscorable() -> None:
    for kind, reference in (
        ("iou", None), ("iou", "cat"), ("iou", [1, 2, 3]), ("iou", [5, 5, 5, 9]), ("iou", [9, 9, 1, 1]), ("mra", "two or three"), ("mra", [1]), ("mra", True),
        ("count", 2.5), ("count", -1), ("count", "many"), ("ocr", ""), ("ocr", []), ("ocr", ["a", ""]), ("ocr", "x" * 30_000),
    ):  # fmt: skip
        verdict = judge(kind, "5", reference)
        assert (verdict.status, verdict.score) == (Status.UNSCORABLE, None), (kind, reference)
    assert judge("iou", "[0,0,1,1]", [0, 0, 1, 1], {"size": [0, 5]}).status is Status.UNSCORABLE


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_matching_is_the_best_one(gains: list[list[int]]) -> None:
    pairs = bx.matched([[v / 10 for v in row] for row in gains])
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs) == min(len(gains), 3)
    rows, columns = range(len(gains)), range(3)
    best = max(
        sum(gains[i][j] for i, j in (zip(some, columns) if len(gains) >= 3 else zip(rows, some)))
        for some in (itertools.permutations(rows, 3) if len(gains) >= 3 else itertools.permutations(columns, len(gains)))
    )
    assert sum(gains[i][j] for i, j in pairs) == best


BOX = st.tuples(*[st.floats(-1e6, 1e6)] * 4).map(lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])))


@given(BOX, BOX, st.booleans())
def test_an_iou_is_symmetric_and_in_the_unit_interval(a: bx.Corners, b: bx.Corners, inclusive: bool) -> None:
    assert 0 <= bx.iou(a, b, inclusive) <= 1 and bx.iou(a, b, inclusive) == bx.iou(b, a, inclusive)
    assert bx.iou(a, a, True) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", "42"),
        ("-3.5", "-7/2"),
        ("−3", "-3"),
        ("1,234.5", "2469/2"),
        ("The answer is 2.5 meters.", "5/2"),
        ("<answer>7</answer>", "7"),
        (r"\boxed{7}", "7"),
        ("Distance: about 3.2", "16/5"),
        ("I see 4 chairs and 3 tables, so the answer is: 7 objects in 2 rooms", "7"),
        ("4 + 3 = 7", "7"),
        ("The answer is 4 + 3 = 7.", "7"),
        ("There are 4 in the first room, 3 in the second one, so that makes, in total and without doubt, 7", "7"),
        ("twenty-one", "21"),
        ("one hundred and five", "105"),
        ("two thousand three hundred", "2300"),
        ("The answer is one.", "1"),
        ("3/4", "3/4"),
        ("75%", "3/4"),
        ("1.5e3", "1500"),
        (r"1.5 \times 10^{3}", "1500"),
        ("1.5 x 10^-1", "3/20"),
        ("There are, as far as anybody can see in this picture of a room, three chairs.", "3"),
        ("2.5 m or 250 cm", "5/2"),
    ],
)
def test_numbers_are_read(text: str, value: str) -> None:
    found = nu.given(text)
    assert isinstance(found, nu.Reading) and found.value == Fraction(value), found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a chair",
        "an apple",
        "no idea",
        "2 or 3",
        "2-3",
        "2 to 3 meters",
        "between 2 and 3",
        "The answer is 2, 3",
        "2±1",
        "two or three",
        "1/0",
        "one zero",
        "9" * 5000,
        "1e999999999",
        "the one that everybody in this very long sentence without figures means",
    ],
)
def test_these_give_no_number(text: str) -> None:
    assert isinstance(nu.given(text), nu.NoNumber)


def test_units() -> None:
    for text, unit, value in (
        ("2.5 m", "cm", 250),
        ("3 square feet", "ft2", 3),
        ("10 km", "m", 10_000),
        ("5", "m", 5),
        ("12 inches", "ft", 1),
    ):
        (found,) = nu.readings(text)
        assert nu.in_unit(found, unit) == value
    assert nu.in_unit(nu.readings("5 m2")[0], "m") is None
    assert judge("mra", "The room is 20 m^2.", "20 square meters").correct is True
    assert judge("mra", "8 feet", "2.44 m").correct is True


def test_right_at_and_none() -> None:
    assert judge("mra", "9", 10, right_at=0.9).correct is True and judge("mra", "9", 10).correct is False
    assert judge("count", "There are no chairs.", 0).correct is True and judge("count", "none", 1).correct is False
    assert judge("count", "3.0", 3).correct is True and judge("count", "3.5", 3).correct is False


@pytest.mark.parametrize(
    ("text", "reference", "own", "score"),
    [
        ("STOP", "stop", {}, 1.0),
        ('"STOP"', "STOP", {}, 1.0),
        ("“STOP”", "STOP", {}, 1.0),
        ("<answer>STOP</answer>", "STOP", {}, 1.0),
        ("The answer is STOP", "STOP", {}, 1.0),
        ("\ufeffSTOP\r\n AHEAD", "stop ahead", {}, 1.0),
        ("$5.00", "$5.00", {}, 1.0),
        ("STOP", "stop", {"ignore_case": False, "metric": "similarity"}, 0.0),
        ("The answer is STOP", "The answer is STOP", {"answer": "whole"}, 1.0),
        ("cafe\u0301", "café", {}, 1.0),
        ("abxy", "abcd", {"tau": 0.6}, 0.5),
        ("abxy", "abcd", {"metric": "similarity"}, 0.5),
        ("x" * 100_000, "abcd", {"metric": "similarity"}, 0.0),
    ],
)
def test_texts(text: str, reference: str, own: dict, score: float) -> None:
    assert judge("ocr", text, reference, **own).score == pytest.approx(score)


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_the_distance_is_the_edit_distance(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    assert distance(a, b) == distance(b, a) == row[-1]
    assert (similarity(a, b, "similarity", 0.5) == 1) == (a == b)


def test_settings_of_a_task_and_rows() -> None:
    verifier = Vision(Vision.Settings())
    for row, right in (
        ({"kind": "iou", "gold": [0, 0, 10, 10], "prediction": "[0, 0, 10, 9]"}, True),
        ({"kind": "iou", "gold": [0, 0, 10, 10], "prediction": "[0, 0, 10, 9]", "right_at": 0.95}, False),
        ({"kind": "count", "gold": "3", "prediction": "three"}, True),
        ({"kind": "ocr", "gold": "a", "prediction": None}, False),
        ({"kind": "mra", "gold": None, "prediction": "3"}, None),
        ({"gold": 3, "prediction": "3"}, None),  # no kind anywhere
    ):
        task, text = case(row)
        assert verifier.judge(task, text, StopReason.EOS).correct is right, row
    with pytest.raises(ConfigError, match="kind is 'bbox'"):
        case({"kind": "bbox", "gold": 1, "prediction": ""})
    with pytest.raises(ConfigError, match="set `kind`"):
        Vision(Vision.Settings(), Build(0, [Task("t", "q", 3)], 1, 1, 8))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({}, "no kind is given, neither by a setting nor by the task"),
        ("iou", "column 'vision' is 'iou', not a mapping of settings"),
        ({"kind": "iou", "layout": "yx"}, "column 'vision': layout: Input should be"),
    ],
)
def test_a_column_of_settings_that_cannot_be_is_named(own: object, why: str) -> None:
    verdict = Vision(Vision.Settings()).judge(Task("t", "", "1", meta={"vision": own}), "1", StopReason.EOS)
    assert verdict.status is Status.UNSCORABLE and why in verdict.evidence


def test_no_text_takes_long() -> None:
    for text in ("[" * 9_000, "1 " * 9_000, "(1,2" * 5_000, "one " * 5_000, "1-" * 9_000, "twenty " * 5_000, "[1,2,3,4]," * 4_000, "m" * 20_000, "9" * 20_000):  # fmt: skip
        for kind, reference in (("iou", [[0, 0, 1, 1], [2, 2, 3, 3]]), ("mra", 5), ("count", 5), ("ocr", "x" * 19_000)):
            began = time.process_time()
            judge(kind, text, reference)
            assert time.process_time() - began < 2, (text[:8], kind)
