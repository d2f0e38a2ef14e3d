"""Environments that misbehave, for tests of the host."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import ClassVar

from gfcr.environments.contract import EnvironmentFault, Fragment, Step
from gfcr.types import ArtifactKind, Message, Part, PartKind, Status, Task, Verdict

TASK = Task("test", "say something", "done")


class Echo:
    """Counts turns and does what it is told: `sleep S`, `raise`, `fault`, `exit`, `nothing`."""

    name, version, deterministic, snapshots, quick = "echo", "1", True, True, False

    def __init__(self, log=None):
        self.log = log if log is not None else []
        self.said, self.closed = [], 0

    def tools(self, task):
        return ('{"name":"echo"}',)

    def reset(self, task, seed):
        self.said = [f"{task.prompt}/{seed}"]
        return Step(state="start")

    def step(self, said):
        word, _, rest = said.text.partition(" ")
        self.log.append((threading.get_ident(), said.text, time.monotonic()))
        if word == "sleep":
            time.sleep(float(rest))
        elif word == "raise":
            raise KeyError("a\0b")
        elif word == "fault":
            raise EnvironmentFault("server_gone", "the server is gone")
        elif word == "exit":
            raise SystemExit(3)
        elif word == "interrupt":
            raise KeyboardInterrupt
        elif word == "nothing":
            return None
        self.said.append(said.text)
        return Step((Message("tool", (Part(PartKind.TEXT, "|".join(self.said)),)),), state=str(len(self.said)))

    def verify(self):
        return Verdict(self.name, self.version, Status.SCORED, 1.0, True, evidence="|".join(self.said))

    def fragments(self):
        return [Fragment(ArtifactKind.TOOL_SEQUENCE, text, i) for i, text in enumerate(self.said[1:])]

    def snapshot(self):
        return "\n".join(self.said).encode()

    def restore(self, task, snapshot):
        self.said = snapshot.decode().split("\n")

    def close(self):
        self.closed += 1


class QuickEcho(Echo):
    quick = True


class NoSnapshots(QuickEcho):
    snapshots = False


class AsyncEcho(Echo):
    """Its methods are coroutines, all on one loop."""

    loops: ClassVar[set] = set()

    async def reset(self, task, seed):
        self.loops.add(id(asyncio.get_running_loop()))
        return Echo.reset(self, task, seed)

    async def step(self, said):
        self.loops.add(id(asyncio.get_running_loop()))
        word, _, rest = said.text.partition(" ")
        if word == "sleep":
            await asyncio.sleep(float(rest))
            word = ""
        return Echo.step(self, said) if word else Step(state="slept")

    async def close(self):
        self.closed += 1


class QuickAsync(AsyncEcho):
    quick = True
