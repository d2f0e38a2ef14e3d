"""Questions and answers between two sides, one socket, strictly nested.

A frame is four bytes of length and JSON text: `["?", op, ...]` asks, `["=", ...]` answers, `["!", ...]` says what went wrong.
Invariant: what comes in is parsed as data and bounded in length; nothing of it is executed.
"""

from __future__ import annotations

import _socket
import os
from abc import ABCMeta, abstractmethod

from gfcr.sandbox.inside.wire import from_text, to_text

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any


class Fault(Exception):
    """What the judged code did wrong."""

    def __init__(self, kind: str, name: str, text: str, where: tuple[str, int] | None = None) -> None:
        """`kind`: `syntax` or `runtime`; `name` of the error's class; `where`: file and line of the answer."""
        super().__init__(kind, name, text, where)
        self.kind, self.name, self.text, self.where = kind, name, text, where


class Gone(BaseException):
    """The other side closed the line, or sent what is no frame."""


class Link:
    """One side, which sends and receives."""

    def __init__(self, fd: int, longest: int) -> None:
        """`longest`: of a frame, in bytes."""
        self.socket = _socket.socket(fileno=fd)
        self.longest = longest
        self.owner = os.getpid()

    def send(self, message: list[Any]) -> None:
        self._own()
        data = to_text(message).encode("ascii")
        if len(data) > self.longest:
            raise Fault("runtime", "ValueError", f"a value of {len(data)} characters; at most {self.longest} are taken")
        try:
            self.socket.sendall(len(data).to_bytes(4, "big") + data)
        except OSError:
            raise Gone("the other side closed the line") from None

    def receive(self) -> list[Any] | None:
        """The next message; None when the other side has closed the line between two."""
        self._own()
        head = self._read(4)
        if not head:
            return None
        length = int.from_bytes(head, "big")
        if length > self.longest:
            raise Gone("something that is no answer came on the channel")
        try:
            message = from_text(self._read(length).decode("ascii"))
        except (ValueError, RecursionError):
            raise Gone("something that is no answer came on the channel") from None
        if type(message) is not list or not message or message[0] not in ("?", "=", "!"):
            raise Gone("something that is no answer came on the channel")
        return message

    def _own(self) -> None:
        """A fork that comes back here would answer a second time: it ends."""
        if os.getpid() != self.owner:
            os._exit(0)

    def _read(self, n: int) -> bytes:
        parts, left = [], n
        while left:
            try:
                part = self.socket.recv(min(left, 1 << 20))
            except OSError:
                part = b""
            if not part:
                if left == n and n == 4:
                    return b""
                raise Gone("the other side closed the line in the middle of an answer")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class Answering(Link, metaclass=ABCMeta):
    """One side that is asked."""

    def respond(self, message: list[Any]) -> None:
        try:
            said = ["=", *self.answer(message[1], message[2:])]
        except Gone:
            raise
        except BaseException as error:  # SystemExit, KeyboardInterrupt: all of it is the answering code's doing
            said = ["!", *self.fault(error)]
        try:
            self.send(said)
        except (Fault, ValueError, RecursionError, MemoryError) as error:
            self.send(["!", *self.fault(error)])

    def serve(self) -> None:
        """Answer until the line is closed."""
        while (message := self.receive()) is not None:
            self.respond(message)

    @abstractmethod
    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        """The parts of the answer to a question. What it raises is told as a fault."""

    @abstractmethod
    def fault(self, error: BaseException) -> list[Any]:
        """What the other side is told of an error here."""


class Peer(Answering):
    """One side that asks and is asked."""

    def ask(self, op: str, *rest: Any) -> list[Any]:
        """The answer's parts; questions that come meanwhile are answered. Raises what `error` makes of a fault."""
        self.send(["?", op, *rest])
        while True:
            message = self.receive()
            if message is None:
                raise Gone("the other side closed the line")
            if message[0] == "=":
                return message[1:]
            if message[0] == "!":
                raise self.error(message[1:])
            self.respond(message)

    @abstractmethod
    def error(self, parts: list[Any]) -> BaseException:
        """What to raise here for a fault of the other side."""
