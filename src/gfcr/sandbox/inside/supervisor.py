"""Process 1 of a sandbox: starts judged processes one after the other and says how each ended.

Invariants: it holds nothing a judged process may not know (no expected value, no later input); the control socket is closed before
judged code runs; when a judged process ends, everything it started is killed and reaped before the end is reported.

`supervise` returns in the judged child only, with what the boot script calls last: an exception, an exit code, threads and `atexit`
have the meaning they have in any program.
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import sys

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Plan = dict[str, Any]

CHANNEL = 3
"""Where a judged process finds its channel, if it has one."""
ISOLATED = os.getpid() == 1
_KILL = 9  # importing signal brings enum, and doubles the start of a run


def supervise(control: _socket.socket) -> Callable[[], None]:
    _say(control, "ready")
    gc.freeze()  # so that no child copies what it never touches
    used = False
    while True:
        plan, fds = _next(control)
        if used and not _emptied(plan):
            _say(control, "error the scratch space cannot be emptied")
            os._exit(1)
        used = True
        pid = os.fork()
        if not pid:
            return _become(plan, fds, control)
        for fd in fds:
            os.close(fd)
        _, status, usage = os.wait4(pid, 0)
        _end_all()
        code = os.waitstatus_to_exitcode(status)
        _say(control, f"done {code} {usage.ru_maxrss} {usage.ru_utime + usage.ru_stime:.6f}")


def _say(control: _socket.socket, text: str) -> None:
    data = text.encode()
    control.sendall(len(data).to_bytes(4, "big") + data)


def _next(control: _socket.socket) -> tuple[Plan, list[int]]:
    """The next job and the open files that came with it; ends this process when there is none."""
    head, more, _, _ = control.recvmsg(4, 1024)
    fds = [
        int.from_bytes(data[i : i + 4], sys.byteorder)
        for level, kind, data in more
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for i in range(0, len(data) - 3, 4)
    ]
    body = _receive(control, int.from_bytes(_receive(control, 4 - len(head), head), "big"))
    return marshal.loads(body), fds


def _receive(control: _socket.socket, n: int, have: bytes = b"") -> bytes:
    parts = [have]
    while n:
        part = control.recv(min(n, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _become(plan: Plan, fds: list[int], control: _socket.socket) -> Callable[[], None]:
    """Turn this child into the judged process. Until it says so, what goes wrong is not the judged code's fault."""
    import _sitebuiltins  # the interpreter starts without site, which would bring exit and quit
    import builtins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
    names: dict[str, Any] = {}
    for name, code in plan["modules"]:  # later modules import earlier ones under their own names
        module = type(sys)(name)
        sys.modules[name] = module
        names = module.__dict__
        names["__builtins__"] = dict(builtins.__dict__)  # judged code may replace the builtins: its own, not these
        exec(code, names)
    _say(control, "began")
    control.close()
    for to, fd in enumerate(fds):  # what came has numbers from 3 up, and 3 is the last target
        if fd != to:
            os.dup2(fd, to, inheritable=to < CHANNEL)
    if len(fds) > CHANNEL:
        os.set_inheritable(CHANNEL, False)
    os.closerange(len(fds), 4096)
    os.setsid()
    _drop(plan)
    os.makedirs(plan["cwd"], exist_ok=True)
    os.chdir(plan["cwd"])
    for name, text in plan["files"].items():
        if "/" in name:
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    sys.path[:0] = [plan["cwd"]]
    sys.path += plan["paths"]
    found: Callable[[], None] = names["run"](plan)
    return found


def _drop(plan: Plan) -> None:
    """Limits and the unprivileged user; from here on this process can win nothing back."""
    import resource

    for name, most in plan["limits"].items():
        what = getattr(resource, name)
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    if plan["uid"] is not None:
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])


def _emptied(plan: Plan) -> bool:
    """Whether the scratch space could be emptied, in a child with the judged process's rights."""
    pid = os.fork()
    if not pid:
        try:
            _drop(plan)
            for place in plan["scratch"]:
                _empty(place)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _empty(root: str) -> None:
    for entry in os.scandir(root):
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            continue  # a mount of ours
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            _empty(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def _end_all() -> None:
    """Kill and reap whatever a judged process left behind."""
    while True:
        if ISOLATED:
            try:  # everything in the sandbox but this process
                os.kill(-1, _KILL)
            except ProcessLookupError:
                return
        else:
            for pid in _descendants():
                os.kill(pid, _KILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _descendants() -> list[int]:
    """Without a process namespace: what this process, their subreaper, has below it."""
    found, todo = [], [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    new = [int(child) for child in file.read().split()]
                found += new
                todo += new
        except FileNotFoundError:  # it has just ended
            continue
    return found
