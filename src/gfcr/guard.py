"""The process that ends a dead process's children, with whatever these started.

Invariants: it ends when the process it guards ends, however that ends, and first kills every group it was told of and not
told to forget; it depends on no thread of that process; it imports nothing of gfcr (it is run as a script by its path).

Linux's PR_SET_PDEATHSIG would need no process, but it fires when the *thread* that started the child ends, and it leaves what
the child started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

SECONDS = 1.0
"""How often it looks whether its parent is still there; a closed pipe says so at once, unless a fork holds a copy of it."""


def watch(parent: int) -> None:
    """Read lines from stdin (`17`: guard process group 17, `-17`: forget it) until process `parent` is gone, then kill."""
    groups: set[int] = set()
    rest = b""
    while True:
        if not select.select([0], [], [], SECONDS)[0]:
            if os.getppid() != parent:
                break
            continue
        data = os.read(0, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for number in map(int, lines):
            groups.add(number) if number > 0 else groups.discard(-number)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    import sys

    watch(int(sys.argv[1]))
