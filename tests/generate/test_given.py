"""Seeders and topologies of one's own that give something else are told with their place, the value and what to give."""

import pytest

from gfcr.errors import ConfigError
from lifecycle_cases import batch_of, lab

HEAD = """
from gfcr.context import Seed, Stream
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
OURS = dict(title="mine", criterion="coverage", faithfulness=Faithfulness.OURS)
"""
SEED = """
@method("mine", Slot.SEED, **OURS)
class Mine:
    def __init__(self, settings, build): pass
    def seed(self, group, n, view): return {gives}
"""
TOPOLOGY = """
@method("mine", Slot.TOPOLOGY, **OURS)
class Mine:
    class Settings(FrozenModel):
        k: int = 3
    def __init__(self, settings, build): pass
    def streams(self, group, bases, how, view): return {gives}
"""
WHOLE = "[Stream(b, how.sampling, how.max_tokens) for b in bases]"


def played(tmp_path, key, body, gives):
    (tmp_path / "mine.py").write_text(HEAD + body.format(gives=gives))
    named = {"name": f"{tmp_path}/mine.py:Mine"}
    topology = {"topology": {"name": "group", "k": 3}} if key == "seed" else {}
    return lab("rww", generate={**topology, key: named}).drive()


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        ("['a'] * n", r"gave 'a' \(str\) for rollout 0 of group .*, which is no Seed\n  remedy: .*Seed.*words.after"),
        ("[None] * (n - 1)", "gave 2 seeds for 3 rollouts of group .*\n  remedy: .*a list of n"),
        ("None", r"gave None \(NoneType\) for 3 rollouts .* no list of seeds"),
        ("'abc'", r"gave 'abc' \(str\) for 3 rollouts"),
        ("[None, None, Seed('a', 'told')]", r"gave for rollout 2 of group .* a Seed whose segments are 'a' \(str\)"),
    ],
)
def test_a_seeder_that_gives_no_seeds(gives, said, tmp_path):
    with pytest.raises(ConfigError, match=f"generate.seed mine.py:Mine {said}"):
        played(tmp_path, "seed", SEED, gives)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (f"{WHOLE}[:1]", "gave 1 streams for 3 rollouts of group .*\n  remedy: .*one gfcr.context.Stream for each base"),
        (f"{WHOLE} * 2", "gave 6 streams for 3 rollouts"),
        ("bases", r"for rollout 0 of group .*, which is no Stream"),
        ("None", r"gave None \(NoneType\) for 3 rollouts"),
    ],
)
def test_a_topology_that_gives_no_stream_for_each_base(gives, said, tmp_path):
    with pytest.raises(ConfigError, match=f"generate.topology mine.py:Mine .*{said}"):
        played(tmp_path, "topology", TOPOLOGY, gives)


@pytest.mark.parametrize(("key", "body", "gives"), [("seed", SEED, "[None] * n"), ("topology", TOPOLOGY, WHOLE)])
def test_what_fits_is_played(key, body, gives, tmp_path):
    assert len(batch_of(played(tmp_path, key, body, gives))) == 3
