"""Files that survive a crash, the writer's lock, and what kind of disk this is.

Invariants: a file appears under its name whole and durable, or not at all; one writer per directory, across processes and
within one; a lock dies with its process and is not inherited by forked children.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from gfcr.run import failpoints
from gfcr.run.failures import RunDirectoryError

NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "afs",
        "pvfs2",
        "orangefs",
        "9p",
        "ncpfs",
    )
)
"""File-system types whose locks and fsync depend on another machine; so do `fuse.*` mounts of sshfs, s3 and the like."""
_LOCAL_FUSE = frozenset(("fuse.fuse-overlayfs", "fuseblk", "fuse.ext4", "fuse.ntfs-3g"))
TEMPORARY = ".writing-"
_held: set[tuple[int, int]] = set()


def sync_directory(path: Path) -> None:
    """Make renames and unlinks in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_hash(path: Path) -> tuple[int, str]:
    """(length in bytes, hex blake2b) of a file."""
    digest, length = blake2b(digest_size=32), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            length += len(chunk)
    return length, digest.hexdigest()


Manifest = list[tuple[str, int, str]]
"""(name relative to the directory, length in bytes, hex blake2b) of every file in it, sorted."""


def manifest(folder: Path) -> Manifest:
    """What a directory holds, nested directories included; empty when it does not exist."""
    return sorted((str(path.relative_to(folder)), *file_hash(path)) for path in folder.rglob("*") if path.is_file())


def sync_path(path: Path) -> None:
    """Make a file, or a directory with all its content, durable."""
    if path.is_dir():
        for inner in path.iterdir():
            sync_path(inner)
        sync_directory(path)
        return
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Remove a file or a directory with its content; absent is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_durable(target: Path, write: Callable[[Path], object], name: str) -> None:
    """Let `write` make a temporary file or directory, then fsync, rename to `target`, fsync the directory it lies in. On any
    exception neither remains. `name` is the prefix of the failpoints passed."""
    temporary = target.with_name(TEMPORARY + target.name)
    try:
        failpoints.hit(f"{name}.before_write")
        write(temporary)
        failpoints.hit(f"{name}.after_write", temporary)
        sync_path(temporary)
        failpoints.hit(f"{name}.after_fsync")
        temporary.rename(target)
        failpoints.hit(f"{name}.after_rename")
        sync_directory(target.parent)
        failpoints.hit(f"{name}.after_dirsync")
    except BaseException:
        for path in (temporary, target):
            with suppress(OSError):
                remove(path)
        raise


def replace_file(target: Path, text: str, name: str) -> None:
    """Replace a derived file atomically; not synced, since it can be made again."""
    temporary = target.with_name(TEMPORARY + target.name)
    failpoints.hit(f"{name}.before_write")
    temporary.write_text(text, encoding="utf-8")
    failpoints.hit(f"{name}.after_write", temporary)
    temporary.rename(target)
    failpoints.hit(f"{name}.after_rename")


class WriterLock:
    """A POSIX lock on a file: released by the kernel when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Raises RunDirectoryError when another writer (this process included) holds it."""
        self.path = path
        self._fd = -1
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644) if not self._held_here(path) else -1
        if fd < 0:
            raise self._refusal("this process")
        stat = os.fstat(fd)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(fd, 200).decode(errors="replace").strip()
            os.close(fd)
            raise self._refusal(holder or "another process") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._fd, self._key = fd, (stat.st_dev, stat.st_ino)
        _held.add(self._key)

    @staticmethod
    def _held_here(path: Path) -> bool:
        # closing any descriptor of a file drops this process's POSIX locks on it, so it must not be opened to find out
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) in _held

    def _refusal(self, holder: str) -> RunDirectoryError:
        return RunDirectoryError(
            f"{self.path.parent} is being written by {holder}",
            "wait for that run or end it; to look at the run meanwhile, use RunDirectory.read",
        )

    def release(self) -> None:
        if self._fd >= 0:
            _held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


def filesystem(path: Path, mounts: str = "/proc/mounts") -> str:
    """File-system type at `path`; empty where the system does not tell."""
    try:
        text = Path(mounts).read_text(errors="replace")
    except OSError:
        return ""
    best, kind = -1, ""
    where = str(path.resolve())
    for line in text.splitlines():
        point, found = [*line.split(), "", "", ""][1:3]
        point = point.replace("\\040", " ")
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= best:
            best, kind = len(point), found
    return kind


def is_network(kind: str) -> bool:
    return kind in NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
