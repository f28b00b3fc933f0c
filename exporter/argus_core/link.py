"""The sending end of the wire: what a producer inside a training process uses to reach its exporter.

The training process is sacred: nothing here blocks (unless the caller asks for patience), grows without bound
or raises. What cannot be delivered at once is dropped and counted, and the count travels with every message.
Standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_core.trust import trusted

_SEND_ORDER = (
    wire.MessageType.NAMES,
    wire.MessageType.CHANNELS,
    wire.MessageType.JOB,
    wire.MessageType.PHASES,
    wire.MessageType.ACTIVITY,
    wire.MessageType.SPANS,
    wire.MessageType.LAYERS,
    wire.MessageType.KERNELS,
    wire.MessageType.GARBAGE_COLLECTIONS,
    wire.MessageType.COMPILATIONS,
    wire.MessageType.STACK_NODES,
    wire.MessageType.STACK_SAMPLES,
    wire.MessageType.WORK,
    wire.MessageType.ITERATIONS,  # an iteration closes the window of the records before it
    wire.MessageType.GPU_SPANS,  # and the first span of the next step says that all of a step has been told
)
ORDER: Final = tuple(int(type_) for type_ in _SEND_ORDER)
# By plain number: an enumeration as a dict's key is hashed in Python, ten times in every flush.
_RECORD_BYTES: Final = [0] * (max(wire.MessageType) + 1)
for _type, _record in wire.RECORDS.items():
    _RECORD_BYTES[_type] = _record.FORMAT.size
_NAMES: Final = int(wire.MessageType.NAMES)
_ROOM: Final = wire.MAX_MESSAGE_BYTES - wire.HEADER.size
_pack_header: Final = wire.HEADER.pack
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


def stranger(connection: socket.socket, path: Path) -> int | None:
    """The user who listens at `path` and may not learn of the training; None where he may.

    Source: unix(7), SO_PEERCRED of a client: the credentials of the process that called listen.
    """
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return None if trusted(uid, str(path)) else int(uid)


@functools.cache  # once for each in a process: the link tries again for as long as the training lasts
def _say_stranger(path: str, uid: int) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(
            f"argus: not reporting to {path}: user {uid} listens there, and others may write to the folder "
            "or make it; name a socket with ARGUS_SOCKET\n"
        )


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
        nccl_fd: of libargus_nccl's memory as well, which goes with a page only.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], wire.Hello],
        *,
        patience_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        page_fd: int | None = None,
        nccl_fd: int | None = None,
    ) -> None:
        self._path = path
        self._hello = hello
        self._patience_s = patience_s
        self._clock = clock
        self._page_fd = page_fd
        self._nccl_fd = nccl_fd
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        self._retry_at = 0.0
        self._retry_s = _RECONNECT_FIRST_S
        self._sequence = 0
        self._names: dict[str, int] = {}
        self._buffers = [bytearray() for _ in _RECORD_BYTES]
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

    def add_packed(self, type_: int, packed: bytes) -> None:
        """Queue records of one type that the caller packed itself (`Record.FORMAT`): the hot path."""
        buffer = self._buffers[type_]
        if len(buffer) + len(packed) > _ROOM:
            self.flush()
            buffer = self._buffers[type_]  # a flush sends the old one away
        buffer += packed

    def flush(self) -> None:
        """Send what is queued, as few packets. Connects first where there is no connection and it is time."""
        if os.getpid() != self._owner:  # a forked child must not speak on its parent's connection
            self._clear()
            return
        if self._socket is None and not self._connect():
            self._drop_all()
            return
        packet: list[bytes | bytearray] = []
        size = records = 0
        names = False
        for type_ in ORDER:
            buffer = self._buffers[type_]
            if not buffer:
                continue
            if size + len(buffer) > _ROOM:
                self._transmit(packet, records, names)
                packet, size, records, names = [], 0, 0, False
            count = len(buffer) // _RECORD_BYTES[type_]
            self._sequence += 1
            packet.append(self._header(type_, count))
            packet.append(buffer)
            size += wire.HEADER.size + len(buffer)
            records += count
            names = names or type_ == _NAMES
            self._buffers[type_] = bytearray()
        if packet:
            self._transmit(packet, records, names)

    def close(self, exit_status: int | None = None) -> None:
        """Flush and hang up; with an exit status say BYE first, so that the rank leaves and is not lost."""
        if os.getpid() != self._owner:
            return
        self.flush()
        if self._socket is not None and exit_status is not None:
            self._send(wire.MessageType.BYE, wire.Bye(exit_status).pack())
        self._disconnect()

    def abandon(self) -> None:
        """In a forked child: close our copy of the parent's socket without a word.

        A copy that stays open in a child (a data loader's worker) would hide the parent's end.
        """
        self._disconnect()
        self._clear()

    def renew(self) -> None:
        """Hang up, so that the next flush says HELLO again: what it tells has changed."""
        if os.getpid() == self._owner:
            self._disconnect()

    def _clear(self) -> None:
        for buffer in self._buffers:
            buffer.clear()

    def _connect(self) -> bool:
        now = self._clock()
        if now < self._retry_at:
            return False
        connection = None
        try:  # from here: the process may have no descriptor left just now
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            connection.settimeout(self._patience_s)
            connection.connect(str(self._path))
            who = stranger(connection, self._path)
            if who is not None:
                _say_stranger(str(self._path), who)
                raise PermissionError
            self._socket = connection
            self._send(wire.MessageType.HELLO, self._hello().pack())
        except OSError:
            if connection is not None:
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
        self._buffers[_NAMES].clear()
        size = wire.Name.FORMAT.size * wire.records_per_message(wire.Name)
        packed = b"".join(wire.Name(id_, wire.encode_name(text)).pack() for text, id_ in self._names.items())
        for start in range(0, len(packed), size):
            self._send(wire.MessageType.NAMES, packed[start : start + size])

    def _header(self, type_: int, count: int) -> bytes:
        return _pack_header(wire.MAGIC, wire.VERSION, type_, count, self._sequence & 0xFFFFFFFF, self.dropped)

    def _send(self, type_: wire.MessageType, packed: bytes) -> None:
        """A packet of one message."""
        self._sequence += 1
        count = len(packed) // _RECORD_BYTES[type_]
        hello, names = type_ is wire.MessageType.HELLO, type_ is wire.MessageType.NAMES
        self._transmit([self._header(type_, count), packed], count, hello or names, hello)

    def _transmit(
        self, packet: Sequence[bytes | bytearray], records: int, vital: bool, hello: bool = False
    ) -> None:
        """One system call. `vital`: without it the records that follow mean nothing."""
        connection = self._socket
        if connection is None:
            self.dropped += records
            return
        try:
            if hello and self._page_fd is not None:
                shared = (self._page_fd, self._nccl_fd)
                socket.send_fds(connection, packet, [fd for fd in shared if fd is not None])
            else:
                connection.send(b"".join(packet))
        except (BlockingIOError, TimeoutError):
            self.dropped += records
            if vital:
                self._disconnect()  # begin anew
        except OSError:
            self.dropped += records
            self._disconnect()

    def _drop_all(self) -> None:
        for type_, buffer in enumerate(self._buffers):
            if buffer and type_ != _NAMES:  # names are resent at the next connect
                self.dropped += len(buffer) // _RECORD_BYTES[type_]
            buffer.clear()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
