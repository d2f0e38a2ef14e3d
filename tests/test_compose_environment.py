"""Rules about environments: one test each."""

from compose_cases import real, rules
from gfcr.registry import Slot

CALCULATOR = real(Slot.ENVIRONMENT, "calculator")


def test_environment_unplayed():
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "group")) == ["environment_unplayed"]
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "interactive")) == []


def test_environment_missing():
    assert rules(real(Slot.TOPOLOGY, "interactive")) == ["environment_missing"]
    assert rules(real(Slot.TOPOLOGY, "group")) == []
