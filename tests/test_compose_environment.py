"""Rules about environments: one test each."""

from pathlib import Path

from compose_cases import real, rules
from gfcr import compose
from gfcr.registry import Slot

CALCULATOR = real(Slot.ENVIRONMENT, "calculator")


def test_environment_unplayed():
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "group")) == ["environment_unplayed"]
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "interactive")) == []


def test_environment_missing():
    assert rules(real(Slot.TOPOLOGY, "interactive")) == ["environment_missing"]
    assert rules(real(Slot.TOPOLOGY, "group")) == []


def test_every_file_of_rules_is_registered():
    """A file of rules that compose.py does not import would check nothing."""
    folder = Path(compose.__file__).parent
    files = {file.stem for file in folder.glob("compose_*.py")}
    assert files <= set(vars(compose)) and {rule.__module__ for rule in compose.RULES} >= {f"gfcr.{name}" for name in files}
