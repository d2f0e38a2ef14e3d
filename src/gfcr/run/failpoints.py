"""Failpoints: places where a test makes the process die or the disk fill up.

Invariants: off unless GFCR_FAILPOINT is set when this module is imported (or `arm` is called), and then one comparison a
call; every boundary of a commit has one, so that `names()` enumerates all the ways a commit can be cut.

GFCR_FAILPOINT="name:mode" or "name:mode:nth" (nth passage, from 1). Modes: `exit` ends the process at once with code 137,
`torn` first cuts the file in question to half its length, `enospc` raises OSError(ENOSPC).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gfcr.errors import ConfigError

_WRITE = ("before_write", "after_write", "after_fsync", "after_rename", "after_dirsync")
_TORN = ("after_write",)  # later the bytes are durable: a crash cannot tear them any more


def _points() -> dict[str, tuple[str, ...]]:
    """Name -> modes that can happen there."""
    out: dict[str, tuple[str, ...]] = {}
    for file in ("recipe", "payload", "checkpoint"):
        for place in _WRITE:
            out[f"{file}.{place}"] = ("exit", "enospc", "torn") if place in _TORN else ("exit", "enospc")
    for place in ("create.before_commit", "create.after_commit", "rows.before_commit", "rows.after_commit"):
        out[place] = ("exit", "enospc")
    for file in ("metrics", "card"):
        out[f"{file}.before_write"] = ("exit", "enospc")
        out[f"{file}.after_write"] = ("exit", "enospc", "torn")
    out["card.after_rename"] = ("exit", "enospc")
    out["collect.before_unlink"] = out["collect.after_unlink"] = ("exit", "enospc")
    return out


_POINTS = _points()
_armed: tuple[str, str, int] | None = None
_seen = 0


def names() -> dict[str, tuple[str, ...]]:
    """Every failpoint with the modes that can happen there."""
    return dict(_POINTS)


def arm(spec: str | None) -> None:
    """Arm one failpoint ("name:mode[:nth]"), or none. Raises ConfigError for an unknown name or mode."""
    global _armed, _seen
    _seen = 0
    if not spec:
        _armed = None
        return
    name, mode, nth = [*spec.split(":"), "1", ""][:3]
    if name not in _POINTS or mode not in _POINTS[name] or not nth.isdigit() or int(nth) < 1:
        raise ConfigError(
            f"GFCR_FAILPOINT = {spec!r} names no failpoint, mode or passage",
            "use name:mode[:nth] with a name and mode of gfcr.run.failpoints.names(), or unset it",
        )
    _armed = (name, mode, int(nth))


def hit(name: str, path: Path | None = None) -> None:
    """Pass the failpoint `name`; `path` is the file that `torn` cuts (of a directory, its largest)."""
    if _armed is None:
        return
    _fire(name, path)


def _fire(name: str, path: Path | None) -> None:
    global _seen
    assert _armed is not None
    armed, mode, nth = _armed
    if name != armed:
        return
    _seen += 1
    if _seen != nth:
        return
    if mode == "enospc":
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (failpoint {name})", str(path or name))
    if mode == "torn" and path is not None:
        if path.is_dir():
            path = max((inner for inner in path.iterdir() if inner.is_file()), key=lambda inner: inner.stat().st_size)
        os.truncate(path, path.stat().st_size // 2)
    os._exit(137)


arm(os.environ.get("GFCR_FAILPOINT"))
