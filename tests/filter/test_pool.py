"""The pool of killable processes: many callers, misbehaving work, order, memory, what is kept and what is left behind."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.filter.test_killable import gone

from gfcr.filter.killable import Broken, KillableVerifier, Limits
from gfcr.filter.pool import pool as pool_room
from gfcr.filter.pool.serve import resident_bytes
from gfcr.types import Status, StopReason, Task
from killable_cases import Judge

EOS = StopReason.EOS


def item(prompt, text="abc"):
    return Task("test", prompt, reference="1"), text, EOS


@pytest.fixture(scope="module")
def pool():
    made = KillableVerifier(Judge(), seconds=0.5, workers=2)
    yield made
    made.close()


def fine(pool):
    return pool.judge(*item("judge", "four")).score == 4.0


def test_two_thousand_calls_from_many_threads_and_coroutines_each_get_their_own_verdict(pool):
    texts = ["x" * (1 + i % 97) for i in range(2000)]
    with ThreadPoolExecutor(64) as threads:
        found = [v.score for v in threads.map(lambda text: pool.judge(*item("judge", text)), texts[:1000])]

    async def rest():
        return await asyncio.gather(*(pool.judge_async(*item("judge", text)) for text in texts[1000:]))

    found += [v.score for v in asyncio.run(rest())]
    assert found == [float(len(text)) for text in texts]
    assert len(pool.pool.pids()) == 2


def test_calls_one_after_the_other_take_one_process_however_many_there_may_be():
    made = KillableVerifier(Judge(), seconds=5, workers=4)
    try:
        assert len({made.judge(*item("pid")).evidence for _ in range(50)}) == 1
        made.judge_many([item("sleep 0.2", "x" * i) for i in range(4)])
        assert len(made.pool.pids()) == 4
    finally:
        made.close()


def test_a_wave_comes_back_in_its_order_whichever_ended_first(pool):
    """Every fourth call ends its process, every fifth is slow; the others are at once."""
    prompts = ["sleep 0.1" if i % 5 == 0 else "die" if i % 4 == 0 else "judge" for i in range(16)]
    found = pool.judge_many([item(prompt, "x" * i) for i, prompt in enumerate(prompts)])
    assert [v.status is Status.UNSCORABLE for v in found] == [p == "die" for p in prompts]
    assert [v.score for v in found if v.score is not None] == [float(i) for i, p in enumerate(prompts) if p != "die"]


@pytest.mark.parametrize(
    ("prompt", "evidence"),
    [
        ("segfault", "killed by signal 11"),
        ("exit", "exit code 3"),
        ("die", "killed by signal 9"),
        ("stop", "no verdict within 0.5 s; killed"),
        ("huge", "its answer has 20,000,1"),
        ("unpicklable", "its answer cannot travel"),
    ],
)
def test_what_the_work_does_to_its_process_is_evidence_and_the_next_call_works(pool, prompt, evidence):
    verdict = pool.judge(*item(prompt))
    assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)
    assert evidence in verdict.evidence
    assert fine(pool)


def test_half_an_answer_is_not_waited_for(monkeypatch):
    from gfcr.filter.pool import worker

    monkeypatch.setattr(worker, "TAKE_SECONDS", 0.3)
    made = KillableVerifier(Judge(), seconds=5)
    try:
        assert made.judge(*item("half")).evidence == "its process stopped in the middle of its answer; killed"
        assert "cannot be read" in made.judge(*item("noise")).evidence
        assert fine(made)
    finally:
        made.close()


def test_a_flood_of_output_neither_blocks_nor_reaches_us(pool, capfd):
    assert pool.judge(*item("flood 200")).score == 3.0
    assert capfd.readouterr() == ("", "")


def test_an_answer_that_would_run_code_where_it_is_read_is_refused(pool, tmp_path):
    verdict = pool.judge(*item(f"hostile {tmp_path}/ran"))
    assert verdict.status is Status.UNSCORABLE
    assert "system does not travel" in verdict.evidence
    assert not (tmp_path / "ran").exists()
    assert fine(pool)


def test_memory_beyond_the_limit_is_killed_and_memory_that_stays_replaces_the_process():
    made = KillableVerifier(Judge(), seconds=20, limits=Limits(memory_mb=400, growth_mb=60))
    try:
        verdict = made.judge(*item("eat 500 10"))
        assert (verdict.status, "more than 400 MB" in verdict.evidence) == (Status.UNSCORABLE, True)
        first = made.judge(*item("pid")).evidence
        assert made.judge(*item("eat 100")).score == 3.0  # given back
        assert made.judge(*item("pid")).evidence == first
        made.judge(*item("eat 100 keep"))
        assert made.judge(*item("pid")).evidence != first
        assert gone(int(first))
    finally:
        made.close()


def test_a_process_is_replaced_after_its_number_of_calls():
    made = KillableVerifier(Judge(), seconds=5, limits=Limits(calls=3))
    try:
        pids = [made.judge(*item("pid")).evidence for _ in range(7)]
    finally:
        made.close()
    assert [pids.count(p) for p in dict.fromkeys(pids)] == [3, 3, 1]


def test_a_stopped_idle_process_is_replaced_and_the_call_is_still_judged(monkeypatch):
    from gfcr.filter.pool import worker

    monkeypatch.setattr(worker, "TAKE_SECONDS", 0.3)
    made = KillableVerifier(Judge(), seconds=5)
    try:
        first = int(made.judge(*item("pid")).evidence)
        os.kill(first, signal.SIGSTOP)
        assert fine(made)
        assert gone(first)
        second = int(made.judge(*item("pid")).evidence)
        os.kill(second, signal.SIGKILL)  # by the system, between two calls
        assert fine(made)
    finally:
        made.close()


def test_what_an_earlier_call_left_behind_costs_the_next_one_nothing():
    """A thread of the first call ends the process while it serves the second, which is asked again of a fresh one."""
    made = KillableVerifier(Judge(), seconds=5)
    try:
        assert made.judge(*item("later")).score == 3.0
        assert made.judge(*item("sleep 0.6", "four")).score == 4.0
    finally:
        made.close()


def test_the_queue_is_bounded_for_those_who_can_wait(monkeypatch):
    """Twelve callers, room for three: nine of them wait outside the queue, and all get their verdict."""
    made = KillableVerifier(Judge(), seconds=5, workers=1)
    made.pool._backlog = 3
    longest = 0
    try:
        with ThreadPoolExecutor(12) as threads:
            work = [threads.submit(made.judge, *item("sleep 0.03")) for _ in range(24)]
            while not all(w.done() for w in work):
                longest = max(longest, len(made.pool._inside.queue))
                time.sleep(0.002)
        assert {w.result().score for w in work} == {3.0}
        assert 1 <= longest <= 3
        monkeypatch.setattr(pool_room, "BACKLOG_BYTES", 100)
        assert [v.score for v in made.judge_many([item("judge", "x" * 1000)] * 3)] == [1000.0] * 3
    finally:
        made.close()


def test_a_file_is_read_only_a_window_ahead(pool):
    read = []

    def items():
        for i in range(500):
            read.append(i)
            yield item("judge", "x" * (i % 7))

    most = 0
    for done, verdict in enumerate(pool.stream(items(), window=8)):
        assert verdict.score == float(done % 7)
        most = max(most, len(read) - done)
    assert (len(read), most) == (500, 8)


def test_a_coroutine_that_gives_up_before_its_turn_is_never_judged(tmp_path):
    made = KillableVerifier(Judge(), seconds=5)

    async def script():
        first = asyncio.ensure_future(made.judge_async(*item("sleep 0.3")))
        second = asyncio.ensure_future(made.judge_async(*item(f"count {tmp_path}/seen", "second")))
        await asyncio.sleep(0.05)
        second.cancel()
        third = await made.judge_async(*item(f"count {tmp_path}/seen", "third"))
        return (await first).score, third.score

    try:
        made.judge(*item("judge"))
        assert asyncio.run(script()) == (3.0, 5.0)
    finally:
        made.close()
    assert (tmp_path / "seen").read_text() == "third\n"


def test_the_event_loop_goes_on_while_a_verifier_hangs(pool):
    """verl#288: `asyncio.wait_for` never fires on a loop that computes; here it does, and the deadline holds besides."""

    async def script():
        ticks = 0
        work = asyncio.ensure_future(pool.judge_async(*item("loop")))
        while not work.done():
            await asyncio.sleep(0.02)
            ticks += 1
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.judge_async(*item("sleep 0.4")), 0.05)
        return ticks, work.result()

    ticks, verdict = asyncio.run(script())
    assert ticks > 5
    assert verdict.evidence == "no verdict within 0.5 s; killed"


def test_equal_answers_are_judged_once_and_failures_each_by_itself(tmp_path):
    made = KillableVerifier(Judge(), seconds=0.3, workers=2, cache=8)
    try:
        seen = tmp_path / "seen"
        found = made.judge_many([item(f"count {seen}", text) for text in ("a", "b", "a", "a", "b")])
        assert [v.score for v in found] == [1.0] * 5
        assert sorted(seen.read_text().split()) == ["a", "b"]
        again = made.judge(*item(f"count {seen}", "a"))
        assert (again.score, again.seconds, again.evidence) == (1.0, 0.0, found[0].evidence)
        assert sorted(seen.read_text().split()) == ["a", "b"]
        assert {v.status for v in made.judge_many([item("loop")] * 3)} == {Status.UNSCORABLE}
        assert len(made.cache) == 2
        made.judge_many([item("judge", "x" * i) for i in range(20)])
        assert len(made.cache) == 8
    finally:
        made.close()


def test_a_verdict_is_known_again_only_for_the_same_verifier_task_reference_and_end():
    from dataclasses import replace

    from gfcr.filter.pool.cache import VerdictCache

    task = Task("test", "q", reference="1")
    cache = VerdictCache(Judge(), 10)
    base = cache.key(task, "a", EOS)
    newer = Judge()
    newer.version = "4"
    others = [
        VerdictCache(newer, 10).key(task, "a", EOS),
        cache.key(replace(task, reference="2"), "a", EOS),
        cache.key(replace(task, reference_rev="2"), "a", EOS),
        cache.key(Task("test", "p", reference="1"), "a", EOS),
        cache.key(task, "b", EOS),
        cache.key(task, "a", StopReason.MAX_TOKENS),
    ]
    assert base == cache.key(Task("test", "q", reference="1"), "a", EOS)
    assert len({base, *others}) == 7

    class Normal(Judge):
        def cache_key(self, task, text, stop):
            return text.strip().lower() if text else None

    normal = VerdictCache(Normal(), 10)
    assert normal.key(task, " A\n", EOS) == normal.key(task, "a", EOS) is not None
    assert normal.key(task, "", EOS) is None
    Normal.cacheable = False
    assert VerdictCache(Normal(), 10).key(task, "a", EOS) is None


def test_late_is_wrong_where_the_recipe_says_so():
    made = KillableVerifier(Judge(), seconds=0.2, late="wrong")
    try:
        verdict = made.judge(*item("loop"))
        assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, 0.0, False)
        assert "no verdict within 0.2 s" in verdict.evidence
        assert made.judge(*item("die")).status is Status.UNSCORABLE
    finally:
        made.close()


def test_a_call_that_cannot_travel_is_unscorable(pool):
    task = Task("test", "judge", meta={"function": lambda: None})
    assert "cannot be sent" in pool.judge(task, "x", EOS).evidence
    assert fine(pool)


def test_closing_ends_calls_that_wait_and_run_and_leaves_no_process_nor_thread():
    made = KillableVerifier(Judge(), seconds=60, workers=2)
    pids = {int(v.evidence) for v in made.judge_many([item("pid")] * 4)}
    before = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        work = [threads.submit(made.judge, *item("sleep 50")) for _ in range(6)]
        time.sleep(0.3)
        pids |= set(made.pool.pids())
        made.close()
        assert [w.result(5).evidence for w in work] == ["the pool was closed"] * 6
    assert time.monotonic() - before < 10
    assert all(gone(pid) for pid in pids)
    assert not [t for t in threading.enumerate() if t.name == "gfcr-pool" and t in made.pool._inside.threads]
    assert fine(made)  # and it starts again
    made.close()


def test_a_forgotten_pool_leaves_nothing_even_with_calls_in_it():
    made = KillableVerifier(Judge(), seconds=60, workers=2)
    made.judge(*item("pid"))
    made.pool.submit("judge", item("sleep 50"))
    time.sleep(0.2)
    pids = made.pool.pids()
    del made
    gc.collect()
    assert pids and all(gone(pid) for pid in pids)


def test_a_killed_parent_leaves_none_of_its_pool(tmp_path):
    code = (
        "import os, time; from gfcr.filter.killable import KillableVerifier; from killable_cases import Judge\n"
        "from gfcr.types import Task, StopReason\n"
        "v = KillableVerifier(Judge(), 60, workers=2)\n"
        "for _ in range(6): v.pool.submit('judge', (Task('t', 'sleep 50'), '', StopReason.EOS))\n"
        "while len(v.pool.pids()) < 2: time.sleep(.02)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(' '.join(map(str, v.pool.pids())))\n"
        "os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -9
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2 and all(gone(int(pid)) for pid in pids)


def test_memory_of_the_parent_stays_flat_over_thousands_of_calls(pool):
    big = "x" * 20_000
    pool.judge_many([item("judge", big)] * 200)
    gc.collect()
    before = resident_bytes(os.getpid())
    for _ in range(10):
        pool.judge_many([item("judge", big)] * 200)
    gc.collect()
    assert resident_bytes(os.getpid()) - before < 30 * 2**20


def test_a_verifier_that_cannot_start_says_so_each_time():
    from gfcr.filter.pool.pool import Pool

    broken = Pool(b"no pickle", Limits(seconds=1))
    try:
        for _ in range(2):
            with pytest.raises(Broken, match="cannot be loaded in a process of its own"):
                broken.submit("judge", ()).result(60)
    finally:
        broken.close()
