"""The house: rooms depend downwards only, torch stays where it is needed, files stay short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "gfcr"
FILES = sorted(SRC.rglob("*.py"))

FLOORS: list[set[str]] = [
    {"errors", "types", "run.seeds", "child", "guard"},
    {"registry", "settings", "context", "functions"},
    {"engine", "domains", "sandbox"},
    {"environments", "generate", "filter", "control", "replay", "run.budget", "run.ledger"},
    {
        "asks",
        "slots",
        "round",
        "round_state",
        "round_growth",
        "round_parking",
        "recipe",
        "recipe_data",
        "compose",
        "compose_guidance",
        "compose_environment",
        "compose_loss",
        "compose_partial",
        "compose_reward",
        "compose_engine",
        "compose_sampling",
        "compose_trees",
    },
    {"run", "drivers", "train", "build", "build_check", "build_engine", "task_sets", "doors"},
    {"diagnose", "report", "compare", "integrations"},
    {"cli", "__main__"},
]
"""From the ground up: a room may import its own floor and those below. `engine.contract` and an environment's contract are data and lie
with the context."""
SPECIAL = {"engine.contract": 1, "engine": 2, "environments.contract": 1, "environments.acts": 1}
TORCH_ROOMS = (
    "engine.embedded",
    "engine.workers",
    "engine.models",
    "engine.known",
    "train",
    "domains.programs.warmstart",
    "domains.programs.freeze",
    "domains.programs.student",
    "domains.programs.decode",
    "integrations.trl.",  # but not the package itself, which is light
    "integrations.weights",
)


def module(path):
    name = ".".join(path.relative_to(SRC).with_suffix("").parts)
    return name.removesuffix(".__init__").removesuffix("__init__")


def floor(name):
    """The floor of a module, by its longest known prefix; settings files lie on the ground."""
    if not name:
        return 0  # gfcr itself
    if name.endswith(".settings"):
        return 1
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        prefix = ".".join(parts[:n])
        if prefix in SPECIAL:
            return SPECIAL[prefix]
        for level, rooms in enumerate(FLOORS):
            if prefix in rooms:
                return level
    raise AssertionError(f"{name} belongs to no room; add it to FLOORS (and to docs/architecture.md)")


def imports(tree, top_level_only=False):
    """(line, module) of every import; `top_level_only`: those that run when the module is imported."""
    nodes = list(ast.walk(tree)) if not top_level_only else list(at_import(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def at_import(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from at_import(child)


KNOWN = {module(f) for f in FILES}


TREES = {module(f): ast.parse(f.read_text()) for f in FILES}


def upward():
    """(importer, line, imported) of every import that leads upwards."""
    for own, tree in TREES.items():
        if not own:
            continue  # the facade: names everything, loads nothing until a name is used (see test_import_is_light_and_its_names_lead_somewhere)
        for line, target in imports(tree):
            name = target.removeprefix("gfcr").removeprefix(".")
            # A name inside a module is no module of its own; the module is listed by itself.
            if target.startswith("gfcr") and name in KNOWN and floor(name) > floor(own):
                yield own or "gfcr", line, name


def test_imports_go_downwards_only():
    assert list(upward()) == []


def test_torch_is_imported_only_where_models_run():
    heavy = {
        own
        for own, tree in TREES.items()
        for _, target in imports(tree, top_level_only=True)
        if target.split(".")[0] in ("torch", "transformers")
    }
    assert {own for own in heavy if not own.startswith(TORCH_ROOMS) or own.endswith("settings")} == set()


def test_the_check_sees_an_import_that_goes_up():
    assert floor("types.task") < floor("registry") < floor("engine.embedded.core") < floor("filter.cascade") < floor("round")
    assert floor("round") < floor("run.session") < floor("report") < floor("cli.main")
    assert floor("run.seeds") < floor("run.budget") < floor("run.session")
    with pytest.raises(AssertionError, match="belongs to no room"):
        floor("attic")
    tree = ast.parse("import torch\nif x:\n    import transformers\ndef f():\n    import jax\n")
    assert [name for _, name in imports(tree, top_level_only=True)] == ["torch", "transformers"]


def test_importing_gfcr_and_its_light_rooms_brings_no_torch():
    light = sorted(
        m
        for m in KNOWN
        if m and (m == "train.settings" or not m.startswith((*TORCH_ROOMS, "cli", "run.", "report", "compare")))
    )
    code = f"import importlib, sys\nfor m in {light!r}: importlib.import_module('gfcr.' + m)\nsys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC.parent), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr or "torch was imported"


def test_files_stay_short():
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_one_rollout_can_be_followed_in_round_py():
    """The steps of the lifecycle are methods of Round, in reading order."""
    tree = ast.parse((SRC / "round.py").read_text())
    (round_,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Round")
    names = [n.name for n in round_.body if isinstance(n, ast.FunctionDef)]
    steps = [
        "ask",
        "tell",
        "_open_groups",
        "_prompt",
        "_advance",
        "_generate",
        "_close_group",
        "_refill",
        "_close_round",
        "_inject",
        "_finish",
    ]
    assert [n for n in names if n in steps] == steps


def test_import_is_light_and_its_names_lead_somewhere():
    code = (
        "import sys, gfcr\nassert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "assert all(getattr(gfcr, name) is not None for name in gfcr.__all__)\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC.parent), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
