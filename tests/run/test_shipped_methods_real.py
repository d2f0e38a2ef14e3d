"""The shipped recipes of single methods, for real: each trains, and cut and resumed it is the run that was never cut."""

from pathlib import Path

import numpy as np
import pytest
import real_runs
from bench import resume

from gfcr.run.session import Session

NOISE = (
    "filter.verifiers=[{name = 'noisy', false_negative = 0.2, false_positive = 0.05}, {name = 'exact'}]",
    "filter.cascade.escalate=0.5",
    "filter.shape={name = 'noise-correction', measured = true, least = 1}",
    "filter.steps=program-steps",
    "filter.credit=dr-grpo",
    "filter.credit_batch=[{name = 'xrpo-sharpening'}, {name = 'withhold-wrong-steps', where = 'step'}]",
)
LINEAR = ("generate.topology=linear", "control.groups=9")
TREE = ("generate.topology.k=6", "generate.topology.segment=6", "generate.topology.first=[2, 3]")

TURNS = (
    "generate.topology={name = 'tree-grpo', expand = 2, rounds = 2, keep = 3, turns = 5, turn_tokens = 4, merge = 'state', pick = 'value'}",
    "generate.max_tokens=20",
)


class Cut(Exception):
    """Ends a run after a commit."""


def small(path: Path, recipe: str, *overrides: str) -> Session:
    more = [] if any(o.startswith("generate.topology") for o in overrides) else ["generate.topology.k=3"]
    return real_runs.create(path, "budget.steps=4", "run.checkpoint_every=3", *overrides, *more, recipe=recipe)


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("reinforce_pp", LINEAR),
        ("maxrl", ()),
        ("mopps", ("filter.shape=kimi-length",)),
        ("grpo", NOISE),
        ("treepo", TREE),
        ("tree_grpo", TURNS),
        ("registers_turns", ("run.driver=stream", "generate.topology.k=4")),
    ],
    ids=[
        "reinforce++ on single answers",
        "maxrl",
        "mopps, with a length reward",
        "noise, measured and corrected, and two changes to credit",
        "trees of TreePO, packed",
        "trees of turns, packed",
        "turns, asynchronously",
    ],
)
def test_it_trains_and_resumes_bit_equal(tmp_path: Path, recipe: str, overrides: tuple[str, ...]) -> None:
    whole = small(tmp_path / "whole", recipe, *overrides)
    before = {name: tensor.detach().clone() for name, tensor in whole.parts.trainer.weights().items()}
    assert whole.run() == "steps"
    assert any(
        not np.array_equal(before[name].numpy(), tensor.detach().numpy())
        for name, tensor in whole.parts.trainer.weights().items()
    )
    cut = small(tmp_path / "cut", recipe, *overrides)

    def stop(row: dict) -> None:
        if row["step"] == 2:
            raise Cut

    cut.progress = stop
    with pytest.raises(Cut):
        cut.run()
    cut.close()
    again = Session.resume(tmp_path / "cut")
    assert again.run() == "steps"
    for session in (whole, again):
        session.close()
    assert resume.differences(tmp_path / "cut", resume.content(tmp_path / "whole")) == []
