"""The exporter's end of the socket as tests see it: every packet, parsed by argus_core.wire."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import termios
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.gpu_day import collector
from bench.gpu_day.collector import Collector

from argus_core import wire


@dataclass
class Connection(collector.Connection):
    """What came over one connection, and in which packets."""

    sequence: list[int] = field(default_factory=list)
    unsent: int = 0
    """Records that the sender dropped, by its last header."""
    types: Counter[str] = field(default_factory=Counter)
    operations: list[wire.NcclOperation] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """Reason of each state, in order; empty text for up."""
        return ["" if state.up else self.names[state.reason_id] for state in self.states]


class Listener(Collector):
    """Accepts producers and keeps what they send. `paused` until `resume`: reads nothing."""

    connections: list[Connection]

    def __init__(self, path: Path, *, paused: bool = False) -> None:
        self._reading = threading.Event()
        if not paused:
            self._reading.set()
        super().__init__(path, Connection)

    def wait_unread(self, size: int, timeout_s: float = 60.0) -> None:
        """Until a peer has sent so many bytes that nobody has read."""
        there = self.wait(lambda: any(_unread(peer) >= size for peer in list(self._server.peers)), timeout_s)
        assert there, f"no peer has sent {size} bytes"

    def resume(self) -> None:
        self._reading.set()

    def close(self) -> None:
        """As when the exporter dies: its end of every connection is closed."""
        self._reading.set()
        super().close()

    def wait_ended(self, count: int = 1) -> list[Connection]:
        """The first `count` connections, once their producers have hung up."""
        there = self.wait(lambda: self.failures or sum(c.ended for c in self.connections) >= count)
        assert there and not self.failures, f"not {count} ended connections: {self.failures}"
        return self.connections[:count]

    def wait_for_kernels(self) -> None:
        assert self.wait(self.with_kernels), "no kernel came"

    def _read(self, peer: socket.socket) -> None:
        self._reading.wait()
        super()._read(peer)

    def _handle(self, connection: Connection | None, header: wire.Header, payload: memoryview) -> Connection:
        assert connection is not None or header.type is wire.MessageType.HELLO, header.type.name
        connection = super()._handle(connection, header, payload)
        connection.sequence.append(header.sequence)
        connection.unsent = header.dropped
        connection.types[header.type.name] += header.count
        if header.type is wire.MessageType.NCCL_OPERATIONS:
            connection.operations += wire.NcclOperation.unpack_all(payload)
        if header.type is wire.MessageType.KERNELS:
            unknown = set(connection.parts[-1]["name_id"].tolist()) - connection.names.keys()
            assert not unknown, f"kernels with names that were never bound: {unknown}"
        assert all(state.up or state.reason_id in connection.names for state in connection.states)
        return connection


def _unread(peer: socket.socket) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(peer, termios.FIONREAD, size)
    return size[0]


@contextlib.contextmanager
def listening(path: Path, *, paused: bool = False) -> Iterator[Listener]:
    listener = Listener(path, paused=paused)
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)
