"""A RAS server on a port of 127.0.0.1, which speaks as NCCL's does (src/ras/client_support.cc), or worse."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass
class FakeRas:
    """Listens while the block runs.

    Attributes:
        answers: to STATUS, one a connection, the last for ever.
        knows_json: as from 2.28.7 on.
        hello: what it says to the client's.
        silent_after: the command from which on nothing is said; the connection stays open.
        closes_after: the command on which the connection is closed, without a word.
        piece: bytes a write of the answer has.
        stops_at: bytes of the answer after which nothing more comes; the connection stays open.
    """

    answers: Sequence[str] = ("",)
    knows_json: bool = True
    hello: str = "SERVER PROTOCOL 2"
    silent_after: str = ""
    closes_after: str = ""
    piece: int = 1 << 16
    stops_at: int | None = None
    asked: list[str] = field(default_factory=list)
    """Every command of every connection, in their order."""

    def __enter__(self) -> Self:
        self._stopped = threading.Event()
        self._listener = self._connection = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() returns
        with contextlib.suppress(OSError):  # so does whoever waits for a client
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    @property
    def port(self) -> int:
        number: int = self._listener.getsockname()[1]
        return number

    @property
    def statuses(self) -> int:
        """How often it was asked for its status, in either form."""
        return sum(1 for line in self.asked if line.upper().endswith("STATUS"))

    def _serve(self) -> None:
        number = 0
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connection = connection
            with connection, contextlib.suppress(OSError):  # the client went away
                self._talk(connection, self.answers[min(number, len(self.answers) - 1)])
            number += 1

    def _talk(self, connection: socket.socket, answer: str) -> None:
        for raw in connection.makefile("rb"):
            line = raw.decode().rstrip("\r\n")
            self.asked.append(line)
            command = line.upper()
            if self.closes_after and command.startswith(self.closes_after):
                return
            if self.silent_after and command.startswith(self.silent_after):
                self._waits_until_client_leaves(connection)
                return
            if command.startswith("CLIENT PROTOCOL "):
                reply = self.hello
            elif command.startswith("TIMEOUT ") or (command == "SET FORMAT JSON" and self.knows_json):
                reply = "OK"
            elif command in ("STATUS", "VERBOSE STATUS"):
                self._send(connection, answer)
                return
            else:
                reply = f"ERROR: Unknown command {line}"
            connection.sendall(reply.encode() + b"\n")

    def _send(self, connection: socket.socket, answer: str) -> None:
        content = answer.encode()[: self.stops_at]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(content), self.piece):
            connection.sendall(content[start : start + self.piece])
        if self.stops_at is not None:
            self._waits_until_client_leaves(connection)

    def _waits_until_client_leaves(self, connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass
