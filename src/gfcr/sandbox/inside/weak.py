"""Executed before the supervisor where there are no walls: what a plain process can still give up."""

from __future__ import annotations

import ctypes
import os

_CLONE_NEWUSER, _CLONE_NEWNET, _PR_SET_CHILD_SUBREAPER = 0x10000000, 0x40000000, 36
_libc = ctypes.CDLL(None)
if _libc.unshare(_CLONE_NEWNET if os.getuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET):
    pass  # the kernel does not let us: the network stays, as the documentation says
_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
