"""The sending end of the wire: what a producer inside a training process uses to reach its exporter.

The training process is sacred: nothing here blocks (unless the caller asks for patience), grows without bound
or raises. What cannot be delivered at once is dropped and counted, and the count travels with every message.
Standard library only.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from argus_core import wire

_SEND_ORDER = (
    wire.MessageType.NAMES,
    wire.MessageType.CHANNELS,
    wire.MessageType.ACTIVITY,
    wire.MessageType.SPANS,
    wire.MessageType.KERNELS,
    wire.MessageType.GARBAGE_COLLECTIONS,
    wire.MessageType.COMPILATIONS,
    wire.MessageType.STACK_NODES,
    wire.MessageType.STACK_SAMPLES,
    wire.MessageType.WORK,
    wire.MessageType.ITERATIONS,  # last: an iteration closes the window of the records before it
)
_RECONNECT_FIRST_S = 0.5
_RECONNECT_LIMIT_S = 10.0


def default_socket_path() -> Path:
    """Where exporter and producers of one user meet: `ARGUS_SOCKET`, or a private folder of the user."""
    named = os.environ.get("ARGUS_SOCKET")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "argus" if runtime else Path("/tmp") / f"argus-{os.getuid()}"
    return folder / "exporter.sock"


class Link:
    """One producer's connection to the exporter; reconnects by itself.

    Not thread-safe: one thread adds and flushes.

    Args:
        path: the exporter's socket.
        hello: called at each connect, because clocks move between connects.
        patience_s: how long a send may wait for room. 0 inside a training process; replay and simulator,
            which may produce faster than real time, wait instead of dropping.
        clock: monotonic seconds.
        page_fd: descriptor of a shared page to hand over with HELLO; its HELLO says so in `shares_page`.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], wire.Hello],
        *,
        patience_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        page_fd: int | None = None,
    ) -> None:
        self._path = path
        self._hello = hello
        self._patience_s = patience_s
        self._clock = clock
        self._page_fd = page_fd
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        self._retry_at = 0.0
        self._retry_s = _RECONNECT_FIRST_S
        self._sequence = 0
        self._names: dict[str, int] = {}
        self._buffers: dict[wire.MessageType, bytearray] = {}
        self.connects = 0
        """Times that a connection was made: a new one may lead to an exporter that knows nothing."""
        self.dropped = 0
        """Records that could not be delivered, since the start."""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def name_id(self, text: str) -> int:
        """Id of a text; binds it on first use. Ids start at 1, because 0 means none."""
        known = self._names.get(text)
        if known is None:
            known = self._names[text] = len(self._names) + 1
            self.add(wire.Name(known, wire.encode_name(text)))
        return known

    def add(self, record: wire.Record) -> None:
        """Queue one record; a full packet goes out at once."""
        self.add_packed(record.TYPE, record.pack())

    def add_packed(self, type_: wire.MessageType, packed: bytes) -> None:
        """Queue one record that the caller packed itself (`Record.FORMAT`): the hot path."""
        buffer = self._buffer(type_)
        if len(buffer) + len(packed) > wire.MAX_MESSAGE_BYTES - wire.HEADER.size:
            self.flush()
        buffer.extend(packed)

    def flush(self) -> None:
        """Send what is queued. Connects first when there is no connection and the back-off has passed."""
        if os.getpid() != self._owner:  # a forked child must not speak on its parent's connection
            self._buffers.clear()
            return
        if self._socket is None and not self._connect():
            self._drop_all()
            return
        for type_ in _SEND_ORDER:
            buffer = self._buffers.get(type_)
            if buffer:
                self._send(type_, buffer)

    def close(self, exit_status: int | None = None) -> None:
        """Flush and hang up; with an exit status say BYE first, so that the rank leaves and is not lost."""
        if os.getpid() != self._owner:
            return
        self.flush()
        if self._socket is not None and exit_status is not None:
            self._send(wire.MessageType.BYE, bytearray(wire.Bye(exit_status).pack()))
        self._disconnect()

    def abandon(self) -> None:
        """In a forked child: close our copy of the parent's socket without a word.

        A copy that stays open in a child (a data loader's worker) would hide the parent's end.
        """
        self._disconnect()
        self._buffers.clear()

    def _buffer(self, type_: wire.MessageType) -> bytearray:
        buffer = self._buffers.get(type_)
        if buffer is None:
            buffer = self._buffers[type_] = bytearray()
        return buffer

    def _connect(self) -> bool:
        now = self._clock()
        if now < self._retry_at:
            return False
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(self._patience_s)
            connection.connect(str(self._path))
            self._socket = connection
            self._send(wire.MessageType.HELLO, bytearray(self._hello().pack()))
        except OSError:
            connection.close()
            self._socket = None
        if self._socket is None:
            self._retry_at = now + self._retry_s
            self._retry_s = min(self._retry_s * 2, _RECONNECT_LIMIT_S)
            return False
        self._retry_s = _RECONNECT_FIRST_S
        self.connects += 1
        self._resend_names()
        return True

    def _resend_names(self) -> None:
        self._buffer(wire.MessageType.NAMES).clear()
        size = wire.Name.FORMAT.size * wire.records_per_message(wire.Name)
        packed = b"".join(wire.Name(id_, wire.encode_name(text)).pack() for text, id_ in self._names.items())
        for start in range(0, len(packed), size):
            self._send(wire.MessageType.NAMES, bytearray(packed[start : start + size]))

    def _send(self, type_: wire.MessageType, buffer: bytearray) -> None:
        count = len(buffer) // wire.RECORDS[type_].FORMAT.size
        connection = self._socket
        if connection is None:
            self.dropped += count
            buffer.clear()
            return
        self._sequence += 1
        message = wire.pack_message(type_, bytes(buffer), count, self._sequence, self.dropped)
        buffer.clear()
        try:
            if type_ is wire.MessageType.HELLO and self._page_fd is not None:
                socket.send_fds(connection, [message], [self._page_fd])
            else:
                connection.send(message)
        except (BlockingIOError, TimeoutError):
            self.dropped += count
            if type_ is wire.MessageType.NAMES or type_ is wire.MessageType.HELLO:
                self._disconnect()  # records without names mean nothing: begin anew
        except OSError:
            self.dropped += count
            self._disconnect()

    def _drop_all(self) -> None:
        for type_, buffer in self._buffers.items():
            if type_ is not wire.MessageType.NAMES:  # names are resent at the next connect
                self.dropped += len(buffer) // wire.RECORDS[type_].FORMAT.size
            buffer.clear()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
