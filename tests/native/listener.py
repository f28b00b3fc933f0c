"""The exporter's end of the socket as tests see it: every packet, parsed by argus_core.wire."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench.seqpacket_server import SeqpacketServer

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray


@dataclass
class Connection:
    """What came over one connection."""

    hello: wire.Hello
    names: dict[int, str] = field(default_factory=dict)
    batches: list[KernelArray] = field(default_factory=list)
    states: list[wire.ChannelState] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    dropped: int = 0
    types: Counter[str] = field(default_factory=Counter)
    ended: bool = False

    @property
    def kernels(self) -> KernelArray:
        return np.concatenate(self.batches) if self.batches else np.empty(0, KERNEL_DTYPE)

    @property
    def reasons(self) -> list[str]:
        """Reason of each state, in order; empty text for up."""
        return ["" if state.up else self.names[state.reason_id] for state in self.states]


class Listener:
    """Accepts producers and keeps what they send. `paused` until `resume`: reads nothing."""

    def __init__(self, path: Path, *, paused: bool = False) -> None:
        self.connections: list[Connection] = []
        self.failures: list[Exception] = []
        self._changed = threading.Condition()
        self._reading = threading.Event()
        if not paused:
            self._reading.set()
        self._server = SeqpacketServer(path, self._read)

    def wait_unread(self, size: int, timeout_s: float = 60.0) -> None:
        """Until a peer has sent so many bytes that nobody has read."""
        limit = time.monotonic() + timeout_s
        while not any(_unread(peer) >= size for peer in list(self._server.peers)):
            assert time.monotonic() < limit, f"no peer has sent {size} bytes"
            time.sleep(0.01)

    def resume(self) -> None:
        self._reading.set()

    def close(self) -> None:
        """As when the exporter dies: its end of every connection is closed."""
        self._reading.set()
        self._server.close()

    def wait_ended(self, count: int = 1, timeout_s: float = 20.0) -> list[Connection]:
        """The first `count` connections, once their producers have hung up."""
        with self._changed:
            there = self._changed.wait_for(
                lambda: self.failures or sum(c.ended for c in self.connections) >= count, timeout_s
            )
        assert there and not self.failures, f"not {count} ended connections: {self.failures}"
        return self.connections[:count]

    def wait_for_kernels(self, timeout_s: float = 20.0) -> None:
        with self._changed:
            there = self._changed.wait_for(lambda: any(c.batches for c in self.connections), timeout_s)
        assert there, "no kernel came"

    def _read(self, peer: socket.socket) -> None:
        connection: Connection | None = None
        self._reading.wait()
        try:
            while packet := peer.recv(wire.MAX_MESSAGE_BYTES + 1):
                for header, payload in wire.messages(packet):
                    connection = self._handle(connection, header, payload)
        except OSError:
            pass
        except Exception as error:  # a packet that is not ours fails the test, not this thread
            self.failures.append(error)
        with self._changed:
            if connection is not None:
                connection.ended = True
            self._changed.notify_all()

    def _handle(self, connection: Connection | None, header: wire.Header, payload: memoryview) -> Connection:
        if connection is None:
            assert header.type is wire.MessageType.HELLO, f"first message is {header.type.name}"
            connection = Connection(next(wire.Hello.unpack_all(payload)))
            with self._changed:
                self.connections.append(connection)
        connection.sequence.append(header.sequence)
        connection.dropped = header.dropped
        connection.types[header.type.name] += header.count
        match header.type:
            case wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(payload):
                    connection.names[name.name_id] = wire.decode_text(name.text)
            case wire.MessageType.KERNELS:
                batch = np.frombuffer(payload, KERNEL_DTYPE).copy()
                unknown = set(batch["name_id"].tolist()) - connection.names.keys()
                assert not unknown, f"kernels with names that were never bound: {unknown}"
                connection.batches.append(batch)
                with self._changed:
                    self._changed.notify_all()
            case wire.MessageType.CHANNELS:
                for state in wire.ChannelState.unpack_all(payload):
                    assert state.up or state.reason_id in connection.names
                    connection.states.append(state)
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
