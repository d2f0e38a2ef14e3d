"""Draws the pictures of docs/generate.md: `python docs/pictures/draw.py` writes one SVG per shape beside this file.

Rules, checked as it draws: a text fits its box, boxes and words do not overlap, lines end at boxes and cross none, everything is inside
the picture. The colours are readable on white and on GitHub's dark page: words of at least 4.3 : 1 on either, boxes under white words of
at least 4.5 : 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

COLOURS = {
    "prompt": "#5f6672",
    "policy": "#1c7d46",
    "observation": "#1f75a3",
    "guidance": "#8a4fb5",
    "solution": "#3a63c8",
    "discarded": "#b8423d",
}
INK = "#747b85"
"""Of words and lines outside boxes."""
SIZE, WIDE = 12, 6.9
"""Of the letters, and the width a letter has at most on average, in pixels."""
HIGH, EDGE = 24, 8
LEGEND = {"discarded": "thrown away"}


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    text: str
    kind: str

    @property
    def middle(self) -> float:
        return self.y + HIGH / 2

    @property
    def right(self) -> int:
        return self.x + self.width


@dataclass
class Picture:
    name: str
    boxes: list[Box] = field(default_factory=list)
    lines: list[tuple[Box, Box]] = field(default_factory=list)
    words: list[tuple[int, int, str]] = field(default_factory=list)

    def box(self, x: int, y: int, text: str, kind: str = "policy", width: int = 0, after: Box | None = None) -> Box:
        """A box, with a line from the one it comes after."""
        made = Box(x, y, width or round(len(text) * WIDE) + 20, text, kind)
        self.boxes.append(made)
        if after is not None:
            self.lines.append((after, made))
        return made

    def say(self, x: int, y: int, text: str) -> None:
        """Words at the height of a box that would begin at y."""
        self.words.append((x, y, text))

    def svg(self) -> str:
        kinds = list(dict.fromkeys(box.kind for box in self.boxes))
        low = max([b.y + HIGH for b in self.boxes] + [y + HIGH for _, y, _ in self.words])
        right = max([b.right for b in self.boxes] + [x + round(len(t) * WIDE) for x, _, t in self.words])
        key, at = [], EDGE
        for kind in kinds:
            said = LEGEND.get(kind, kind)
            key.append((at, kind, said))
            at += 17 + round(len(said) * WIDE) + 14
        width, height = max(right, at - 14) + EDGE, low + 16 + 12 + EDGE
        self._check(width)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{self.name}" font-family="Helvetica, Arial, sans-serif" font-size="{SIZE}">',
            f"<title>{self.name}</title>",
        ]
        for a, b in self.lines:
            bend = (a.right + b.x) / 2
            parts.append(
                f'<path d="M{a.right} {a.middle:g} C{bend:g} {a.middle:g} {bend:g} {b.middle:g} {b.x} {b.middle:g}" fill="none" '
                f'stroke="{INK}" stroke-width="1.5"/>'
            )
        for b in self.boxes:
            parts.append(f'<rect x="{b.x}" y="{b.y}" width="{b.width}" height="{HIGH}" rx="4" fill="{COLOURS[b.kind]}"/>')
            middle = b.x + b.width / 2
            parts.append(f'<text x="{middle:g}" y="{b.y + 16}" text-anchor="middle" fill="#ffffff">{escape(b.text)}</text>')
        for x, y, text in self.words:
            parts.append(f'<text x="{x}" y="{y + 16}" fill="{INK}">{escape(text)}</text>')
        top = low + 16
        for x, kind, said in key:
            parts.append(f'<rect x="{x}" y="{top}" width="12" height="12" rx="2" fill="{COLOURS[kind]}"/>')
            parts.append(f'<text x="{x + 17}" y="{top + 10}" fill="{INK}">{said}</text>')
        return "\n".join([*parts, "</svg>", ""])

    def _check(self, width: int) -> None:
        areas = [(b.x, b.y, b.right, b.y + HIGH, b.text) for b in self.boxes]
        areas += [(x, y, x + round(len(t) * WIDE), y + HIGH, t) for x, y, t in self.words]
        for b in self.boxes:
            assert b.text and len(b.text) * WIDE + 8 <= b.width, f"{self.name}: {b.text!r} does not fit its box"
        for i, (left, top, right, low, text) in enumerate(areas):
            assert left >= EDGE and top >= EDGE and right <= width - EDGE, f"{self.name}: {text!r} is cut"
            for other in areas[i + 1 :]:
                apart = right < other[0] or other[2] < left or low <= other[1] or other[3] <= top
                assert apart, f"{self.name}: {text!r} and {other[4]!r} overlap"
        for a, b in self.lines:
            assert a.right < b.x, f"{self.name}: the line from {a.text!r} to {b.text!r} goes back"
            low, high = sorted((a.middle, b.middle))
            for left, top, right, under, text in areas:
                crossed = left < b.x and right > a.right and top < high and under > low
                assert not crossed, f"{self.name}: the line from {a.text!r} to {b.text!r} crosses {text!r}"


def linear() -> Picture:
    p = Picture("linear")
    p.box(120, 8, "answer", width=200, after=p.box(8, 8, "prompt", "prompt"))
    return p


def group() -> Picture:
    p = Picture("group")
    root = p.box(8, 56, "prompt", "prompt")
    for i, width in enumerate((180, 120, 220, 150)):
        p.box(130, 8 + 32 * i, f"answer {i + 1}", width=width, after=root)
    return p


def treepo() -> Picture:
    p = Picture("treepo")
    root = p.box(8, 76, "prompt", "prompt")
    one, two = (p.box(104, y, "segment", after=root) for y in (32, 120))
    for first, y, leaves in ((one, 8, (8,)), (one, 56, (40, 72)), (two, 104, (104,)), (two, 136, (136,))):
        second = p.box(206, y, "segment", after=first)
        for leaf in leaves:
            p.box(308, leaf, "leaf", after=second)
    p.say(370, 136, "regrown from a cut")
    return p


def treerl() -> Picture:
    p = Picture("treerl")
    root = p.box(8, 72, "prompt", "prompt")
    for y, number in ((8, 1), (104, 2)):
        chain = p.box(104, y, f"chain {number}", after=root)
        p.box(206, y, "goes on", width=150, after=chain)
        p.box(206, y + 32, "fork", width=150, after=chain)
    p.say(374, 8, "forks where the token")
    p.say(374, 32, "sampled was unlikely")
    return p


def treerpo() -> Picture:
    p = Picture("treerpo")
    root = p.box(8, 60, "prompt", "prompt")
    for y in (24, 96):
        step = p.box(104, y, "step", after=root)
        for below in (-16, 16):
            p.box(190, y + below, "step", after=step)
    p.say(262, 48, "a step's value: mean")
    p.say(262, 72, "of its children's")
    return p


def best_first() -> Picture:
    p = Picture("best-first")
    root = p.box(8, 48, "prompt", "prompt")
    first = p.box(104, 24, "promise .9", after=root)
    p.box(104, 88, "promise .2", after=root)
    second = p.box(226, 8, "promise .8", after=first)
    p.box(226, 40, "pruned", "discarded", after=first)
    for y in (8, 40):
        p.box(348, y, "leaf", after=second)
    p.say(226, 88, "the most promising end grows next")
    return p


def interactive() -> Picture:
    p = Picture("interactive")
    at = p.box(8, 8, "prompt", "prompt")
    for text, kind in (
        ("turn 1", "policy"),
        ("result", "observation"),
        ("turn 2", "policy"),
        ("result", "observation"),
        ("last turn", "policy"),
    ):
        at = p.box(at.right + 14, 8, text, kind, after=at)
    return p


def tree_grpo() -> Picture:
    p = Picture("tree-grpo")
    root = p.box(8, 40, "prompt", "prompt")
    at = p.box(104, 8, "turn 1", after=root)
    kept = p.box(180, 8, "result", "observation", after=at)
    for y in (8, 40):
        at = p.box(262, y, "turn 2", after=kept)
        at = p.box(338, y, "result", "observation", after=at)
        p.box(414, y, "last turn", after=at)
    at = p.box(104, 88, "turn 1", after=root)
    at = p.box(180, 88, "result", "observation", after=at)
    p.box(262, 88, "last turn", after=at)
    p.say(352, 88, "chains go on from kept states")
    return p


def n_best() -> Picture:
    p = Picture("n-best")
    root = p.box(8, 40, "prompt", "prompt")
    for y, text, kind, width in (
        (8, "kept: best score", "policy", 170),
        (40, "surplus", "discarded", 120),
        (72, "kept", "policy", 140),
    ):
        p.box(116, y, text, kind, width, after=root)
    return p


def power() -> Picture:
    p = Picture("power")
    at = p.box(8, 8, "prompt", "prompt")
    first = at = p.box(92, 8, "block 1", after=at)
    at = p.box(180, 8, "block 2", after=at)
    p.box(264, 8, "block 3", after=at)
    p.box(180, 40, "rejected", "discarded", after=first)
    p.say(270, 40, "a suffix is drawn anew, kept or not")
    return p


def hint() -> Picture:
    p = Picture("hint")
    root = p.box(8, 40, "prompt", "prompt")
    p.box(116, 8, "wrong, replaced", "discarded", after=root)
    p.box(116, 40, "wrong", width=124, after=root)
    part = p.box(116, 72, "part of the solution", "guidance", after=root)
    goes = p.box(part.right + 14, 72, "goes on", after=part)
    p.say(goes.right + 12, 72, "only after all failed")
    return p


def examples() -> Picture:
    p = Picture("examples")
    at = p.box(8, 8, "solved examples", "guidance")
    at = p.box(at.right + 14, 8, "prompt", "prompt", after=at)
    p.box(at.right + 14, 8, "answer", width=150, after=at)
    return p


def mode() -> Picture:
    p = Picture("mode")
    root = p.box(8, 24, "prompt", "prompt")
    for y, how, text, width in ((8, "think", "long answer", 200), (40, "direct", "short", 90)):
        forced = p.box(116, y, how, "guidance", 62, after=root)
        p.box(forced.right + 14, y, text, width=width, after=forced)
    return p


def plan() -> Picture:
    p = Picture("plan")
    root = p.box(8, 64, "prompt", "prompt")
    for i, y in enumerate((24, 104)):
        made = p.box(104, y, f"plan {i + 1}", after=root)
        for below in (-16, 16):
            p.box(198, y + below, "answer", width=110, after=made)
    return p


def reflect() -> Picture:
    p = Picture("reflect")
    at = p.box(8, 8, "prompt", "prompt")
    at = p.box(at.right + 14, 8, "attempt 1", after=at)
    at = p.box(at.right + 14, 8, "verdict: wrong", "guidance", after=at)
    p.box(at.right + 14, 8, "attempt 2", after=at)
    p.say(p.boxes[2].x, 36, "only where the first is wrong")
    return p


def reference() -> Picture:
    p = Picture("reference")
    root = p.box(8, 40, "prompt", "prompt")
    for y, text, kind in ((8, "wrong, replaced", "discarded"), (40, "wrong", "policy"), (72, "solution", "solution")):
        p.box(116, y, text, kind, 150, after=root)
    return p


def partial() -> Picture:
    p = Picture("partial")
    at = p.box(8, 8, "prompt", "prompt")
    for version in (7, 8, 9):
        at = p.box(at.right + (14 if version == 7 else 40), 8, f"version {version}", after=at)
    p.say(p.boxes[1].x, 36, "parked between rounds, on the same stream")
    return p


PICTURES = (
    linear,
    group,
    treepo,
    treerl,
    treerpo,
    best_first,
    interactive,
    tree_grpo,
    n_best,
    power,
    hint,
    examples,
    mode,
    plan,
)
PICTURES += (reflect, reference, partial)


def main() -> None:
    for make in PICTURES:
        picture = make()
        (Path(__file__).parent / f"{picture.name}.svg").write_text(picture.svg(), "utf-8")


if __name__ == "__main__":
    main()
