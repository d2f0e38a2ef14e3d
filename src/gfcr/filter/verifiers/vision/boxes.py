"""Boxes in an answer, and how they overlap with the right ones.

Invariants: width and height are counted the same way in intersection and areas, so an IoU is in [0, 1] (one VLM-R1 module adds the
inclusive pixel on one side only and can exceed 1); an inverted or empty box overlaps with nothing; a box that is offered beside the
right ones costs; everything is bounded by MOST.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gfcr.filter.texts.values import NoValue, find, plain

Corners = tuple[float, float, float, float]
Layout = Literal["xyxy", "xywh", "cxcywh", "yxyx"]
Scale = Literal["pixel", "unit", "thousand"]
MOST = 100
"""Boxes of one answer."""
FARTHEST = 1e7
_KEYS = ("bbox_2d", "bbox", "box_2d", "box", "coordinates", "coords", "bounding_box")
_NAMED = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("left", "top", "right", "bottom"))  # fmt: skip
_SIZED = (("x", "y", "w", "h"), ("x", "y", "width", "height"), ("left", "top", "width", "height"))
_N = r"[-+]?(?:\d{1,9}(?:\.\d{0,18})?|\.\d{1,18})"
_SEP = r"[,;\s()]{1,12}"
_FOUR = re.compile(rf"[\[(<{{][\s(]{{0,12}}({_N}){_SEP}({_N}){_SEP}({_N}){_SEP}({_N})[\s)]{{0,12}}?[\])>}}]")


@dataclass(frozen=True, slots=True)
class Box:
    """Four numbers as written, and the label beside them (empty: none). `sized`: x, y, width and height, whatever the layout says."""

    numbers: Corners
    label: str = ""
    sized: bool = False


def read(value: Any) -> list[Box] | None:
    """The boxes of a JSON value: four numbers, an object with a box, or a list of those; None where it is none of them."""
    found: list[Box] = []
    return found if _collect(plain(value), "", found, 0) else None


def _collect(value: Any, label: str, found: list[Box], depth: int) -> bool:
    if depth > 6 or len(found) > MOST:
        return False
    if isinstance(value, list):
        if len(value) == 4 and all(_is_number(v) for v in value):
            found.append(Box((float(value[0]), float(value[1]), float(value[2]), float(value[3])), label))
            return True
        if len(value) == 2 and all(isinstance(v, list) and len(v) == 2 and all(map(_is_number, v)) for v in value):
            found.append(Box((float(value[0][0]), float(value[0][1]), float(value[1][0]), float(value[1][1])), label))
            return True
        return all(isinstance(v, (list, dict)) and _collect(v, label, found, depth + 1) for v in value)
    if not isinstance(value, dict):
        return False
    names = [value[k] for k in ("label", "name", "category", "class") if isinstance(value.get(k), str)]
    label = names[0] if names else label
    for key in _KEYS:
        if key in value:
            return _collect(value[key], label, found, depth + 1)
    for keys, sized in (*((k, False) for k in _NAMED), *((k, True) for k in _SIZED)):
        if all(_is_number(value.get(k)) for k in keys):
            a, b, c, d = (float(value[k]) for k in keys)
            found.append(Box((a, b, c, d), label, sized))
            return True
    for key in ("boxes", "bboxes", "objects", "detections", "answer"):
        if isinstance(value.get(key), (list, dict)):
            return _collect(value[key], label, found, depth + 1)
    return False


def written(text: str, several: bool) -> tuple[list[Box], int, int] | None:
    """(boxes, start, end) that a text ends with: its last JSON value that holds boxes, else the last four numbers in brackets (`several`:
    all of the last line that has any). None where it holds none; no boxes where its value is an empty list."""
    try:
        value, start, end = find(text)
    except NoValue:
        pass
    else:
        boxes = read(value)
        if (
            boxes is not None
            and (boxes or value in ([], {}))
            and (not several or not isinstance(value, list) or len(boxes) > 1 or "[" not in text[:start])
        ):
            return boxes, start, end
    matches = list(_FOUR.finditer(text))
    if not matches:
        return None
    last = matches[-1]
    if several:
        line = text.rfind("\n", 0, last.start()) + 1
        matches = [m for m in matches if m.start() >= line][-MOST - 1 :]
    else:
        matches = [last]
    made = [Box((float(m[1]), float(m[2]), float(m[3]), float(m[4]))) for m in matches]
    return made, matches[0].start(), matches[-1].end()


def corners(box: Box, layout: Layout, factors: tuple[float, float]) -> Corners | None:
    """(x1, y1, x2, y2) after `factors` (of x and y); None for a box that is inverted, empty, or not in any image."""
    a, b, c, d = box.numbers
    if not all(math.isfinite(v) and abs(v) <= FARTHEST for v in box.numbers):
        return None
    if box.sized or layout == "xywh":
        c, d = a + c, b + d
    elif layout == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    elif layout == "yxyx":
        a, b, c, d = b, a, d, c
    fx, fy = factors
    return (a * fx, b * fy, c * fx, d * fy) if c >= a and d >= b else None


def iou(a: Corners, b: Corners, inclusive: bool = False) -> float:
    """Intersection over union, in [0, 1]. `inclusive`: the last pixel belongs to the box, so widths are x2 - x1 + 1 everywhere. 0 where
    either box has no area."""
    one = 1.0 if inclusive else 0.0
    wide = min(a[2], b[2]) - max(a[0], b[0]) + one
    high = min(a[3], b[3]) - max(a[1], b[1]) + one
    first = (a[2] - a[0] + one) * (a[3] - a[1] + one)
    second = (b[2] - b[0] + one) * (b[3] - b[1] + one)
    if wide <= 0 or high <= 0 or first <= 0 or second <= 0:
        return 0.0
    shared = wide * high
    return min(1.0, shared / (first + second - shared))


def matched(gains: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pairs (row, column) of a one-to-one matching with the largest total gain (Hungarian algorithm, O(n^3)). Rows are at most MOST."""
    rows, columns = len(gains), len(gains[0]) if gains else 0
    if rows > columns:
        return sorted((j, i) for i, j in matched([list(column) for column in zip(*gains)]))
    u, v = [0.0] * (rows + 1), [0.0] * (columns + 1)
    owner, way = [0] * (columns + 1), [0] * (columns + 1)
    for i in range(1, rows + 1):
        owner[0], j0 = i, 0
        least, used = [math.inf] * (columns + 1), [False] * (columns + 1)
        while True:
            used[j0] = True
            i0, delta, j1 = owner[j0], math.inf, 0
            for j in range(1, columns + 1):
                if not used[j]:
                    cost = -gains[i0 - 1][j - 1] - u[i0] - v[j]
                    if cost < least[j]:
                        least[j], way[j] = cost, j0
                    if least[j] < delta:
                        delta, j1 = least[j], j
            for j in range(columns + 1):
                if used[j]:
                    u[owner[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            j0 = j1
            if owner[j0] == 0:
                break
        while j0:
            j1 = way[j0]
            owner[j0] = owner[j1]
            j0 = j1
    return sorted((owner[j] - 1, j - 1) for j in range(1, columns + 1) if owner[j])


def factors(scale: Scale, size: Sequence[float] | None, resized: Sequence[float] | None, pixels: bool) -> tuple[float, float]:
    """What coordinates are multiplied with to be pixels of the image as it is (`pixels`), or fractions of it. Raises ValueError where the
    image's size is needed and not known."""
    if scale == "pixel":
        if resized is not None:
            if size is None:
                raise ValueError("the task says how the image was resized but not its size")
            x, y = size[0] / resized[0], size[1] / resized[1]
        else:
            x = y = 1.0
        if pixels:
            return x, y
        if size is None:
            raise ValueError("coordinates in pixels and in fractions meet, and the task has no image size")
        return x / size[0], y / size[1]
    unit = 1.0 if scale == "unit" else 1 / 1000
    if not pixels:
        return unit, unit
    if size is None:
        raise ValueError("coordinates in pixels and in fractions meet, and the task has no image size")
    return unit * size[0], unit * size[1]


def sides(value: Any, what: str) -> tuple[float, float] | None:
    """Width and height from a column: [w, h] or {"width": w, "height": h}; None where there is none. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = [value.get("width", value.get("w")), value.get("height", value.get("h"))]
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(_is_number(v) and 0 < v <= FARTHEST for v in value):
        return float(value[0]), float(value[1])
    raise ValueError(f"the task's {what} is {value!r}, not a width and a height")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
