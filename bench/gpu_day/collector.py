"""The exporter's end of the socket: keeps every record that producers send, for as long as a step runs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray, join
from argus_core.nccl_page import NcclPageReader
from argus_core.shared_page import PageReader
from bench.seqpacket_server import SeqpacketServer


@dataclass
class Connection:
    """What came over one connection."""

    hello: wire.Hello
    page: PageReader | None = None
    nccl: NcclPageReader | None = None
    names: dict[int, str] = field(default_factory=dict)
    spans: list[wire.Span] = field(default_factory=list)
    gpu_spans: list[wire.GpuSpan] = field(default_factory=list)
    iterations: list[wire.Iteration] = field(default_factory=list)
    states: list[wire.ChannelState] = field(default_factory=list)
    parts: list[KernelArray] = field(default_factory=list)
    ended: bool = False

    @property
    def kernels(self) -> KernelArray:
        return join(self.parts)

    def dropped(self, channel: wire.Channel) -> int:
        """Records of a channel that its producer dropped."""
        return max((state.dropped for state in self.states if state.channel == channel), default=0)

    def reasons(self, channel: wire.Channel) -> list[str]:
        """Why the channel was down, each reason once."""
        down = [state for state in self.states if state.channel == channel and not state.up]
        return list(dict.fromkeys(self.names.get(state.reason_id, "") for state in down))


class Collector:
    """Listens on `path`; connections are appended as their HELLO comes."""

    def __init__(self, path: Path, connection: type[Connection] = Connection) -> None:
        self.path = path
        self._connection = connection
        self.connections: list[Connection] = []
        self.failures: list[str] = []
        """Packets that were none of the wire's: a step asserts that there are none."""
        self._server = SeqpacketServer(path, self._read)

    def with_kernels(self) -> list[Connection]:
        return [connection for connection in self.connections if connection.parts]

    def wait(self, there: Callable[[], object], limit_s: float = 20.0) -> bool:
        limit = time.monotonic() + limit_s
        while not there():
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def wait_ended(self) -> bool:
        """Until every producer has hung up."""
        return self.wait(lambda: all(connection.ended for connection in self.connections))

    def close(self) -> None:
        self._server.close()

    def _read(self, peer: socket.socket) -> None:
        connection: Connection | None = None
        try:
            while True:
                packet, descriptors, _, _ = socket.recv_fds(peer, wire.MAX_MESSAGE_BYTES + 1, 2)
                if not packet:
                    break
                for header, payload in wire.messages(packet):
                    connection = self._handle(connection, header, payload)
                if connection is not None and descriptors:
                    connection.page = PageReader(descriptors[0])
                    connection.nccl = NcclPageReader(descriptors[1]) if descriptors[1:] else None
        except OSError:
            pass
        except Exception as error:
            self.failures.append(repr(error))
        if connection is not None:
            connection.ended = True

    def _handle(self, connection: Connection | None, header: wire.Header, payload: memoryview) -> Connection:
        if connection is None:
            connection = self._connection(next(wire.Hello.unpack_all(payload)))
            self.connections.append(connection)
            return connection
        match header.type:
            case wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(payload):
                    connection.names[name.name_id] = wire.decode_text(name.text)
            case wire.MessageType.KERNELS:
                connection.parts.append(np.frombuffer(payload, KERNEL_DTYPE).copy())
            case wire.MessageType.SPANS:
                connection.spans += wire.Span.unpack_all(payload)
            case wire.MessageType.GPU_SPANS:
                connection.gpu_spans += wire.GpuSpan.unpack_all(payload)
            case wire.MessageType.ITERATIONS:
                connection.iterations += wire.Iteration.unpack_all(payload)
            case wire.MessageType.CHANNELS:
                connection.states += wire.ChannelState.unpack_all(payload)
        return connection


@contextlib.contextmanager
def collecting(folder: Path) -> Iterator[Collector]:
    path = folder / "exporter.sock"
    collector = Collector(path)
    try:
        yield collector
    finally:
        collector.close()
        path.unlink(missing_ok=True)
