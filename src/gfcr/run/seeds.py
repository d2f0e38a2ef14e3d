"""Randomness of a run. Invariants: every draw is a pure function of (run seed, purpose, names, position), so neither batch
composition nor order nor a fork or a resume changes a draw; one uniform per token position of a stream.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np

_U64 = np.uint64
_GOLDEN, _M1, _M2 = _U64(0x9E3779B97F4A7C15), _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)


def stream_key(run_seed: int, purpose: str, *names: str | int) -> int:
    """The 64-bit key of a random stream, e.g. `stream_key(seed, "sample", group_id, member, branch)`."""
    text = "\x1f".join([str(run_seed), purpose, *map(str, names)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=4096)
def _begun(run_seed: int, purpose: str, name: str | int) -> blake2b:
    return blake2b(f"{run_seed}\x1f{purpose}\x1f{name}".encode(), digest_size=8)


def sub_stream_key(run_seed: int, purpose: str, name: str | int, *names: str | int) -> int:
    """`stream_key(run_seed, purpose, name, *names)`, at less cost for many streams under one name."""
    digest = _begun(run_seed, purpose, name).copy()
    digest.update("".join([f"\x1f{n}" for n in names]).encode())
    return int.from_bytes(digest.digest(), "little")


def generator(run_seed: int, purpose: str, *names: str | int) -> np.random.Generator:
    """A numpy generator on its own stream, for draws that are not per token."""
    return np.random.Generator(np.random.Philox(key=stream_key(run_seed, purpose, *names)))


def _mix(x: np.ndarray) -> np.ndarray:
    """Finaliser of SplitMix64 (Steele et al. 2014)."""
    x = (x ^ (x >> _U64(30))) * _M1
    x = (x ^ (x >> _U64(27))) * _M2
    return x ^ (x >> _U64(31))


def uniforms(keys: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """float64[...] in [0, 1): the uniform of each (key, token position); `keys` uint64, `positions` integer, broadcast."""
    with np.errstate(over="ignore"):
        state = _mix(np.asarray(keys, _U64)) + (np.asarray(positions).astype(_U64) + _U64(1)) * _GOLDEN
        return (_mix(_mix(state)) >> _U64(11)) * (2.0**-53)
