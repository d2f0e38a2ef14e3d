"""What users of such systems report about hangs and missing bounds: each kind of fault, by its smallest input.

The numbers are those of the project's list of user reports; the report each kind was first seen in stands in its docstring.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.filter.test_killable import gone

from gfcr.filter.killable import KillableVerifier
from gfcr.types import Status, StopReason, Task
from killable_cases import Judge
from lifecycle_cases import batch_of, lab

EOS = StopReason.EOS


def item(prompt, text="abc"):
    return Task("test", prompt), text, EOS


@pytest.fixture
def one():
    """A pool of one process."""
    made = KillableVerifier(Judge(), seconds=0.3)
    yield made
    made.close()


def test_23_a_time_out_ends_the_work_and_not_only_the_waiting(one):
    """areal-project/AReaL#1426: the time-out stops waiting, the work goes on, the pool has no worker left: `while True: pass` in a pool
    of one, then a normal call."""
    pid = int(one.judge(*item("pid")).evidence)
    assert one.judge(*item("loop")).evidence == "no verdict within 0.3 s; killed"
    assert gone(pid)
    assert one.judge(*item("judge")).score == 3.0
    assert len(one.pool.pids()) == 1


def test_24_one_degenerate_answer_does_not_block_the_others():
    """verl-project/verl#6673: serial scoring in the driver waits on one answer of 200,000 characters; it looks like a deadlock."""
    made = KillableVerifier(Judge(), seconds=0.5, workers=2)
    wave = [item("loop", "x" * 200_000), *(item("judge", "ab") for _ in range(100))]
    try:
        made.judge_many([item("judge")] * 2)
        done = []
        futures = [made.pool.submit("judge", one) for one in wave]
        for i, future in enumerate(futures):
            future.add_done_callback(lambda _, i=i: done.append(i))
        while len(done) < len(wave):
            time.sleep(0.005)
        assert done[-1] == 0  # it hung until its deadline, and everything else was judged meanwhile
        assert [v.status for v in made.judge_many(wave)] == [Status.UNSCORABLE] + [Status.SCORED] * 100
    finally:
        made.close()


async def _spins(text, reference):
    while True:
        pass


def test_25_a_deadline_holds_for_a_coroutine_that_computes():
    """verl-project/verl#288: `asyncio.wait_for` never fires on `async def` with `while True: pass`."""
    from gfcr.filter.killable import contained
    from gfcr.registry import Slot, find, settings_of

    found = find(Slot.VERIFIER, f"{__name__}:_spins")
    judge = contained(found.cls(settings_of(found, {})), 0.5)
    try:
        started = time.monotonic()
        verdict = asyncio.run(judge.judge_async(Task("t", "q", "4"), "4", EOS))
        assert verdict.evidence == "no verdict within 0.5 s; killed"
        assert time.monotonic() - started < 30
    finally:
        judge.close()


@pytest.mark.parametrize("letter", ["l", "f"])
def test_26_a_lost_rollout_ends_the_round_with_a_reason(letter):
    """verl-project/verl#7155: `sample()` waits for ever when 1 of 512 rollouts is lost, and nothing is logged."""
    made = lab(lambda prompt, nth: letter if (prompt, nth) == ("a+?00", 3) else "rw"[nth % 2], n_tasks=32, k=16)
    round_ = made.drive()
    assert len(batch_of(round_)) == 512
    told = [d.reason for d in round_.decisions if d.action == "retry"]
    assert len(told) == 1 and told[0]


def test_27_what_is_never_accepted_ends_the_round():
    """areal-project/AReaL#588: a rejected sample makes `rollout_batch` wait for ever, since only accepted ones are counted."""
    made = lab("rr", n_tasks=8, k=4, control={"groups": 2, "refill": {"name": "dynamic-sampling", "max_waves": 3}})
    round_ = made.drive()
    assert len(batch_of(round_)) == 0
    (why,) = [d.reason for d in round_.decisions if (d.slot, d.action) == ("refill", "give_up")]
    assert why.startswith("max_waves: 3 waves")


def test_28_a_row_that_always_fails_is_given_up_after_its_retries():
    """invergent-ai/surogate#177: a bad row was retried 10,729 times, and the cause stayed hidden."""
    made = lab({"a+?00": "f", "a+?01": "rw"}, n_tasks=2, k=2, control={"retries": 2})
    round_ = made.drive()
    assert made.engine.asked["a+?00"] == 2 * 3
    reasons = {d.reason for d in round_.decisions if d.action == "give_up"}
    assert len(reasons) == 1 and "after 3 attempts" in reasons.pop()


def test_29_a_task_that_is_always_solved_bounds_the_refill():
    """Dynamic sampling without a bound waits for a mixed group that never comes."""
    made = lab("r", control={"refill": {"name": "dynamic-sampling", "max_waves": 5}})
    round_ = made.drive()
    assert len(batch_of(round_)) == 0
    assert round_.causes() == "1 groups all_right (tasks too easy)"


def test_a_deadline_holds_in_a_thread_that_is_not_the_main_one():
    """verl-project/verl#5839, huggingface/trl#5281: graders with `signal.alarm` raise, or never time out, in a worker thread."""
    made = KillableVerifier(Judge(), seconds=0.4, workers=2)
    found = []
    try:
        thread = threading.Thread(target=lambda: found.append(made.judge(*item("loop"))))
        thread.start()
        with ThreadPoolExecutor(8) as threads:
            scores = [v.score for v in threads.map(lambda i: made.judge(*item("judge", "x" * i)), range(100))]
        thread.join()
        assert scores == [float(i) for i in range(100)]
        assert found[0].evidence == "no verdict within 0.4 s; killed"
    finally:
        made.close()


def test_a_call_that_waits_for_its_turn_loses_none_of_its_time():
    """PrimeIntellect-ai/verifiers#831: in a burst the limit includes the wait for a worker: 60 calls of 50 ms through 2 processes, each
    well within its .5 s, together three times that."""
    made = KillableVerifier(Judge(), seconds=0.5, workers=2)
    try:
        verdicts = made.judge_many([item("sleep 0.05", "x" * i) for i in range(60)])
        assert {v.status for v in verdicts} == {Status.SCORED}
        assert all(0.04 < v.seconds < 0.5 for v in verdicts)
    finally:
        made.close()
