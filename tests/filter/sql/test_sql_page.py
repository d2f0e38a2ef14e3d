"""The block on the page about it runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_page_about_it_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "verifiers" / "sql.md").read_text()
    exec(page.split("```python\n")[1].split("\n```")[0], {})
    assert "right on the given data, but on generated data" in capsys.readouterr().out
