"""Charts as inline SVG.

Invariants: every text is escaped here; colours are names of the page's palette (CSS variables), so that a chart follows light
and dark; what is not measured (None) leaves a gap or is left out, and is never drawn at 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

from markupsafe import Markup, escape

from gfcr.report.text import signed

LEFT, RIGHT, TOP, BOTTOM = 44, 14, 12, 36

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `ys` may have None for what was not measured."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: str
    """A palette name: `c1` to `c8`, `muted`, ..."""
    kind: str = "main"
    """CSS class: `main`, `thin` (a single seed, a raw value), `dashed`."""
    points: bool = False
    hover: bool = True
    """Whether its values show under the pointer."""


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    low: float
    high: float
    ticks: Sequence[float]
    form: Format = field(default=str)


@dataclass(frozen=True, slots=True)
class Canvas:
    """Size of a chart in its own units, about one CSS pixel each where it is shown."""

    width: int = 560
    height: int = 270

    def x(self, axis: Axis, value: float) -> float:
        return LEFT + (value - axis.low) / (axis.high - axis.low) * (self.width - LEFT - RIGHT)

    def y(self, axis: Axis, value: float) -> float:
        """Values outside the axis lie on its end."""
        return self.foot - (min(max(value, axis.low), axis.high) - axis.low) / (axis.high - axis.low) * (self.foot - TOP)

    @property
    def foot(self) -> int:
        """Where the x axis lies."""
        return self.height - BOTTOM


SMALL, WIDE = Canvas(), Canvas(1130, 340)


def thousands(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def fraction(value: float) -> str:
    """`.25`, `0`, `−.5`."""
    text = f"{abs(value):.3f}".rstrip("0").rstrip(".")
    return ("−" if value < 0 and float(text) else "") + (text[1:] if text.startswith("0.") else text)


def plain(value: float) -> str:
    return f"{value:g}"


def axis(
    label: str,
    values: Sequence[float],
    form: Format = plain,
    low: float | None = 0.0,
    high: float | None = None,
    at_most: int = 6,
) -> Axis:
    """An axis over the values with round ticks; `low` or `high` None = from the data."""
    smallest = min(values, default=0.0) if low is None else low
    largest = max(values, default=1.0) if high is None else high
    if largest <= smallest:
        largest = smallest + 1.0
    step = _step((largest - smallest) / at_most)
    first = floor(smallest / step + 1e-9) * step if low is None else smallest
    last = ceil(largest / step - 1e-9) * step if high is None else largest
    ticks = [round(first + i * step, 12) for i in range(int((last - first) / step + 1e-6) + 1)]
    return Axis(label, first, last, ticks, form)


def _step(raw: float) -> float:
    size = 10.0 ** floor(log10(raw))
    return next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * (1 - 1e-9))


def line_chart(title: str, x: Axis, y: Axis, lines: Sequence[Line], note: str = "", canvas: Canvas = SMALL) -> Markup:
    """Lines over a common x."""
    body = [_frame(canvas, x, y)]
    for line in sorted(lines, key=lambda one: one.kind == "main"):
        at = [None if v is None else (canvas.x(x, u), canvas.y(y, v)) for u, v in zip(line.xs, line.ys)]
        for run in _runs(at):
            body.append(
                f'<polyline class="line {escape(line.kind)}" style="--c:var(--{escape(line.colour)})" points="'
                + " ".join(f"{a:.1f},{b:.1f}" for a, b in run)
                + '"/>'
            )
        if line.points or sum(p is not None for p in at) == 1:
            body += [
                f'<circle class="dot" style="--c:var(--{escape(line.colour)})" cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="3"/>'
                for p in at
                if p
            ]
    shown = [line for line in lines if line.hover]
    return _figure(
        title,
        canvas,
        x,
        "".join(body),
        [(line.name, line.colour, line.kind) for line in shown],
        _hover(canvas, x, [(line.name, line.colour, line.xs, line.ys) for line in shown]),
        note,
    )


def stacked_chart(
    title: str,
    x: Axis,
    y: Axis,
    xs: Sequence[float],
    layers: Sequence[tuple[str, str, Sequence[float]]],
    note: str = "",
    canvas: Canvas = SMALL,
) -> Markup:
    """Layers (name, colour, heights) on top of each other, the first at the bottom."""
    below = [0.0] * len(xs)
    body = []
    for _, colour, heights in layers:
        above = [a + b for a, b in zip(below, heights)]
        edge = [*zip(xs, above), *reversed(list(zip(xs, below)))]
        body.append(
            f'<polygon class="area" style="--c:var(--{escape(colour)})" points="'
            + " ".join(f"{canvas.x(x, u):.1f},{canvas.y(y, v):.1f}" for u, v in edge)
            + '"/>'
        )
        below = above
    body.append(_frame(canvas, x, y))
    return _figure(
        title,
        canvas,
        x,
        "".join(body),
        [(name, colour, "area") for name, colour, _ in reversed(layers)],
        _hover(canvas, x, [(name, colour, xs, values) for name, colour, values in reversed(layers)]),
        note,
    )


Estimate = tuple[str, str, float | None, float | None, float | None]
"""(name, colour, value, low, high)."""


def interval_chart(title: str, blocks: Sequence[tuple[str, Sequence[Estimate]]], label: str) -> Markup:
    """Estimates with intervals under each other on one axis with zero in it, in blocks with a heading each."""
    known = [v for _, rows in blocks for row in rows for v in row[2:] if v is not None]
    if not known:
        return Markup("")
    row_height, head, left, right, width = 26, 30, 240, 190, WIDE.width
    foot = TOP + sum(head + row_height * len(rows) for _, rows in blocks)
    x = axis(label, [*known, 0.0], lambda v: ("+" if v > 0 else "") + fraction(v), low=None, at_most=8)

    def place(value: float) -> float:
        return left + (value - x.low) / (x.high - x.low) * (width - left - right)

    body = [
        f'<line class="grid{" zero" if abs(t) < 1e-12 else ""}" '
        f'x1="{place(t):.1f}" x2="{place(t):.1f}" y1="{TOP}" y2="{foot}"/>'
        f'<text class="tick" x="{place(t):.1f}" y="{foot + 16}" text-anchor="middle">{escape(x.form(t))}</text>'
        for t in x.ticks
    ]
    y = float(TOP)
    for heading, rows in blocks:
        body.append(f'<text class="heading" x="0" y="{y + 20:.0f}">{escape(heading)}</text>')
        y += head
        for name, colour, value, low, high in rows:
            middle = y + row_height / 2 - 3
            body.append(f'<text class="name" x="{left - 14}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>')
            body.append(_estimate(place, colour, value, low, high, middle, width - right + 14))
            y += row_height
    body.append(
        f'<text class="label" x="{(left + width - right) / 2:.0f}" y="{foot + 34}" text-anchor="middle">{escape(label)}</text>'
    )
    return Markup(
        f'<figure><figcaption>{escape(title)}</figcaption><svg class="wide" viewBox="0 0 {width} {foot + 40}" role="img" '
        f'aria-label="{escape(title)}">{"".join(body)}</svg></figure>'
    )


def _estimate(
    place: Callable[[float], float],
    colour: str,
    value: float | None,
    low: float | None,
    high: float | None,
    y: float,
    text_at: float,
) -> str:
    """One row: whisker, dot, figures."""
    if value is None:
        return f'<text class="tick" x="{text_at:.0f}" y="{y + 4}">not measured</text>'
    style, words = f'style="--c:var(--{escape(colour)})"', signed(value)
    whisker = ""
    if low is not None and high is not None:
        whisker = f'<line class="whisker" {style} x1="{place(low):.1f}" x2="{place(high):.1f}" y1="{y}" y2="{y}"/>'
        words += f"  [{signed(low)}, {signed(high)}]"
    dot = f'<circle class="dot" {style} cx="{place(value):.1f}" cy="{y}" r="5"/>'
    return f'{whisker}{dot}<text class="figure" x="{text_at:.0f}" y="{y + 4}">{escape(words)}</text>'


# ---- parts ---------------------------------------------------------------------------------------------------------


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Stretches without a gap, of two points or more."""
    out: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            out.append([])
        else:
            out[-1].append(point)
    return [run for run in out if len(run) > 1]


def _frame(canvas: Canvas, x: Axis, y: Axis) -> str:
    """Grid, ticks and labels."""
    end, foot = canvas.width - RIGHT, canvas.foot
    out = [
        f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{canvas.y(y, t):.1f}" y2="{canvas.y(y, t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 7}" y="{canvas.y(y, t) + 4:.1f}" text-anchor="end">{escape(y.form(t))}</text>'
        for t in y.ticks
    ]
    out += [
        f'<text class="tick" x="{canvas.x(x, t):.1f}" y="{foot + 16}" text-anchor="middle">{escape(x.form(t))}</text>'
        for t in x.ticks
    ]
    out.append(f'<line class="base" x1="{LEFT}" x2="{end}" y1="{foot}" y2="{foot}"/>')
    out.append(
        f'<text class="label" x="{(LEFT + end) / 2:.0f}" y="{canvas.height - 3}" text-anchor="middle">{escape(x.label)}</text>'
    )
    return "".join(out)


def _hover(canvas: Canvas, x: Axis, series: Sequence[tuple[str, str, Sequence[float], Sequence[float | None]]]) -> str:
    """What the page's script shows under the pointer: for every x the values that stand there."""
    at: dict[float, list[list[str]]] = {}
    for name, colour, xs, ys in series:
        for u, v in zip(xs, ys):
            if v is not None:
                at.setdefault(u, []).append([name, colour, f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}"])
    return json.dumps(
        [[round(canvas.x(x, u), 1), f"{u:,.4g}" if u < 1000 else f"{u:,.0f}", found] for u, found in sorted(at.items())]
    )


def _figure(
    title: str, canvas: Canvas, x: Axis, body: str, legend: Sequence[tuple[str, str, str]], hover: str, note: str
) -> Markup:
    keys = "".join(
        f'<span class="key {escape(kind)}" style="--c:var(--{escape(colour)})">{escape(name)}</span>'
        for name, colour, kind in legend
    )
    about = f"<p class='note'>{escape(note)}</p>" if note else ""
    return Markup(
        f'<figure><figcaption>{escape(title)}</figcaption><div class="legend">{keys}</div>'
        f'<svg class="chart{" wide" if canvas is WIDE else ""}" viewBox="0 0 {canvas.width} {canvas.height}" '
        f'role="img" aria-label="{escape(title)}" '
        f'data-unit="{escape(x.label)}" data-hover="{escape(hover)}">{body}'
        f'<line class="cross" y1="{TOP}" y2="{canvas.foot}"/></svg>{about}</figure>'
    )


def smooth(values: Sequence[float | None], window: int) -> list[float | None]:
    """Centred moving mean over what was measured; None where nothing was."""
    out: list[float | None] = []
    half = window // 2
    for i in range(len(values)):
        near = [v for v in values[max(0, i - half) : i + half + 1] if v is not None]
        out.append(sum(near) / len(near) if near else None)
    return out
