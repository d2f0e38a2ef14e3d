"""docs/architecture.md speaks of what is there: its files exist, and so does every name on the way of one rollout."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SRC = ROOT / "src" / "gfcr"
HOUSE, LIFE = (PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0] for title in ("The house", "The life of one rollout"))
FILES = {str(path.relative_to(ROOT)) for top in ("src", "tests", "docs") for path in (ROOT / top).rglob("*")}


def defined():
    """Every class, function and method (`Class.method`)."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))


def test_every_file_it_names_exists():
    named = set(re.findall(r"(?<![\w*/])[a-z_0-9/]+\.(?:py|md)\b", PAGE))
    assert len(named) > 40
    assert {name for name in named if not any(file.endswith(f"/{name}") or file == name for file in FILES)} == set()


def test_every_room_of_the_house_is_there_and_in_it():
    drawn = set(re.findall(r"^  ([a-z_]+)/ ", HOUSE, re.MULTILINE))
    assert drawn == {path.name for path in SRC.iterdir() if path.is_dir() and any(path.glob("*.py"))}


def test_every_name_on_the_way_of_a_rollout_is_defined():
    names = set(defined())
    spans = [span.split("(")[0] for span in re.findall(r"`([^`]+)`", LIFE)]
    asked = {span for span in spans if re.fullmatch(r"_?[A-Za-z]+(?:[._][A-Za-z_]+)*", span)}
    assert len(asked) > 40
    assert asked - names - {"bounded", "ACTION", "UNSCORABLE"} == set()
