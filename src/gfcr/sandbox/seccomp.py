"""A system call filter for judged code, as the bytes that bubblewrap's `--seccomp` takes (classic BPF).

Invariants: denies, never kills for a name alone: a denied call fails with EPERM as it would for want of a privilege; only a call of
another architecture ends the process. What is denied either crosses the sandbox's walls by other means than files, network and
process ids (kernel keyrings, vsock, io_uring, ptrace and process_vm of siblings), takes memory that no limit counts (memfd, shmget),
or is kernel surface that no judged program needs. A processor that is not in TABLES gets no filter; the other walls stand.
"""

from __future__ import annotations

import platform
import struct
from functools import cache

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_LOAD, _EQ, _GE, _SET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW* flags of clone(2)."""
_FAMILIES = (1, 2, 10)
"""unix, inet, inet6: all inside the sandbox's own network namespace. Others (vsock, netlink, alg) are not."""

_X86_64 = {
    "arch": 0xC000003E,
    "clone": 56, "clone3": 435, "kill": 62, "socket": 41,
    "denied": (
        101, 134, 153, 154, 155, 159, 161, 163, 164, 165, 166, 167, 168, 169, 172, 173, 174, 175, 176, 177, 178, 179, 180, 212, 227,
        237, 238, 239, 246, 248, 249, 250, 256, 272, 278, 279, 298, 300, 303, 304, 305, 308, 310, 311, 312, 313, 319, 320, 321, 323,
        425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 447, 29, 30, 103, 135,
    ),
}  # fmt: skip
"""Denied, in this order of kinds: ptrace, uselib, vhangup, modify_ldt, pivot_root, adjtimex, chroot, acct, settimeofday, mount, umount2,
swapon, swapoff, reboot, iopl, ioperm, module calls, quotactl, nfsservctl, lookup_dcookie, clock_settime, NUMA policy, kexec, keyrings,
unshare, vmsplice, move_pages, perf_event_open, fanotify_init, file handles, clock_adjtime, setns, process_vm_*, kcmp, memfd_create,
bpf, userfaultfd, io_uring, the new mount calls, pidfd_getfd, memfd_secret, shmget, shmat, syslog, personality."""
_AARCH64 = {
    "arch": 0xC00000B7,
    "clone": 220, "clone3": 435, "kill": 129, "socket": 198,
    "denied": (
        117, 41, 171, 51, 89, 170, 40, 39, 224, 225, 142, 105, 106, 273, 60, 18, 112, 235, 236, 237, 238, 239, 104, 294, 217, 218, 219,
        97, 75, 241, 262, 264, 265, 266, 268, 270, 271, 272, 279, 280, 282, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 447,
        194, 196, 116, 92, 58,
    ),
}  # fmt: skip
TABLES = {"x86_64": _X86_64, "aarch64": _AARCH64}


@cache
def program(machine: str | None = None) -> bytes | None:
    """The filter for a processor (default: this one); None where there is no table."""
    table = TABLES.get(machine or platform.machine())
    if table is None:
        return None
    number, arch, argument = 0, 4, 16  # offsets in struct seccomp_data; the low half of the first argument
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, arch),
        (_EQ, 1, 0, int(table["arch"])),  # type: ignore[call-overload]
        (_RET, 0, 0, _KILL),
        (_LOAD, 0, 0, number),
        (_GE, 0, 1, 0x40000000),  # the x32 numbers of x86_64 would go round the table
        (_RET, 0, 0, _ERRNO | _EPERM),
    ]
    for denied in table["denied"]:  # type: ignore[attr-defined]
        code += [(_EQ, 0, 1, denied), (_RET, 0, 0, _ERRNO | _EPERM)]
    code += [(_EQ, 0, 1, int(table["clone3"])), (_RET, 0, 0, _ERRNO | _ENOSYS)]  # type: ignore[call-overload]
    # clone with a namespace flag; kill of the supervisor; sockets of other families
    code += [(_EQ, 0, 4, int(table["clone"])), (_LOAD, 0, 0, argument), (_SET, 0, 1, _NEW_NAMESPACES)]  # type: ignore[call-overload]
    code += [(_RET, 0, 0, _ERRNO | _EPERM), (_RET, 0, 0, _ALLOW)]
    code += [(_EQ, 0, 4, int(table["kill"])), (_LOAD, 0, 0, argument), (_EQ, 0, 1, 1)]  # type: ignore[call-overload]
    code += [(_RET, 0, 0, _ERRNO | _EPERM), (_RET, 0, 0, _ALLOW)]
    code += [(_EQ, 0, 2 + len(_FAMILIES), int(table["socket"])), (_LOAD, 0, 0, argument)]  # type: ignore[call-overload]
    code += [(_EQ, len(_FAMILIES) - i, 0, family) for i, family in enumerate(_FAMILIES)]
    code += [(_RET, 0, 0, _ERRNO | _EAFNOSUPPORT), (_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in code)
