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
        if verb == "pid":
            return Verdict(self.name, self.version, Status.SCORED, 1.0, True, str(os.getpid()))
        return Verdict(self.name, self.version, Status.SCORED, float(len(text)), True)


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
