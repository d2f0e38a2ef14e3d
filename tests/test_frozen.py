"""Frozen dataclasses that are quick to make are the dataclasses they were."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from gfcr.types.frozen import quickly_made


def of_three(name: str) -> type:
    class Three:
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a is below 0")

    Three.__name__ = Three.__qualname__ = name
    return dataclass(frozen=True, slots=True)(Three)


Plain, Quick = of_three("Plain"), quickly_made(of_three("Quick"))


def test_it_takes_what_the_dataclass_takes_and_is_as_frozen():
    for made in (Quick(1), Quick(1, "x"), Quick(a=1, c=[2]), replace(Quick(1), b="y")):
        plain = Plain(made.a, made.b, made.c)
        assert repr(made).replace("Quick", "Plain") == repr(plain)
        assert made == copy.copy(made) == pickle.loads(pickle.dumps(made))
        with pytest.raises(FrozenInstanceError):
            made.a = 2
    assert Quick(1).c is not Quick(1).c
    assert list(inspect.signature(Quick).parameters) == list(inspect.signature(Plain).parameters)
    for wrong in ({}, {"a": 1, "d": 2}):
        with pytest.raises(TypeError):
            Quick(**wrong)
    with pytest.raises(ValueError, match="below 0"):
        Quick(-1)


def test_what_it_cannot_make_is_refused():
    with pytest.raises(TypeError, match="no positional field with a slot"):

        @quickly_made
        @dataclass(frozen=True)
        class NoSlots:
            a: int

    with pytest.raises(TypeError, match="no positional field with a slot"):

        @quickly_made
        @dataclass(frozen=True, slots=True)
        class Keyword:
            a: int = field(kw_only=True)
