"""The processes of a sandbox, from outside. Invariants: `end` returns when none of them is left; it happens once, in the process that
started them, at the latest when the owner is collected or this process ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
from pathlib import Path

_PATIENCE = 10.0


class Life:
    """A started sandbox's processes."""

    def __init__(self, process: subprocess.Popen[bytes], info: int, scratch: str | None) -> None:
        """`info`: where bubblewrap writes its first process's id; `scratch`: a directory to be removed at the end, which only a sandbox
        without walls has."""
        self.process, self.info, self.scratch, self.owner = process, info, scratch, os.getpid()
        self._first: int | None = None if scratch is None else process.pid

    def first(self) -> int | None:
        """Process 1 of the sandbox by our process ids; None when it has not started."""
        if self._first is None and self.info >= 0:
            told = b""
            while select.select([self.info], [], [], _PATIENCE)[0] and (more := os.read(self.info, 4096)):
                told += more
            with contextlib.suppress(ValueError, KeyError):
                self._first = int(json.loads(told)["child-pid"])
        return self._first

    def resident(self) -> int:
        """Memory that its processes hold (bytes), shared pages counted once; 0 for a judged process alone, which has its own limit."""
        tree = self._tree()
        return sum(_held(pid) for pid in tree) if len(tree) > 2 else 0

    def end(self) -> None:
        if os.getpid() != self.owner or self.info < 0:
            return
        if self.process.poll() is None:
            first = self.first()  # its parent has not reaped it yet, so the id is still its own
            while self.scratch is not None and (below := self._tree()[1:]):
                for pid in below:
                    _kill(pid)
            _kill(self.process.pid if first is None else first)
            if not _ended(self.process.pid, _PATIENCE):
                self.process.kill()
            self.process.wait()
        os.close(self.info)
        self.info = -1
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _tree(self) -> list[int]:
        found = [pid for pid in [self.first()] if pid is not None]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as below:
                        found += [int(child) for child in below.read().split() if not _zombie(int(child))]
        return found


def _ended(pid: int, seconds: float) -> bool:
    """Whether a child of ours ends within that time. Popen.wait with a limit sleeps in steps; this does not."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _held(pid: int) -> int:
    for name, unit, key in (("smaps_rollup", 1024, "Pss:"), ("status", 1024, "VmRSS:")):
        try:
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                if line.startswith(key):
                    return int(line.split()[1]) * unit
        except OSError:  # it has ended, or is not ours to look into
            continue
    return 0
