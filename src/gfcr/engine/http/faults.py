"""What goes wrong between an engine and its servers, by kind. Invariants: every fault has one kind and is counted once; tokens that
were sampled and that no chunk gives back are counted under the kind that lost them."""

from __future__ import annotations

import threading
from collections import Counter

from gfcr.engine.contract import Losses
from gfcr.errors import GfcrError

CONNECT = "connect"
"""No connection."""
STATUS = "status"
"""A status of 429 or 5xx."""
REFUSED = "refused"
"""The server says the request is wrong (4xx): repeating it does not help."""
TIMEOUT = "timeout"
"""Silence for longer than allowed; bytes that come to nothing are silence too."""
TRUNCATED = "truncated"
"""The reply ended before its end."""
BAD_JSON = "bad_json"
"""What came is no JSON, or holds NaN or infinity, which are none."""
SHAPE = "shape"
"""JSON of another form than was agreed, or ids and log-probabilities of unequal number."""
COUNT = "count"
"""The server's running count of sampled tokens is not what came: something was dropped, doubled or reordered."""
LOGPROB = "logprob"
"""A log-probability that is above 0, or stands for NaN or minus infinity, or belongs to another token."""
VOCABULARY = "vocabulary"
"""A token id that the model does not have."""
VERSION = "version"
"""Tokens of other weights than those published."""
FOREIGN = "foreign"
"""A reply to another request, or a second one."""
ENDING = "ending"
"""An end that does not fit the tokens: a stop without an end token, a length that was not reached."""
ABORTED = "aborted"
"""The server ended it, and nobody had asked for that."""
NO_SERVER = "no_server"
"""No server is left, or came back in time."""
WEIGHTS = "weights"
"""A server that is back answers with other weights, also after they were loaded again."""
COUNTERS = "counters"
"""The server's counter grew by less than its replies brought."""
UNSEEN = "unseen"
"""Not a fault but a reason for tokens: in the server's counter, in no reply."""


class Fault(Exception):
    """One thing that went wrong. `again`: another attempt may help."""

    def __init__(self, kind: str, why: str, again: bool = True) -> None:
        why = why.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair is no text for a database
        super().__init__(kind, why, again)
        self.kind, self.why, self.again = kind, why, again

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


class ServersLost(GfcrError):
    """No server is left that could answer with the published weights."""


class Tally:
    """Counts of faults, and of tokens they lost. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self.lost = 0
        """Tokens lost since the beginning."""

    def add(self, kind: str, tokens: int = 0) -> None:
        """Count a fault that lost this many sampled tokens."""
        with self._lock:
            self._all[kind] += 1
        self.lose(kind, tokens)

    def lose(self, kind: str, tokens: int) -> None:
        """Count tokens that no chunk gives back."""
        with self._lock:
            self.lost += tokens
            if tokens:
                self._tokens[kind] += tokens

    def all(self) -> dict[str, int]:
        """Faults since the beginning, by kind."""
        with self._lock:
            return dict(sorted(self._all.items()))

    def take(self) -> Losses:
        """What is new since the last call."""
        with self._lock:
            new, self._told = self._all - self._told, self._all.copy()
            tokens, self._tokens = self._tokens, Counter()
        return Losses(dict(sorted(new.items())), dict(sorted(tokens.items())))
