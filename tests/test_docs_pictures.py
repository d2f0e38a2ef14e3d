"""The pictures of docs/generate.md are what their script draws, each has its place, and the script refuses what cannot be read."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "pictures"))

import draw
import pytest

DOCS = Path(__file__).parents[1] / "docs"


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, 1.4.3."""

    def light(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_files_are_what_the_script_draws_and_the_page_shows_each():
    drawn = {f"{make().name}.svg": make().svg() for make in draw.PICTURES}
    assert {p.name: p.read_text("utf-8") for p in (DOCS / "pictures").glob("*.svg")} == drawn
    assert sorted(re.findall(r"\]\(pictures/([a-z-]+\.svg)\)", (DOCS / "generate.md").read_text("utf-8"))) == sorted(drawn)


def test_every_topology_and_every_guidance_has_a_picture():
    from gfcr.registry import Slot, names

    drawn = {make().name for make in draw.PICTURES}
    assert {"environment"} | drawn >= set(names(Slot.TOPOLOGY))
    assert {"imitation"} | drawn >= set(names(Slot.SEED))


def test_colours_are_readable_on_white_and_on_dark():
    for page in ("#ffffff", "#0d1117"):
        assert contrast(draw.INK, page) > 4.2
        assert all(contrast(colour, page) > 3 for colour in draw.COLOURS.values())
    assert all(contrast(colour, "#ffffff") > 4.5 for colour in draw.COLOURS.values())


@pytest.mark.parametrize("fault", ["does not fit its box", "overlap", "is cut", "goes back", "crosses"])
def test_what_cannot_be_read_is_refused(fault):
    p = draw.Picture("bad")
    first = p.box(8, 8, "first")
    if fault == "does not fit its box":
        p.box(100, 8, "a long text", width=40)
    elif fault == "overlap":
        p.say(20, 20, "words")
    elif fault == "is cut":
        p.box(2, 60, "out")
    elif fault == "goes back":
        p.box(30, 60, "under", after=first)
    else:
        p.box(100, 8, "between")
        p.box(200, 8, "last", after=first)
    with pytest.raises(AssertionError, match=fault):
        p.svg()
