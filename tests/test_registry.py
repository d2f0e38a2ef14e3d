"""Third parties' methods: found like the built-in ones, and a broken one is named with its package."""

import sys
import types
from importlib.metadata import EntryPoint

import pytest

from gfcr import registry
from gfcr.errors import ConfigError
from gfcr.registry import INDEX, Faithfulness, Settings, Slot, find, method, names


@method("own", Slot.CREDIT, title="own", criterion="cost", faithfulness=Faithfulness.OURS)
class Own:
    def __init__(self, settings, build):
        self.settings = settings


@pytest.fixture
def installed(monkeypatch):
    """Installs entry points of a module `theirs`, as a package would."""
    theirs = types.ModuleType("theirs")
    theirs.Own, theirs.Plain = Own, dict
    monkeypatch.setitem(sys.modules, "theirs", theirs)

    def install(*points):
        monkeypatch.setattr(registry, "entry_points", lambda group: [EntryPoint(n, v, group) for n, v in points])
        registry._plugins.cache_clear()

    yield install
    registry._plugins.cache_clear()


def test_an_own_method_is_found_and_listed(installed):
    installed(("filter.credit.own", "theirs:Own"))
    found = find(Slot.CREDIT, "own")
    assert (found.cls, found.settings) == (Own, Settings)
    assert names(Slot.CREDIT) == sorted([*INDEX[Slot.CREDIT], "own"])


@pytest.mark.parametrize(
    ("point", "what", "remedy"),
    [
        (
            ("filter.credit.own", "theirs:Gone"),
            "'filter.credit.own' (theirs:Gone, of an unknown package) cannot be loaded: AttributeError",
            "correct or uninstall",
        ),
        (("filter.credit.own", "no_such_module:Own"), "cannot be loaded: ModuleNotFoundError", "correct or uninstall"),
        (("filter.credit.own", "theirs:Plain"), "which is no method", "decorate the class"),
        (
            ("filter.shape.own", "theirs:Own"),
            "gives the method 'own' of filter.credit",
            "name the entry point filter.credit.own",
        ),
        (("filter.credits.own", "theirs:Own"), "'filter.credits.own' (from theirs:Own) names no slot", "SLOT.METHOD"),
        (("filter.credit.grpo", "theirs:Own"), "takes the name of a built-in method", "another name"),
    ],
)
def test_a_broken_one_is_named(installed, point, what, remedy):
    installed(point)
    with pytest.raises(ConfigError) as caught:
        find(Slot.SHAPE if "shape" in point[0] else Slot.CREDIT, "own")
    assert what in caught.value.what
    assert remedy in caught.value.remedy
