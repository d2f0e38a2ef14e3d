"""Errors say what is wrong and how to put it right, also after a journey between processes."""

import pickle

import pytest

from gfcr.errors import ConfigError, DataError, GfcrError, MissingExtra


def test_text_says_what_and_remedy() -> None:
    assert str(ConfigError("k is 0", "set k to 2 or more")) == "k is 0\n  remedy: set k to 2 or more"


@pytest.mark.parametrize("error", [GfcrError("a", "b"), DataError("a", "b"), MissingExtra("pyarrow", "parquet", "reading x")])
def test_survives_pickling_and_is_one_family(error: GfcrError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.what, copy.remedy) == (type(error), error.what, error.remedy)
    assert isinstance(copy, GfcrError)


def test_missing_extra_names_the_extra() -> None:
    error = MissingExtra("pyarrow", "parquet", "reading x.parquet")
    assert "gfcr[parquet]" in error.remedy and "pyarrow" in error.what
