"""Verifiers that misbehave, in an importable module because they travel to child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from gfcr.types import Status, Verdict


class Judge:
    """The task's prompt says how it behaves."""

    name, version = "judge", "3"

    def judge(self, task, text, stop):
        verb, _, rest = task.prompt.partition(" ")
        if verb == "loop":
            while True:
                pass
        if verb == "spawn":  # hangs together with a process of its own
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open(rest, "w") as out:
                out.write(f"{os.getpid()} {child.pid}")
            child.wait()
        if verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "exit":
            os._exit(3)
        if verb == "raise":
            raise RuntimeError("the grader is broken")
        if verb == "quit":
            raise SystemExit(5)
        if verb == "rubbish":
            return {"score": 7}
        if verb == "unpicklable":
            return lambda: None
        if verb == "sleep":
            time.sleep(float(rest))
        if verb == "print":
            print("noise " * 10_000)
        if verb == "segfault":
            import ctypes

            ctypes.string_at(0)
        if verb == "flood":  # past Python, into both streams
            for _ in range(int(rest)):
                os.write(1, b"x" * 65536)
                os.write(2, b"x" * 65536)
        if verb == "eat":  # memory that is given back, and memory that is not
            size, _, keep = rest.partition(" ")
            block = bytearray(int(size) * 2**20)
            block[::4096] = b"x" * len(block[::4096])
            if keep == "keep":
                KEPT.append(block)
            elif keep:
                time.sleep(float(keep))
        if verb == "huge":
            return Verdict(self.name, self.version, Status.SCORED, 1.0, True, "x" * 20_000_000)
        if verb == "stop":  # as a debugger or a full cgroup would
            os.kill(os.getpid(), signal.SIGSTOP)
        if verb == "hostile":  # code that would run where the answer is read
            return Hostile(rest)
        if verb in ("half", "noise"):  # writes into the pipe itself
            pipe = int(sys.argv[1])
            os.write(pipe, (1000).to_bytes(4, "big") + b"x" * 10 if verb == "half" else (3).to_bytes(4, "big") + b"abc")
            time.sleep(600 if verb == "half" else 0)
        if verb == "later":  # dies while it serves the next call
            import threading

            threading.Timer(0.2, os._exit, (7,)).start()
        if verb == "count":
            with open(rest, "a") as out:
                out.write(f"{text}\n")
        if verb == "pid":
            return Verdict(self.name, self.version, Status.SCORED, 1.0, True, str(os.getpid()))
        return Verdict(self.name, self.version, Status.SCORED, float(len(text)), True)


KEPT = []


class Hostile:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


class Steps:
    name = "steps"

    def score(self, task, text, stop):
        while task.prompt == "hang":
            pass
        return [(0, 1, 1.0)]


class Bounded(Judge):
    bounded = True


class Local:
    """Cannot travel: it keeps a function without a name."""

    name, version = "local", "1"

    def __init__(self, settings=None, build=None):
        self.decode = lambda ids: ""

    def judge(self, task, text, stop): ...
