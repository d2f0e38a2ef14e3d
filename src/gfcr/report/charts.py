"""Charts as inline SVG.

Invariants: every text is escaped here; colours are names of the page's palette (CSS variables), so that a chart follows light
and dark; what is not measured (None) leaves a gap or is left out, and is never drawn at 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log10

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 270
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


def thousands(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def fraction(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def plain(value: float) -> str:
    return f"{value:g}"


def axis(label: str, values: Sequence[float], form: Format = plain, low: float | None = 0.0, high: float | None = None, at_most: int = 6) -> Axis:
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


def line_chart(title: str, x: Axis, y: Axis, lines: Sequence[Line], note: str = "") -> Markup:
    """Lines over a common x."""
    body = [_frame(x, y)]
    for line in sorted(lines, key=lambda one: one.kind == "main"):
        at = [None if v is None else (_px(x, u), _py(y, v)) for u, v in zip(line.xs, line.ys)]
        for run in _runs(at):
            body.append(f'<polyline class="line {escape(line.kind)}" style="--c:var(--{escape(line.colour)})" points="'
                        + " ".join(f"{a:.1f},{b:.1f}" for a, b in run) + '"/>')
        if line.points or sum(p is not None for p in at) == 1:
            body += [f'<circle class="dot" style="--c:var(--{escape(line.colour)})" cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="3"/>' for p in at if p]
    shown = [line for line in lines if line.hover]
    return _figure(title, x, "".join(body), [(line.name, line.colour, line.kind) for line in shown],
                   _hover(x, [(line.name, line.colour, line.xs, line.ys) for line in shown], y.form), note)


def stacked_chart(title: str, x: Axis, y: Axis, xs: Sequence[float], layers: Sequence[tuple[str, str, Sequence[float]]], note: str = "") -> Markup:
    """Layers (name, colour, heights) on top of each other, the first at the bottom."""
    below = [0.0] * len(xs)
    body = []
    for _, colour, heights in layers:
        above = [a + b for a, b in zip(below, heights)]
        edge = [*zip(xs, above), *reversed(list(zip(xs, below)))]
        body.append(f'<polygon class="area" style="--c:var(--{escape(colour)})" points="'
                    + " ".join(f"{_px(x, u):.1f},{_py(y, v):.1f}" for u, v in edge) + '"/>')
        below = above
    body.append(_frame(x, y))
    return _figure(title, x, "".join(body), [(name, colour, "area") for name, colour, _ in reversed(layers)],
                   _hover(x, [(name, colour, xs, values) for name, colour, values in reversed(layers)], y.form), note)


def interval_chart(title: str, rows: Sequence[tuple[str, str, float | None, float | None, float | None]], label: str) -> Markup:
    """Estimates with intervals: (name, colour, value, low, high), one under the other, around zero."""
    known = [v for row in rows for v in row[2:] if v is not None]
    if not known:
        return Markup("")
    x = axis(label, [*known, 0.0], lambda v: ("+" if v > 0 else "") + fraction(v).replace("-", "−"), low=None)
    height = TOP + 34 * len(rows) + BOTTOM
    left = 150
    scale = (WIDTH - left - RIGHT - 70) / (x.high - x.low)

    def place(value: float) -> float:
        return left + (value - x.low) * scale

    foot = height - BOTTOM
    body = [f'<line class="grid{" zero" if abs(t) < 1e-12 else ""}" x1="{place(t):.1f}" x2="{place(t):.1f}" y1="{TOP}" y2="{foot}"/>'
            f'<text class="tick" x="{place(t):.1f}" y="{foot + 15}" text-anchor="middle">{escape(x.form(t))}</text>' for t in x.ticks]
    for i, (name, colour, value, low, high) in enumerate(rows):
        y = TOP + 34 * i + 17
        body.append(f'<text class="name" x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        if value is None:
            continue
        if low is not None and high is not None:
            body.append(f'<line class="whisker" style="--c:var(--{escape(colour)})" x1="{place(low):.1f}" x2="{place(high):.1f}" y1="{y}" y2="{y}"/>')
        body.append(f'<circle class="dot" style="--c:var(--{escape(colour)})" cx="{place(value):.1f}" cy="{y}" r="5"/>'
                    f'<text class="tick" x="{WIDTH - RIGHT}" y="{y + 4}" text-anchor="end">{escape(("+" if value >= 0 else "−") + fraction(round(abs(value), 3)))}</text>')
    body.append(f'<text class="label" x="{(left + WIDTH - 84) / 2:.0f}" y="{height - 4}" text-anchor="middle">{escape(label)}</text>')
    return Markup(f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" '
                  f'aria-label="{escape(title)}">{"".join(body)}</svg></figure>')


# ---- parts ---------------------------------------------------------------------------------------------------------


def _px(x: Axis, value: float) -> float:
    return LEFT + (value - x.low) / (x.high - x.low) * (WIDTH - LEFT - RIGHT)


def _py(y: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (min(max(value, y.low), y.high) - y.low) / (y.high - y.low) * (HEIGHT - TOP - BOTTOM)


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Stretches without a gap, of two points or more."""
    out: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            out.append([])
        else:
            out[-1].append(point)
    return [run for run in out if len(run) > 1]


def _frame(x: Axis, y: Axis) -> str:
    """Grid, ticks and labels."""
    foot = HEIGHT - BOTTOM
    out = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_py(y, t):.1f}" y2="{_py(y, t):.1f}"/>'
           f'<text class="tick" x="{LEFT - 7}" y="{_py(y, t) + 4:.1f}" text-anchor="end">{escape(y.form(t))}</text>' for t in y.ticks]
    out += [f'<text class="tick" x="{_px(x, t):.1f}" y="{foot + 16}" text-anchor="middle">{escape(x.form(t))}</text>' for t in x.ticks]
    out.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}"/>')
    out.append(f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 3}" text-anchor="middle">{escape(x.label)}</text>')
    return "".join(out)


def _hover(x: Axis, series: Sequence[tuple[str, str, Sequence[float], Sequence[float | None]]], form: Format) -> str:
    """What the page's script shows under the pointer: for every x the values that stand there."""
    at: dict[float, list[list[str]]] = {}
    for name, colour, xs, ys in series:
        for u, v in zip(xs, ys):
            if v is not None:
                at.setdefault(u, []).append([name, colour, f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}"])
    return json.dumps([[round(_px(x, u), 1), f"{u:,.4g}" if u < 1000 else f"{u:,.0f}", found] for u, found in sorted(at.items())])


def _figure(title: str, x: Axis, body: str, legend: Sequence[tuple[str, str, str]], hover: str, note: str) -> Markup:
    seen = dict.fromkeys(legend)
    keys = "".join(f'<span class="key {escape(kind)}" style="--c:var(--{escape(colour)})">{escape(name)}</span>' for name, colour, kind in seen)
    about = f"<p class='note'>{escape(note)}</p>" if note else ""
    return Markup(f'<figure><figcaption>{escape(title)}</figcaption><div class="legend">{keys}</div>'
                  f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" data-unit="{escape(x.label)}" '
                  f'data-hover="{escape(hover)}">{body}<line class="cross" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>{about}</figure>')


def smooth(values: Sequence[float | None], window: int) -> list[float | None]:
    """Centred moving mean over what was measured; None where nothing was."""
    out: list[float | None] = []
    half = window // 2
    for i in range(len(values)):
        near = [v for v in values[max(0, i - half): i + half + 1] if v is not None]
        out.append(sum(near) / len(near) if near else None)
    return out


def differences(values: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(values)]
