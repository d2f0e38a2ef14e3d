"""The frozen task sets: sizes, composition, separateness, integrity."""

from collections import Counter
from itertools import combinations

import pytest

from gfcr.domains.programs import freeze, pools
from gfcr.domains.programs.language import final_pair, parse_prompt
from gfcr.domains.programs.pools import HELDOUT, POOLS, informative_ids, load_heldout, load_pool
from gfcr.domains.programs.verify import ExactVerifier
from gfcr.errors import ConfigError, DataError
from gfcr.types import StopReason, Task


def lengths(tasks: list[Task]) -> Counter[int]:
    return Counter(t.meta["length"] for t in tasks)


def test_sizes_and_lengths() -> None:
    assert lengths(load_pool("D")) == dict.fromkeys(range(1, 9), 512)
    b3 = lengths(load_pool("B3"))
    assert (b3.total(), b3[1], b3[16], sum(b3[n] for n in range(3, 9))) == (640, 256, 256, 128)
    b1 = lengths(load_pool("B1"))
    assert (b1.total(), b1[1], sum(b1[n] for n in range(3, 9))) == (512, 205, 307)
    assert len(load_pool("B2")) == 512 and set(lengths(load_pool("B2"))) == set(range(3, 9))
    assert 100 <= len(load_pool("HARD")) <= 130 and set(lengths(load_pool("HARD"))) <= set(range(5, 9))
    mix = lengths(load_pool("MIX"))
    assert (mix.total(), mix[1], mix[16], sum(mix[n] for n in range(3, 9))) == (512, 192, 192, 128)
    for name, (low, high) in freeze.HELDOUT_LENGTHS.items():
        counts = lengths(load_heldout(name))
        assert counts.total() == 400 and set(counts) == set(range(low, high + 1))
        assert max(counts.values()) - min(counts.values()) <= 1


def test_keys_are_right_except_the_broken_ones_of_b1() -> None:
    for name in POOLS:
        broken = [t for t in load_pool(name) if t.meta["broken_key"]]
        assert len(broken) == (205 if name == "B1" else 0)
        assert all(t.reference["final"] != final_pair(parse_prompt(str(t.prompt))) for t in broken)
        assert all(3 <= t.meta["length"] <= 8 for t in broken)
    assert not any(t.meta["broken_key"] for name in HELDOUT for t in load_heldout(name))


def test_every_reference_trace_is_judged_right() -> None:
    verifier = ExactVerifier()
    for task in [*load_pool("B1"), *load_heldout("D-long")]:
        assert verifier.judge(task, task.reference["trace"], StopReason.EOS).correct is True


def test_nothing_occurs_twice() -> None:
    sets = {f"pool {n}": load_pool(n) for n in POOLS if n != "MIX"} | {f"heldout {n}": load_heldout(n) for n in HELDOUT}
    ids = {name: {t.id for t in tasks} for name, tasks in sets.items()}
    assert all(len(ids[name]) == len(tasks) for name, tasks in sets.items())
    assert [(a, b) for a, b in combinations(ids, 2) if ids[a] & ids[b]] == []
    assert pools.heldout_prompts() == {t.prompt for n in HELDOUT for t in load_heldout(n)}


def test_the_mixed_pool_is_made_of_others() -> None:
    parts = {t.prompt for t in load_pool("B3")} | {t.prompt for t in load_pool("HARD")}
    mix = [t.prompt for t in load_pool("MIX")]
    assert len(set(mix)) == len(mix) and set(mix) <= parts
    assert [t.prompt for t in load_heldout("MIX")] == [t.prompt for t in load_heldout("B3")]
    assert freeze.mixed() == [(t.prompt, t.reference["final"]) for t in load_pool("MIX")]


def test_labels_and_origin() -> None:
    task = load_pool("B3")[0]
    assert task.category == f"L{task.meta['length']}" and task.domain == "programs" and task.origin.source == "programs/B3"


def test_the_oracle_knows_the_informative_tasks() -> None:
    by_id = {t.id: t for t in load_pool("B3")}
    assert len(informative_ids("B3")) == 128 and {by_id[i].meta["length"] for i in informative_ids("B3")} == set(range(3, 9))
    assert len(informative_ids("B1")) == 102
    assert len(informative_ids("MIX")) == 64 and not informative_ids("MIX") & {t.id for t in load_pool("HARD")}
    assert len(informative_ids("D")) == 4096


def test_a_changed_file_is_refused() -> None:
    raw, manifest = pools._read("B2.jsonl"), pools._read(pools.MANIFEST).decode()
    assert pools.verified("B2.jsonl", raw, manifest) == raw
    with pytest.raises(DataError, match=r"B2\.jsonl has the SHA-256"):
        pools.verified("B2.jsonl", raw.replace(b"?1", b"?2", 1), manifest)
    with pytest.raises(DataError, match="records none"):
        pools.verified("other.jsonl", raw, manifest)


def test_the_manifest_names_every_file() -> None:
    names = {line.split()[1] for line in pools._read(pools.MANIFEST).decode().splitlines()}
    assert names == {f"{n}.jsonl" for n in POOLS} | {f"{n}.heldout.jsonl" for n in HELDOUT}


def test_the_script_makes_the_shipped_files_again() -> None:
    for file, rows in freeze.build().items():
        load = load_heldout if ".heldout." in file else load_pool
        assert [(t.prompt, t.reference["final"]) for t in load(file.split(".")[0])] == rows, file


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="no pool 'B9'"):
        load_pool("B9")
    with pytest.raises(ConfigError, match="no held-out set"):
        load_heldout("D-longer")
