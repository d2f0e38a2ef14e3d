"""Child processes live as long as the process that started them, and no longer."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gfcr import child
from gfcr.filter.killable import KillableVerifier
from gfcr.types import StopReason, Task
from killable_cases import Judge

SCRIPT = """
import os, sys, threading, time
from pathlib import Path
from gfcr import child
from gfcr.filter.killable import KillableVerifier
from gfcr.types import StopReason, Task
from killable_cases import Judge

out = Path(sys.argv[1])
judge = KillableVerifier(Judge(), 600)
def ask(prompt):
    return judge.judge(Task("t", prompt), "", StopReason.EOS)
"""


def ask(verifier, prompt):
    return verifier.judge(Task("t", prompt), "", StopReason.EOS)


def gone(pid, seconds=10.0):
    """Whether the process ends soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def script(tmp_path, text):
    """Run the text after SCRIPT; its exit code and the process ids it left in its directory."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", SCRIPT + text, str(tmp_path)], env=environment, timeout=120, check=False)
    return done.returncode, [int(pid) for path in sorted(tmp_path.iterdir()) for pid in path.read_text().split()]


@pytest.fixture
def verifier():
    made = KillableVerifier(Judge(), seconds=30)
    yield made
    made.close()


def test_a_child_outlives_the_thread_that_started_it(verifier):
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, verifier, "pid").result().evidence
    assert not gone(int(first), 0.5)
    assert ask(verifier, "pid").evidence == first


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "os._exit(1)", "sys.exit(1)"])
def test_a_child_at_work_and_what_it_started_die_with_their_process_however_it_ends(tmp_path, end):
    """The child never looks at its pipe again, so the closed pipe alone would not end it."""
    text = (
        "threading.Thread(target=ask, args=(f'spawn {out}/pids',), daemon=True).start()\n"
        "while not (out / 'pids').exists() or ' ' not in (out / 'pids').read_text(): time.sleep(.01)\n"
        "(out / 'guard').write_text(str(child._GUARD._process.pid))\n"
    )
    code, pids = script(tmp_path, text + end)
    assert code in (-9, -15, 1)
    assert len(pids) == 3
    assert all(gone(pid) for pid in pids)


def test_a_fork_ends_no_child_and_its_own_end_with_it(tmp_path):
    text = (
        "first = ask('pid').evidence\n"
        "if (fork := os.fork()) == 0:\n"
        "    other = KillableVerifier(Judge(), 600)\n"
        "    pid = other.judge(Task('t', 'pid'), '', StopReason.EOS).evidence\n"
        "    (out / 'pid').write_text(pid)\n"
        "    judge._free.get().kill()\n"
        "    os.kill(os.getpid(), 9)\n"
        "os.waitpid(fork, 0)\n"
        "assert ask('pid').evidence == first\n"
        "os.kill(os.getpid(), 9)"
    )
    code, pids = script(tmp_path, text)
    assert (code, len(pids)) == (-9, 1)
    assert gone(pids[0])


def test_a_guard_that_was_killed_is_replaced_and_guards_the_old_children_too(tmp_path):
    text = (
        "threading.Thread(target=ask, args=(f'spawn {out}/a',), daemon=True).start()\n"
        "while not (out / 'a').exists() or ' ' not in (out / 'a').read_text(): time.sleep(.01)\n"
        "old = child._GUARD._process\n"
        "os.kill(old.pid, 9)\n"
        "old.wait()\n"
        "other = KillableVerifier(Judge(), 600)\n"
        "(out / 'b').write_text(other.judge(Task('t', 'pid'), '', StopReason.EOS).evidence)\n"
        "os.kill(os.getpid(), 9)"
    )
    code, pids = script(tmp_path, text)
    assert (code, len(pids)) == (-9, 3)
    assert all(gone(pid) for pid in pids)


def test_the_guard_knows_the_living_only(verifier):
    pid = int(ask(verifier, "pid").evidence)
    assert pid in child._GUARD._groups
    verifier.close()
    assert pid not in child._GUARD._groups
