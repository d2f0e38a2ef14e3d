"""One sandbox, seen from outside: starts it, hands it jobs, ends it.

Invariants: after `close` no process, file or port of it is left, whatever ran in it. A sandbox serves one answer: its jobs (one per
program run) may see each other's traces, other answers' never.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import stat
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import CodeType
from typing import Any

from gfcr.errors import ConfigError, GfcrError
from gfcr.sandbox import command, seccomp
from gfcr.sandbox.life import Life
from gfcr.sandbox.pump import SPARE, Run, pump
from gfcr.sandbox.settings import Limits, Sandbox

START_SECONDS = 20.0
"""Longest a sandbox may take to start: a busy machine's time, not the judged code's."""
_BOOT = """
import marshal, sys, _socket
line = _socket.socket(fileno=int(sys.argv[1]))
def read(n):
    data = b""
    while len(data) < n:
        data += line.recv(n - len(data)) or sys.exit(0)
    return data
names = {}
for code in marshal.loads(read(int.from_bytes(read(4), "big"))): exec(code, names)
names["supervise"](line)()
"""
_REMEDY = "see docs/verifiers/code.md, or accept less with sandbox = { kind = 'weak' }"


class SandboxError(GfcrError):
    """The sandbox itself does not work; says nothing about what was to run in it."""


@dataclass(frozen=True)
class Job:
    """One judged process."""

    files: dict[str, str]
    """Paths relative to its directory, and their text."""
    entry: str
    modules: tuple[str, ...]
    """Modules of `inside` that run it, in the order in which they import each other; the last one's `run` takes over."""
    options: dict[str, Any] = field(default_factory=dict)


class Box:
    """A started sandbox. Not for several threads at once; the thread that starts it must live as long."""

    def __init__(self, sandbox: Sandbox, limits: Limits, nested: bool | None = None) -> None:
        """`nested`: see command.bwrap; None = what works here. Raises SandboxError where there is no such sandbox."""
        self.sandbox, self.limits = sandbox, limits
        weak = sandbox.kind == "weak"
        nested = False if weak else works(sandbox) if nested is None else nested
        self.uid = None if nested or os.geteuid() or (weak and not _readable_by_all()) else command.user()
        scratch = tempfile.mkdtemp(prefix="gfcr-") if weak else None
        if scratch and self.uid:
            os.chown(scratch, self.uid, self.uid)
        self.scratch = scratch or command.SCRATCH
        self.control, theirs = socket.socketpair()
        self.control.settimeout(START_SECONDS)
        info, info_end = os.pipe()
        self._said, said_end = os.pipe()
        filters = None if weak else _filters()
        line = [] if weak else command.bwrap(sandbox, limits, nested, info_end, filters)
        try:
            process = subprocess.Popen(
                [*line, *command.INTERPRETER, "-c", _BOOT, str(theirs.fileno())],
                pass_fds=[fd for fd in (theirs.fileno(), info_end, filters) if fd is not None],
                env=command.environment(self.scratch),
                stdin=subprocess.DEVNULL,
                stdout=said_end,
                stderr=said_end,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            for fd in (info, self._said):
                os.close(fd)
            self.control.close()
            raise SandboxError(f"the sandbox cannot be started: {error}", _REMEDY) from None
        finally:
            theirs.close()
            for end in (info_end, said_end, filters):
                if end is not None:
                    os.close(end)
        self.life = Life(process, info, scratch)
        self._finalizer = weakref.finalize(self, _end, self.life, self.control, self._said)
        with contextlib.suppress(OSError):  # what went wrong, the first job tells
            _send(self.control, [_code("weak"), _code("supervisor")] if weak else [_code("supervisor")])

    def start(self, job: Job, stdin: bytes = b"", channels: Sequence[int] = (), channel: socket.socket | None = None) -> Run:
        """Start a job. `channels`: open files that it gets, numbered from 3; `channel`: our end of one of them, whose frames the run
        collects. Raises SandboxError when the sandbox is gone."""
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        given = os.memfd_create("stdin")
        plan = {
            "files": job.files,
            "entry": job.entry,
            "cwd": f"{self.scratch}/answer",
            "scratch": [self.scratch] if self.life.scratch else [command.SCRATCH, command.SHARED],
            "paths": command.packages(self.sandbox),
            "uid": self.uid,
            "limits": _rlimits(self.limits),
            "modules": [(f"gfcr.sandbox.inside.{name}", _code(name)) for name in job.modules],
            "output": self.limits.output_kb << 10,
            "longest": self.limits.output_kb << 10,
            **job.options,
        }
        try:
            with open(given, "wb", closefd=False) as file:
                file.write(stdin)
            os.lseek(given, 0, os.SEEK_SET)
            if self.uid is not None:  # so that it can open /dev/stdout
                os.fchown(out_end, self.uid, self.uid)
                os.fchown(err_end, self.uid, self.uid)
            _send(self.control, plan, [given, out_end, err_end, *channels])
        except OSError:
            os.close(out)
            os.close(err)
            raise SandboxError(f"the sandbox did not start: {self.words()}", _REMEDY) from None
        finally:
            for fd in (given, out_end, err_end):
                os.close(fd)
        spare = 0 if job.modules[-1] == "program" else SPARE * self.limits.output_kb
        return Run(self.life, self.control, self.limits, (out, err), channel, spare)

    def words(self) -> str:
        """What bubblewrap or the supervisor said, for an error; ends the sandbox."""
        self.life.end()
        said = ""
        if self._finalizer.alive:
            os.set_blocking(self._said, False)
            with contextlib.suppress(BlockingIOError):
                said = os.read(self._said, 4096).decode(errors="replace").strip()[-300:]
        return said or f"it ended with code {self.life.process.poll()}"

    def close(self) -> None:
        """End it and everything in it."""
        self._finalizer()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def works(sandbox: Sandbox) -> bool:
    """Whether bubblewrap needs a user namespace here. Raises ConfigError where it does not work at all, or nothing is installed."""
    found = _tried(sandbox.bwrap, sandbox.paths)
    if isinstance(found, str):
        raise ConfigError(f"judged code cannot be cut off: {found}", _INSTALL)
    return found


_INSTALL = (
    "install bubblewrap (apt-get install bubblewrap) and let it use namespaces; or accept in so many words that judged code runs "
    "as a plain process that can read and write your files: sandbox = { kind = 'weak' }"
)


@cache
def _tried(program: str, paths: tuple[str, ...]) -> bool | str:
    sandbox = Sandbox(bwrap=program, paths=paths)
    if lacking := command.missing(sandbox):
        return lacking
    if gone := next((path for path in paths if not Path(path).is_dir()), None):
        return f"sandbox.paths: {gone!r} is no directory"
    if os.geteuid() == 0 and (shut := next((path for path in paths if not os.stat(path).st_mode & stat.S_IXOTH), None)):
        return f"sandbox.paths: {shut!r} cannot be read by other users, and judged code runs as one"
    why = ""
    for nested in (False, True) if os.geteuid() == 0 else (True,):
        with Box(sandbox, Limits(), nested) as box:
            try:
                run = box.start(Job({"a.py": ""}, "a.py", ("program",)))
            except SandboxError as error:
                why = error.what
                continue
            pump([run], START_SECONDS, lambda run=run: run.over)  # type: ignore[misc]
            if run.code == 0:
                return nested
            why = f"{run.breach or f'a trial run ended with code {run.code}'}: {run.err.decode(errors='replace')[-300:]}{box.words()}"
    return why


def _end(life: Life, control: socket.socket, said: int) -> None:
    life.end()
    if os.getpid() == life.owner:
        control.close()
        os.close(said)


def _send(control: socket.socket, what: Any, fds: Sequence[int] = ()) -> None:
    data = marshal.dumps(what, 2)
    head = len(data).to_bytes(4, "big")
    if fds:
        socket.send_fds(control, [head], list(fds))
    else:
        control.sendall(head)
    control.sendall(data)


@cache
def _code(name: str) -> CodeType:
    """A module of `inside`, compiled by the interpreter that will run it: our own."""
    return compile(resources.files("gfcr.sandbox.inside").joinpath(f"{name}.py").read_text(), f"{name}.py", "exec")


def _filters() -> int | None:
    """The system call filter as a file that can be inherited once."""
    program = seccomp.program()
    if program is None:
        return None
    fd = os.memfd_create("filter", 0)
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_AS": limits.memory_mb << 20,
        "RLIMIT_FSIZE": limits.file_mb << 20,
        "RLIMIT_NPROC": limits.procs,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": int(limits.total_seconds) + 2,
    }


def _readable_by_all() -> bool:
    """Whether another user could import from where the interpreter lives."""
    place = Path(command.INTERPRETER[0])
    return all(os.stat(parent).st_mode & stat.S_IXOTH for parent in place.parents)
