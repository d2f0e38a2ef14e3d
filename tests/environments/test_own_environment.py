"""A class in a file as an environment, as docs/environments.md has it; every built-in one is made by its name."""

import re
from pathlib import Path

import pytest

from gfcr.build import facts
from gfcr.context import Build
from gfcr.domains.programs.pools import load_pool as lab_pool
from gfcr.domains.tools.pools import MAKERS, load_pool
from gfcr.environments.acts import Branch, Finish, Reset, Turn
from gfcr.environments.contract import Environment, Said
from gfcr.environments.host import Host
from gfcr.environments.making import reader
from gfcr.environments.settings import HostSettings
from gfcr.errors import ConfigError
from gfcr.recipe import parse
from gfcr.registry import INDEX, Slot, find, settings_of
from gfcr.settings import MethodRef
from gfcr.types import Task
from sandbox_cases import needs_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


@pytest.fixture
def place(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "my_env.py").write_text(code)
    return f"{tmp_path}/my_env.py:Thing"


def test_a_class_in_a_file_is_named_in_a_recipe_and_played(place):
    recipe = parse({"generate": {"environment": {"name": place, "most": 10}, "host": {"seconds": 5.0}}})
    ((found, settings),) = [each for each in recipe.methods() if each[0].slot is Slot.ENVIRONMENT]
    assert recipe.frozen()["generate"]["environment"]["guesses"] == 7
    with Host.of(found, settings, Build(0, (), 1, 1, 8), recipe.generate.host) as host:
        assert host.quick and host.seconds == 5.0
        out = host.run(
            [
                Reset("a", Task("x", "Guess."), 6, keep=True),
                Turn("a", 0, Said("ten")),
                Turn("a", 1, Said("3"), keep=True),
                Branch("b", "a", 1),
                Turn("a", 2, Said("7")),
                Turn("b", 2, Said("9")),
                Finish("a"),
                Finish("b"),
            ]
        )
    assert not any(o.error for o in out)
    assert [m.parts[0].text for o in (out[1], out[2], out[5]) for m in o.step.messages] == [
        "a whole number, please",
        "higher",
        "lower",
    ]
    assert out[1].step.invalid.startswith("no_number") and out[4].step.terminated
    assert [o.verdict.correct for o in out[6:]] == [True, False]


def test_an_environment_that_nobody_plays_is_refused_with_the_remedy():
    from gfcr.compose import check

    recipe = parse({"generate": {"environment": {"name": "registers"}}})
    (finding,) = [f for f in check(facts(recipe)) if f.rule == "environment_unplayed"]
    assert "interactive" in finding.remedy
    with pytest.raises(ConfigError, match="did you mean 'calculator'"):
        parse({"generate": {"environment": {"name": "calculater"}}})


@needs_sandbox
@pytest.mark.parametrize("name", sorted(INDEX[Slot.ENVIRONMENT]))
def test_every_environment_is_made_by_its_name_and_keeps_the_contract(name):
    tasks = load_pool(name)[:3] if name in MAKERS else lab_pool("D")[:3]
    found = find(Slot.ENVIRONMENT, name)
    with Host.of(found, settings_of(found, {}), Build(0, tasks, 1, 1, 64), HostSettings(workers=2)) as host:
        env = host._spare
        names = [key for key in vars(Environment) if not key.startswith("_")]
        assert all(hasattr(env, key) for key in [*names, "name", "version", "deterministic", "snapshots"])
        assert (env.name, env.snapshots) == (name, True)
        read = reader(MethodRef(name=name))
        assert (read is None) == (name in ("registers", "repair"))
        begun, end = host.run([Reset("a", tasks[0], 1, keep=True), Finish("a")])
        assert not begun.error and begun.step.state and end.verdict.correct is False and end.fragments == ()
