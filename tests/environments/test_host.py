"""The host: order, deadlines, failures, branches, memory. The same acts give the same outcomes inline and in threads."""

import random
import threading
import time

import pytest

from environments.host_cases import TASK, AsyncEcho, Echo, NoSnapshots, QuickAsync, QuickEcho
from gfcr.environments import sessions
from gfcr.environments.acts import Branch, Finish, Reset, Turn
from gfcr.environments.contract import Said
from gfcr.environments.host import Host

KINDS = (QuickEcho, Echo, AsyncEcho)


def turn(session, n, text, keep=False):
    return Turn(session, n, Said(text), keep)


def texts(acted):
    return acted.step.messages[0].parts[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_episode_with_its_branches_is_played_in_the_order_told(kind):
    with Host(kind, seconds=20, workers=3) as host:
        acts = [
            Reset("a", TASK, 7, keep=True),
            turn("a", 0, "one", keep=True),
            turn("a", 1, "two"),
            Branch("b", "a", 0),  # told after "two": goes on from after "one" all the same
            turn("b", 1, "other", keep=True),
            Branch("a", "a", -1),  # back to the beginning
            turn("a", 0, "anew"),
            Branch("c", "b", 1),
            Branch("d", "b", 0),  # what a branch inherits can be branched from, too
            Finish("a"),
            Finish("b", end=False),
            Finish("b"),
            Finish("c"),
            Finish("d"),
        ]
        out = host.run(acts)
        assert [o.error for o in out] == [""] * len(acts)
        assert out[0].tools == ('{"name":"echo"}',) and out[0].step.state == "start"
        said = [o.verdict.evidence for o in out[9:]]
        begin = "say something/7"
        assert said == [f"{begin}|anew", *[f"{begin}|one|other"] * 3, f"{begin}|one"]
        assert [f.text for f in out[11].fragments] == ["one", "other"]
        assert len(host) == 0  # nothing is kept of what is over
        assert all(o.seconds >= 0 for o in out)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_environment_does_wrong_is_an_outcome_and_its_session_is_lost(kind):
    with Host(kind, seconds=20, workers=2) as host:
        host.run([Reset(name, TASK, 0, keep=True) for name in "abcd"])
        out = host.run([turn("a", 0, "raise"), turn("b", 0, "fault"), turn("c", 0, "exit"), turn("d", 0, "nothing")])
        if kind is not QuickEcho:  # there it would be ours
            host.run([Reset("k", TASK, 0)])
            assert host.run([turn("k", 0, "interrupt")])[0].error == "environment_raised: KeyboardInterrupt"
        assert [o.error.split("'")[0].strip() for o in out] == [
            "environment_raised: KeyError:",
            "environment_fault: server_gone: the server is gone",
            "environment_raised: SystemExit: 3",
            "environment_raised: TypeError: step() gave NoneType, not Step",
        ]
        assert all(o.step is None for o in out)
        (again,) = host.run([turn("b", 1, "hello")])
        assert again.error == "environment_lost: session 'b' was lost (environment_fault)"
        back = host.run([Branch("b", "b", -1), turn("b", 0, "hello"), Finish("b")])  # its snapshots are still there
        assert back[2].verdict.evidence == "say something/0|hello"
        out = host.run([turn("nobody", 0, "x"), Finish("nobody"), Branch("e", "nobody", 0), Branch("f", "a", 5)])
        assert [o.error.partition(":")[0] for o in out] == ["environment_lost"] * 4
        (skipped,) = host.run([turn("a", 4, "x")])
        assert skipped.error.startswith("environment_lost")


def test_a_turn_that_is_not_the_next_one_loses_the_session():
    with Host(QuickEcho) as host:
        out = host.run([Reset("a", TASK, 0), turn("a", 0, "x"), turn("a", 0, "x"), turn("a", 1, "y")])
        assert "turn 0 of session 'a', which is at turn 0" in out[2].error and "was lost" in out[3].error


def test_snapshots_are_asked_of_those_only_that_have_them_and_have_a_limit(monkeypatch):
    with Host(NoSnapshots) as host:
        assert host.run([Reset("a", TASK, 0, keep=True)])[0].error.startswith("environment_fault: no_snapshots")
        out = host.run([Reset("b", TASK, 3), turn("b", 0, "x"), Branch("b", "b", -1), Finish("b")])
        assert out[3].verdict.evidence == "say something/3"  # the beginning needs none
    monkeypatch.setattr(sessions, "MOST_KEPT_BYTES", 100)
    with Host(QuickEcho) as host:
        out = host.run([Reset("a", TASK, 0), turn("a", 0, "x" * 60, True), turn("a", 1, "y" * 60, True)])
        assert not out[1].error and out[2].error.startswith("environment_fault: large_snapshots")


def test_coroutines_share_one_loop_and_a_quick_environment_has_none():
    AsyncEcho.loops.clear()
    with Host(AsyncEcho, seconds=20, workers=4) as host:
        host.run([a for n in range(8) for a in (Reset(str(n), TASK, n), turn(str(n), 0, "sleep 0.01"))])
    assert len(AsyncEcho.loops) == 1
    with Host(QuickAsync) as host:
        assert "coroutine" in host.run([Reset("a", TASK, 0)])[0].error


@pytest.mark.parametrize("kind", (Echo, AsyncEcho))
def test_an_act_that_overruns_is_answered_at_once_and_holds_up_nobody(kind):
    host = Host(kind, seconds=0.25, workers=2)
    host.run([Reset(name, TASK, 0, keep=True) for name in "abc"])
    started = time.monotonic()
    out = host.run(
        [turn("a", 0, "sleep 3"), turn("a", 1, "after"), turn("b", 0, "sleep 3"), turn("c", 0, "hello"), Finish("c")]
    )
    assert time.monotonic() - started < 2.0
    assert out[0].error == "environment_time_out: no end within 0.25 s" == out[2].error
    assert out[1].error == "environment_lost: session 'a' was lost (environment_time_out)"
    assert out[4].verdict.evidence == "say something/0|hello"  # both workers hung, and others took their place
    back = host.run([Branch("a", "a", -1), turn("a", 0, "hello"), Finish("a")])
    assert back[2].verdict.correct
    started = time.monotonic()
    host.close()
    assert time.monotonic() - started < 1.0
    assert host.start(Reset("z", TASK, 0)).result(1).error.startswith("environment_lost: the host is closed")


def test_the_clock_of_an_act_starts_when_its_work_starts():
    """Eight acts of .15 s on one worker take 1.2 s, and each is within its .6 s."""
    with Host(Echo, seconds=0.6, workers=1) as host:
        host.run([Reset(str(n), TASK, 0) for n in range(8)])
        out = host.run([turn(str(n), 0, "sleep 0.15") for n in range(8)])
        assert [o.error for o in out] == [""] * 8


def test_sessions_are_played_at_once_up_to_the_number_of_workers():
    log = []
    with Host(lambda: Echo(log), seconds=20, workers=4) as host:
        host.run([Reset(str(n), TASK, 0) for n in range(8)])
        started = time.monotonic()
        host.run([turn(str(n), 0, "sleep 0.1") for n in range(8)])
        took = time.monotonic() - started
        begun = sorted(t for _, text, t in log)
        assert len({thread for thread, _, _ in log}) == 4
        assert begun[4] - begun[0] >= 0.09 and took < 0.7  # the fifth begins when one of four is done


def test_answers_come_by_themselves_through_futures():
    seen = []
    with Host(Echo, seconds=20, workers=2) as host:
        host.start(Reset("a", TASK, 0)).result(10)
        slow, quick = host.start(turn("a", 0, "sleep 0.05")), host.start(turn("a", 1, "x"))
        quick.add_done_callback(lambda future: seen.append(slow.done()))
        assert texts(quick.result(10)) == "say something/0|sleep 0.05|x"
        assert not slow.cancel()
        host.start(Finish("a")).result(10)
        for _ in range(100):
            if seen:
                break
            time.sleep(0.01)
        assert seen == [True]


def test_sessions_left_over_are_ended_and_one_can_be_ended_by_name():
    made, log = [], []

    def make():
        made.append(Echo(log))
        return made[-1]

    host = Host(make, seconds=5, workers=2)
    host.run([Reset(str(n), TASK, 0) for n in range(5)])
    first = host.start(turn("0", 0, "sleep 0.1"))
    for _ in range(500):
        if log:
            break
        time.sleep(0.005)
    waiting = host.start(turn("0", 1, "x"))
    host.end("0")
    host.end("never there")
    assert first.result(5).error == "" and waiting.result(5).error == "environment_lost: the session was ended"
    assert len(host) == 4
    host.close()
    host.close()
    assert len(made) == 5 and all(env.closed == 1 for env in made)


def test_environments_that_hang_do_not_pile_up_without_end(monkeypatch):
    monkeypatch.setattr("gfcr.environments.host.MOST_STUCK", 3)
    before = threading.active_count()
    host = Host(Echo, seconds=0.05, workers=2)
    host.run([Reset(str(n), TASK, 0) for n in range(9)])
    out = host.run([turn(str(n), 0, "sleep 1.0") for n in range(9)])
    kinds = [o.error.partition(":")[0] for o in out]
    assert kinds.count("environment_time_out") >= 4 and kinds.count("environment_lost") >= 1
    assert "still hold their threads" in next(o.error for o in out if o.error.startswith("environment_lost"))
    assert host.start(Reset("new", TASK, 0)).result(1).error.startswith("environment_lost")
    assert threading.active_count() - before <= 3 + 1 + 2 + 1 + 2
    started = time.monotonic()
    host.close()
    assert time.monotonic() - started < 0.5


def test_threads_and_callers_agree_on_random_acts():
    """150 random lists of acts on up to five sessions: the same outcomes inline and on three threads, and nothing is left."""
    rng = random.Random(7)
    for _ in range(150):
        acts, turns = [], dict.fromkeys("abcde", -1)
        for _ in range(rng.randrange(3, 16)):
            name = rng.choice("abcde")
            kind = rng.random()
            if kind < 0.2:
                acts.append(Reset(name, TASK, rng.randrange(3), rng.random() < 0.7))
                turns[name] = -1
            elif kind < 0.75:
                turns[name] += 1
                acts.append(turn(name, turns[name], rng.choice(["x", "y", "z", "fault", "raise"]), rng.random() < 0.7))
            elif kind < 0.92:
                source = rng.choice("abcde")
                at = rng.randrange(-1, max(0, turns[source]) + 1)
                acts.append(Branch(name, source, at))
                turns[name] = at
            else:
                acts.append(Finish(name, rng.random() < 0.7))
        found = []
        for kind, workers in ((QuickEcho, 1), (Echo, 3)):
            with Host(kind, seconds=20, workers=workers) as host:
                out = host.run(acts)
                lost = [o.error.partition(":")[0] if o.error.startswith("environment_lost") else o.error for o in out]
                found.append([(o.step, o.verdict, o.fragments, o.tools, why) for o, why in zip(out, lost)] + [len(host)])
        assert found[0] == found[1], acts
