"""How a sandbox is started: the bubblewrap command line, what works on this machine, which user judged code becomes.

Invariants: a sandbox sees the system's programs, libraries and the interpreter read-only, an empty scratch space in memory, its own
process ids, an empty network, no other file; it holds no privilege; nothing but `weak` ever runs without these walls.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from functools import cache
from pathlib import Path

from gfcr.sandbox.settings import Limits, Sandbox

SCRATCH = "/tmp"
SHARED = "/dev/shm"
"""Scratch space of the C library, without which there are no semaphores."""
_SHARED = 8 << 20
INTERPRETER = (os.path.realpath(sys.executable), "-S", "-s", "-P", "-B")
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64")
_SCATTER = 1 << 27


def environment(scratch: str) -> dict[str, str]:
    """What judged code finds in its environment: nothing of ours. The hash seed is fixed, so sets print alike in every run."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def bwrap(sandbox: Sandbox, limits: Limits, nested: bool, info: int, filters: int | None) -> list[str]:
    """The command up to the interpreter. `nested`: in a user namespace of its own, for a user who is not root; `info`, `filters`: open
    files that bubblewrap writes the process id to and reads the system call filter from."""
    command = [sandbox.bwrap, "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--info-fd", str(info)]
    if nested:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += ["--cap-drop", "ALL"]
    if not nested:  # process 1 gives judged code a user of its own, and ends it
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    if filters is not None:
        command += ["--seccomp", str(filters)]
    return [*command, *_mounts(sandbox, limits.scratch_mb)]


@cache
def _mounts(sandbox: Sandbox, scratch_mb: int) -> tuple[str, ...]:
    command = ["--perms", "0755", "--dir", "/packages"] if sandbox.paths else []
    command += ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        place = Path("/", name)
        if place.is_symlink():
            command += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            command += ["--ro-bind", str(place), str(place)]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(scratch_mb << 20), "--perms", "1777", "--tmpfs", SCRATCH]
    command += ["--size", str(_SHARED), "--perms", "1777", "--tmpfs", SHARED]
    seen = {Path("/"), Path(SCRATCH)}
    for path in _prefixes():
        for parent in reversed(Path(path).parents):  # bubblewrap would make them readable by nobody else
            if parent not in seen:
                command += ["--perms", "0755", "--dir", str(parent)]
                seen.add(parent)
        command += ["--ro-bind", path, path]
    for outside, inside in zip(sandbox.paths, packages(sandbox)):
        command += ["--ro-bind", outside, inside]
    return (*command, "--remount-ro", "/dev", "--remount-ro", "/")


def packages(sandbox: Sandbox) -> list[str]:
    """Where judged code finds `sandbox.paths`."""
    return [path if sandbox.kind == "weak" else f"/packages/{i}" for i, path in enumerate(sandbox.paths)]


@cache
def _prefixes() -> tuple[str, ...]:
    """Where the interpreter lives, if not below /usr."""
    found = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix), sys.base_prefix}
    found.add(str(Path(INTERPRETER[0]).parents[1]))
    return tuple(sorted(p for p in found if p != "/usr" and not p.startswith("/usr/") and p != "/"))


def user() -> int:
    """A user id for judged code when we are root: far from real ones, another for every sandbox, so that its count of processes is its
    own."""
    most = _mapped()
    start, span = (1_900_000_000, _SCATTER) if most > 1_900_000_000 + _SCATTER else (max(1, most // 2), max(1, most // 2 - 2))
    return start + secrets.randbelow(span)


@cache
def _mapped() -> int:
    """One past the highest user id that exists in this user namespace."""
    try:
        rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        return max(int(first) + int(count) for first, _, count in rows)
    except (OSError, ValueError):
        return 65_536


def missing(sandbox: Sandbox) -> str | None:
    """Why bubblewrap cannot even be tried; None when it can."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {sys.platform}"
    if shutil.which(sandbox.bwrap) is None:
        return f"there is no program {sandbox.bwrap!r}"
    return None
