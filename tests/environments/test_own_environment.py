"""A class in a file as an environment, as docs/environments.md has it; every built-in one is made by its name."""

import json
import re
from pathlib import Path

import pytest

from gfcr.build import facts, preflight
from gfcr.context import Build
from gfcr.domains.programs.pools import load_pool as lab_pool
from gfcr.domains.tools.pools import MAKERS, load_pool
from gfcr.environments.acts import Branch, Finish, Reset, Turn
from gfcr.environments.contract import Environment, Said
from gfcr.environments.host import Host
from gfcr.environments.making import make_host, reader, with_tools
from gfcr.environments.settings import HostSettings
from gfcr.errors import ConfigError
from gfcr.recipe import load, parse
from gfcr.registry import INDEX, Slot, find, settings_of
from gfcr.run.one_task import find_task, sample_task, sampling_parts
from gfcr.run.session import Session
from gfcr.settings import MethodRef
from gfcr.types import StopReason, Task
from sandbox_cases import needs_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def block(language, holds):
    """The block of the page that holds this text."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [text for text in found if holds in text]
    return code


@pytest.fixture
def place(tmp_path):
    code = block("python", "class Thing")
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


def test_the_least_environment_of_the_page_is_sampled_and_trained_by_its_recipe(tmp_path):
    code = block("python", "class Digits")
    assert len(code.splitlines()) <= 34  # thirty and blank lines
    (tmp_path / "digits.py").write_text(code)
    (tmp_path / "digits.toml").write_text(block("toml", "digits.py:Digits"))
    recipe = load(tmp_path / "digits.toml", ["budget.steps=1", "control.groups=4", "evaluate.limit=2", "train.lr=1e-3"])
    with sampling_parts(recipe, 0) as parts:
        members = list(sample_task(parts, find_task(parts, "0")).group.members.values())
    assert len(members) == 4 and {str(m.rollout.stop) for m in members} <= {"env_terminated", "env_truncated"}
    for member in members:
        said, digit = re.fullmatch(r"(\[.*\]), it was (\d)", member.signals.verdict.evidence).groups()
        assert member.signals.correct == (said.strip("[]").split(", ")[-1] == digit)
        assert member.signals.correct == (member.rollout.stop is StopReason.ENV_TERMINATED)
    session = Session.create(recipe, 0, tmp_path / "run")
    assert session.run() == "steps"
    assert session.ledger.total.env_steps > 4 and not session.ledger.stops["failed"]
    session.directory.close()


def test_the_tool_of_the_page_is_called_and_judged_and_its_recipe_composes(tmp_path):
    code = block("python", "class Shop")
    assert len(code[code.index("@method") :].splitlines()) <= 25
    (tmp_path / "shop.py").write_text(code)
    (tmp_path / "shop.toml").write_text(block("toml", "shop.py:Shop"))
    (tmp_path / "shop.jsonl").write_text(block("json", "How many apples"))
    recipe = load(tmp_path / "shop.toml", ["model.path=lab"])
    found = preflight(recipe)
    assert len(found.tasks) == 2 and not found.notes
    task, section = found.tasks[0], recipe.generate
    build = Build(0, found.tasks, 1, 4, section.max_tokens)
    (told, _) = with_tools(section.environment, found.tasks, build, True)
    assert json.loads(told.tools[0])["function"]["name"] == "stock"
    read = reader(section.environment)
    call = '<tool_call>{"name": "stock", "arguments": {"item": "%s"}}</tool_call>'
    with make_host(section.environment, section.host, build) as host:
        acts = [Reset("a", task, 1), Turn("a", 0, read(call % "apples"), keep=True), Branch("b", "a", 0)]
        acts += [Turn("a", 1, read(call % "figs")), Turn("a", 2, read("It is 7")), Finish("a")]
        acts += [Turn("b", 1, read('<tool_call>{"name": "sell"')), Turn("b", 2, read("It is 8")), Finish("b")]
        out = host.run(acts)
    assert [o.error for o in out] == [""] * 9
    heard = [m.parts[0].text for o in out for m in (o.step.messages if o.step is not None else ())]
    assert heard[:2] == ["3 pieces", "Error: there are no figs"] and heard[2].startswith("Error: the call cannot be read")
    assert out[4].step.terminated and [o.verdict.correct for o in (out[5], out[8])] == [True, False]


def test_a_class_without_its_methods_is_refused_by_their_names(tmp_path):
    code = (
        block("python", "class Digits").replace("class Digits(Simple)", "class Digits").replace("def verify", "def verify_it")
    )
    (tmp_path / "digits.py").write_text(code)
    (tmp_path / "digits.toml").write_text(block("toml", "digits.py:Digits"))
    with pytest.raises(ConfigError, match=r"(?s)class Digits has no tools, verify, fragments, close.*inherit gfcr"):
        preflight(load(tmp_path / "digits.toml"))


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
