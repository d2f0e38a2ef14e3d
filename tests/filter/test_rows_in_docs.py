"""The rows and recipes that docs/verifiers show do what they say."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from gfcr.filter.judge_rows import resolve
from gfcr.registry import Slot, find, settings_of
from gfcr.types import StopReason

DOCS = Path(__file__).parents[2] / "docs" / "verifiers"


@pytest.mark.parametrize("kind", ["structured", "vision"])
def test_rows(kind: str) -> None:
    (block,) = re.findall(r"```json\n(.*?)```\n", (DOCS / f"{kind}.md").read_text(encoding="utf-8") + "\n", re.DOTALL)
    rows = [json.loads(line) for line in block.splitlines()]
    case = importlib.import_module(f"gfcr.filter.verifiers.{kind}.rows").case
    verifier, own_case, _ = resolve(kind, None, [])
    assert own_case is case and len(rows) > 2
    for row in rows:
        task, text = case(row)
        assert verifier.judge(task, text, StopReason.EOS).correct is row["expected"], row["id"]


@pytest.mark.parametrize("page", ["choice", "structured", "vision", "gates"])
def test_recipes(page: str) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    filters = tomllib.loads(block)["filter"]
    for slot, key in ((Slot.GATE, "gates"), (Slot.VERIFIER, "verifiers")):
        for ref in filters.get(key, []):
            found = find(slot, ref.pop("name"))
            assert found.cls is not None and found.cls(settings_of(found, ref), None).name == found.name
