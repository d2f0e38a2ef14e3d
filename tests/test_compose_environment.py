"""Rules about environments: one test each."""

from compose_cases import made, real, rules
from gfcr.registry import Slot

CALCULATOR = real(Slot.ENVIRONMENT, "calculator")


def test_environment_unplayed():
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "group")) == ["environment_unplayed"]
    assert rules(CALCULATOR, made(Slot.TOPOLOGY, "plays: environment")) == []


def test_environment_missing():
    assert rules(made(Slot.TOPOLOGY, "plays: environment")) == ["environment_missing"]
    assert rules(real(Slot.TOPOLOGY, "group")) == []
