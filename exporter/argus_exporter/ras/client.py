"""Asks the RAS service of a job.

A question is a few lines over TCP (client_support.cc of NCCL): hello, how long RAS may collect, the format,
and STATUS, which RAS answers once it has heard its peers or given them up. The format comes before STATUS
because it tells the version: what knows no JSON is older than 2.28.7, and is not asked (versions.py).

All processes of a user on a host may listen on one port, whatever their jobs: the kernel picks who answers.
So an answer counts only once it names a process or communicator that the caller knows; else another
connection is made, and picks anew.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from argus_exporter.ras.errors import RasFailed, RasRefused
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.report import Report
from argus_exporter.ras.text_answer import parse_text
from argus_exporter.ras.versions import WITH_JSON

TRIES: Final = 8
"""Connections until an answer of the own job; beside one other job of as many processes, 1 in 256 fails."""
LARGEST_ANSWER: Final = 64 << 20
"""Bytes; 10,240 ranks in four communicators each are about 25 MB."""
_LONGEST_LINE: Final = 1024
"""Of a reply, as NCCL takes of a command."""


@dataclass(frozen=True)
class Address:
    """Where RAS listens."""

    host: str = "localhost"
    port: int = 28028

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what NCCL_RAS_ADDR has: HOST:PORT or [IPv6]:PORT.

        Raises:
            ValueError: it is no address.
        """
        host, colon, port = text.strip().rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (
            not colon
            or not bare
            or (":" in bare) != (bare != host)
            or not port.isascii()
            or not port.isdigit()
        ):
            raise ValueError(f"{text[:80]!r} is no address: write HOST:PORT or [IPv6]:PORT")
        if not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text[:80]!r} has no port: allowed are 1 to 65535")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Patience:
    """Seconds to wait, as `ncclras` does.

    Attributes:
        connect_s, reply_s: for a connection and for each short reply; RAS needs microseconds.
        collect_s: that RAS may take to hear its peers.
        spare_s: on top, until the answer is here as a whole.
    """

    connect_s: float = 1.0
    reply_s: float = 1.0
    collect_s: int = 5
    spare_s: float = 5.0


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        report: what it says.
        is_own: whether it names a process or communicator of the job that was asked for. Only text, which
            need not name them, is handed out without.
    """

    report: Report
    is_own: bool


@dataclass(frozen=True)
class RasClient:
    """Asks at one address.

    Attributes:
        address: where.
        unsafe: also ask NCCL before 2.28.7, in text.
        patience: how long.
    """

    address: Address
    unsafe: bool = False
    patience: Patience = field(default_factory=Patience)

    def ask(self, is_own: Callable[[Report], bool]) -> Answer:
        """The answer of the own job; blocks, at worst for eight times all of `patience`.

        Raises:
            RasFailed: nobody listens, no answer in time, one that is none, or only other jobs'.
            RasRefused: that NCCL is not asked.
        """
        for _ in range(TRIES):
            report = self._ask_once()
            own = is_own(report)
            if own or report.from_text:
                return Answer(report, own)
        raise RasFailed(
            f"{TRIES} answers at {self.address} are of other processes than asked for: another job listens "
            "there, or this one has no communicator yet; give each job a port of its own by NCCL_RAS_ADDR"
        )

    def _ask_once(self) -> Report:
        wait = self.patience
        with self._told_plainly(), self._connected() as connection:
            hello = connection.asks("CLIENT PROTOCOL 2")
            if not hello.upper().startswith("SERVER PROTOCOL "):
                raise RasFailed(f"{self.address} is no RAS of NCCL: it greets with {hello[:40]!r}")
            if (reply := connection.asks(f"TIMEOUT {wait.collect_s}")) != "OK":
                raise RasFailed(
                    f"RAS at {self.address} takes no timeout of {wait.collect_s} s: {reply[:80]!r}"
                )
            as_json = (reply := connection.asks("SET FORMAT json")) == "OK"
            if not as_json and not reply.startswith("ERROR: Unknown command"):
                raise RasFailed(f"RAS at {self.address} gives no JSON: {reply[:80]!r}")
            if not as_json and not self.unsafe:
                raise RasRefused(
                    f"the NCCL at {self.address} has no JSON, so it is older than {WITH_JSON} and is not "
                    "asked: questions have crashed jobs of such versions; --unsafe asks it all the same"
                )
            connection.says("STATUS" if as_json else "VERBOSE STATUS")
            answer = connection.rest(wait.collect_s + wait.spare_s)
        if not answer:
            raise RasFailed(f"RAS at {self.address} closed the connection without an answer")
        if answer.startswith("ERROR"):
            raise RasFailed(f"RAS at {self.address} refused: {answer.splitlines()[0][:200]!r}")
        try:
            return parse_json(answer) if as_json else parse_text(answer)
        except RasFailed as error:
            raise RasFailed(f"RAS at {self.address}: {error}") from error

    @contextlib.contextmanager
    def _connected(self) -> Iterator[_Connection]:
        with socket.create_connection(
            (self.address.host, self.address.port), self.patience.connect_s
        ) as opened:
            yield _Connection(opened, self.patience.reply_s)

    @contextlib.contextmanager
    def _told_plainly(self) -> Iterator[None]:
        try:
            yield
        except ConnectionRefusedError as error:
            raise RasFailed(
                f"nobody listens at {self.address}: RAS is off there (NCCL_RAS_ENABLE=0), at another address "
                "(NCCL_RAS_ADDR), or no process has a communicator yet"
            ) from error
        except TimeoutError as error:
            raise RasFailed(f"{self.address} did not answer in time ({error})") from error
        except OSError as error:
            raise RasFailed(f"{self.address} cannot be asked: {error.strerror or error}") from error


class _Connection:
    """Lines to RAS and back."""

    def __init__(self, opened: socket.socket, reply_s: float) -> None:
        self._socket = opened
        self._reply_s = reply_s
        self._received = bytearray()
        self._last = ""

    def says(self, line: str) -> None:
        self._last = line
        self._socket.settimeout(self._reply_s)
        self._socket.sendall(line.encode() + b"\n")

    def asks(self, line: str) -> str:
        """The reply, a line; what came of it where the other side closes before its end.

        Raises:
            OSError: no reply in time, or the connection broke.
        """
        self.says(line)
        until = time.monotonic() + self._reply_s
        while b"\n" not in self._received and len(self._received) < _LONGEST_LINE:
            if not self._receive(until, self._reply_s):
                if not self._received:
                    raise ConnectionError(f"it closed the connection on {line!r}")
                break
        reply, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return reply.decode(errors="replace").rstrip("\r")

    def rest(self, limit_s: float) -> str:
        """All until RAS closes.

        Raises:
            OSError: it did not within `limit_s`, or the connection broke.
            RasFailed: there is too much of it.
        """
        until = time.monotonic() + limit_s
        while self._receive(until, limit_s):
            if len(self._received) > LARGEST_ANSWER:
                raise RasFailed(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB, which no job's is")
        return self._received.decode(errors="replace")

    def _receive(self, until: float, limit_s: float) -> bool:
        """Whether anything came before the other side closed."""
        left = until - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            piece = self._socket.recv(1 << 20)
        except TimeoutError as error:
            raise TimeoutError(f"{self._last}: {limit_s:g} s") from error
        self._received += piece
        return bool(piece)
