"""What runs in a worker process: receive one object, then answer calls of its methods until the pipe closes.

Invariants: what the object prints goes nowhere; the clock of a call starts when its work starts, and the parent is told; an answer that
cannot travel, or is larger than ANSWER_BYTES, is an error in words and never half an answer.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

ANSWER_BYTES = 16 * 1024 * 1024
"""Longest answer, pickled."""
ERROR_CHARACTERS = 2_000
"""Of an exception's text."""
in_child = False
"""Whether this process is such a worker: there a script is loaded for its functions, and must start no run."""


def serve(handle: int) -> None:
    """The worker. `handle`: file descriptor of its end of the pipe."""
    global in_child
    in_child = True
    pipe = Connection(handle)
    try:
        inner = pickle.loads(pipe.recv_bytes())
        if (warm := getattr(inner, "warm", None)) is not None:
            warm()  # imports that are no work of the first call
    except Exception as error:
        pipe.send(("error", f"it cannot be loaded in a process of its own: {_words(error)}", 0.0, 0))
        return
    _silence()
    pipe.send(("ready", "", 0.0, resident_bytes(os.getpid())))
    while True:
        try:
            method, args = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        except Exception as error:  # the call cannot be read here: its task holds what this process cannot import
            pipe.send_bytes(b"started")
            pipe.send(("error", f"the call cannot be read in a process of its own: {_words(error)}", 0.0, 0))
            continue
        pipe.send_bytes(b"started")
        started = perf_counter()
        try:
            kind, value = "value", getattr(inner, method)(*args)
        except Exception as error:
            kind, value = "error", _words(error)
        pipe.send_bytes(_answer(kind, value, perf_counter() - started))


def _answer(kind: str, value: Any, seconds: float) -> bytes:
    resident = resident_bytes(os.getpid())
    try:
        answer = pickle.dumps((kind, value, seconds, resident))
        if len(answer) <= ANSWER_BYTES:
            return answer
        text = f"its answer has {len(answer):,} bytes, at most {ANSWER_BYTES:,} travel"
    except Exception as error:
        text = f"its answer cannot travel: {_words(error)}"
    return pickle.dumps(("error", text, seconds, resident))


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an exception of the object's own, that cannot even say what it is
        text = "(it has no text)"
    return f"{type(error).__name__}: {text[:ERROR_CHARACTERS]}"


def _silence() -> None:
    """A flood of output must not fill the run's log, nor block on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def resident_bytes(pid: int) -> int:
    """Memory a process holds; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
