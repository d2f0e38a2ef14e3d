"""Templates to HTML.

Invariants: whatever is put into a page is escaped unless it is `Markup` made by `charts`; a page loads nothing from
anywhere: style and script stand in it, charts are inline SVG.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gfcr import __version__
from gfcr.report import text


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("gfcr.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {name: getattr(text, name) for name in text.FILTERS}
    found.globals |= {"version": __version__, "style": Markup(_file("style.css")), "script": Markup(_file("page.js"))}
    return found


def _file(name: str) -> str:
    loader = PackageLoader("gfcr.report")
    return loader.get_source(Environment(autoescape=True), name)[0]


def render(template: str, **values: Any) -> str:
    """A template with these values; an absent value is an error, not an empty text."""
    return _environment().get_template(template).render(**values)
