"""Rules about environments: one test each."""

from dataclasses import replace
from pathlib import Path

from compose_cases import CRITIC, GAE, WHOLE, made, real, rules
from gfcr import compose
from gfcr.registry import Slot
from gfcr.train.settings import TrainSettings, ValueSettings

CALCULATOR = real(Slot.ENVIRONMENT, "calculator")


def test_environment_unplayed():
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "group")) == ["environment_unplayed"]
    assert rules(CALCULATOR, real(Slot.TOPOLOGY, "interactive")) == []


def test_environment_missing():
    assert rules(real(Slot.TOPOLOGY, "interactive")) == ["environment_missing"]
    assert rules(real(Slot.TOPOLOGY, "group")) == []


def test_turns_missing():
    gigpo, turns = real(Slot.CREDIT, "gigpo"), real(Slot.TOPOLOGY, "interactive")
    bilevel = {**WHOLE, "train": TrainSettings(value=ValueSettings(turn_gamma=0.95))}
    for one in (real(Slot.TOPOLOGY, "group"), real(Slot.TOPOLOGY, "treepo")):
        assert rules(gigpo, one) == ["turns_missing"]
    assert rules(GAE, real(Slot.TOPOLOGY, "linear"), **bilevel) == ["turns_missing"]
    assert rules(gigpo, turns, CALCULATOR) == rules(GAE, turns, CALCULATOR, **bilevel) == []
    assert rules(gigpo, real(Slot.TOPOLOGY, "tree-grpo"), CALCULATOR) == []
    assert rules(GAE, real(Slot.TOPOLOGY, "linear"), **WHOLE, **CRITIC) == []


def test_snapshots_missing():
    found, settings = made(Slot.ENVIRONMENT)
    forgets = replace(found, cls=type("Forgets", (), {"snapshots": False})), settings
    tree, turns = real(Slot.TOPOLOGY, "tree-grpo"), real(Slot.TOPOLOGY, "interactive")
    assert rules(forgets, tree) == rules(forgets, real(Slot.TOPOLOGY, "interactive", back="invalid")) == ["snapshots_missing"]
    assert (
        rules(forgets, turns)
        == rules(CALCULATOR, tree)
        == rules(CALCULATOR, real(Slot.TOPOLOGY, "interactive", back="wrong"))
        == []
    )


def test_end_never_written():
    exact, registers = real(Slot.VERIFIER, "exact"), real(Slot.ENVIRONMENT, "registers")
    for one in (real(Slot.TOPOLOGY, "interactive"), real(Slot.TOPOLOGY, "tree-grpo")):
        assert rules(exact, registers, one) == ["end_never_written"]
        assert rules(real(Slot.VERIFIER, "environment"), registers, one) == []
    assert rules(exact, real(Slot.TOPOLOGY, "group")) == []


def test_every_file_of_rules_is_registered():
    """A file of rules that compose.py does not import would check nothing."""
    folder = Path(compose.__file__).parent
    files = {file.stem for file in folder.glob("compose_*.py")}
    assert files <= set(vars(compose)) and {rule.__module__ for rule in compose.RULES} >= {f"gfcr.{name}" for name in files}
