"""The receiving end of the wire: a SEQPACKET server on the event loop.

Every byte is hostile: whatever a packet gets wrong ends that connection with a counted reason, nothing else.
Peers must run as the exporter's own user or as root (`SO_PEERCRED`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
import struct
from collections import Counter
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernel_windows import ClosedWindow
from argus_exporter.names import NameTable
from argus_exporter.ranks import Ranks, RankState
from argus_exporter.topology import Identity

log = logging.getLogger(__name__)

_BACKLOG = 128
_PACKETS_A_TURN = 64
"""Packets read from one connection before the others get their turn."""
_TICK_S = 0.25


class SocketTaken(Exception):
    """Another exporter listens on the socket already."""


class Connection:
    """One producer's connection: reads packets, checks them, hands records to the rank."""

    def __init__(self, peer: socket.socket, ranks: Ranks, peer_pid: int = 0) -> None:
        self._socket = peer
        self._peer_pid = peer_pid
        self._ranks = ranks
        self._state: RankState | None = None
        self._names: NameTable | None = None
        self._dropped = 0
        self._said_bye = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Handle what has arrived. False when the connection has ended.

        Raises:
            WireError: the peer does not speak our protocol.
        """
        for _ in range(_PACKETS_A_TURN):
            try:
                packet = self._socket.recv(wire.MAX_MESSAGE_BYTES + 1)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not packet:
                return False
            for header, payload in wire.messages(packet):
                self._handle(header, payload)
        return True

    def close(self) -> None:
        self._socket.close()
        if self._state is None:
            return
        if self._said_bye:
            self._ranks.bye(self._state)
        else:
            self._state.detach()

    def _handle(self, header: wire.Header, payload: memoryview) -> None:
        if header.type is wire.MessageType.HELLO:
            self._greet(next(wire.Hello.unpack_all(payload), None))
            return
        state, names = self._state, self._names
        if state is None or names is None:
            raise wire.WireError("hello", f"the first message is {header.type.name}, not HELLO")
        if header.dropped > self._dropped:
            state.sender_dropped(header.dropped - self._dropped)
            self._dropped = header.dropped
        match header.type:
            case wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(payload):
                    names.bind(name)
            case wire.MessageType.SPANS:
                for span in wire.Span.unpack_all(payload):
                    state.span(span, names)
            case wire.MessageType.KERNELS:
                if header.count:
                    state.kernels(np.frombuffer(payload, KERNEL_DTYPE), names)
            case wire.MessageType.ITERATIONS:
                for iteration in wire.Iteration.unpack_all(payload):
                    state.iteration(iteration)
            case wire.MessageType.ACTIVITY:
                for change in wire.ActivityChange.unpack_all(payload):
                    state.activity_changed(change)
            case wire.MessageType.WORK:
                for work in wire.Work.unpack_all(payload):
                    state.work_done(work, names)
            case wire.MessageType.CHANNELS:
                for channel in wire.ChannelState.unpack_all(payload):
                    state.channel_state(channel, names)
            case wire.MessageType.STACK_NODES:
                for node in wire.StackNode.unpack_all(payload):
                    state.stacks.node(node, names)
            case wire.MessageType.STACK_SAMPLES:
                for sample in wire.StackSample.unpack_all(payload):
                    if not state.stacks.sample(sample, names):
                        state.channel(wire.Channel.STACKS).dropped["stacks_limit"] += sample.count
            case wire.MessageType.BYE:
                self._said_bye = True

    def _greet(self, hello: wire.Hello | None) -> None:
        if hello is None or self._state is not None:
            raise wire.WireError("hello", "a connection says HELLO exactly once")
        if hello.rank < 0:
            raise wire.WireError("hello", f"rank {hello.rank} is not 0 or more")
        identity = Identity.from_hello(hello)
        self._state = self._ranks.hello(identity)
        self._names = NameTable(self._state.texts)
        if hello.channels & 1 << wire.Channel.PHASES or self._state.peer_pid is None:
            self._state.peer_pid = self._peer_pid
        log.info("rank connected job=%s rank=%d pid=%d", identity.training_job, identity.rank, identity.pid)


class Intake:
    """Listens on the socket, keeps the connections, and closes kernel windows in `executor`."""

    def __init__(self, path: Path, ranks: Ranks, executor: Executor) -> None:
        self._path = path
        self._ranks = ranks
        self._executor = executor
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._ticker: asyncio.Task[None] | None = None
        self.rejected: Counter[str] = Counter()
        """Connections that were ended for what they sent, by reason."""

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Bind and listen.

        Raises:
            SocketTaken: a live exporter has the socket.
            OSError: the folder cannot be made or the socket not bound.
        """
        self._listener = _listen(self._path)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        self._ticker = loop.create_task(self._tick())
        log.info("listening for producers socket=%s", self._path)

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
            self._path.unlink(missing_ok=True)
        for connection in list(self._connections):
            self._end(connection)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                log.error("cannot accept a producer error=%s", error)
            return
        peer.setblocking(False)
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.getuid()):
            self.rejected["peer_uid"] += 1
            log.warning("producer refused reason=peer_uid uid=%d", uid)
            peer.close()
            return
        connection = Connection(peer, self._ranks, pid)
        self._connections.add(connection)
        asyncio.get_running_loop().add_reader(peer, self._readable, connection)

    def _readable(self, connection: Connection) -> None:
        try:
            alive = connection.read()
        except wire.WireError as error:
            self.rejected[error.reason] += 1
            log.warning("producer refused reason=%s detail=%s", error.reason, error)
            alive = False
        if not alive:
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        asyncio.get_running_loop().remove_reader(connection.fileno())
        self._connections.discard(connection)
        connection.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._ranks.forget_lost()
            for state in self._ranks:
                for window in state.complete_windows():
                    task = asyncio.create_task(self._publish(state, window))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _publish(self, state: RankState, window: ClosedWindow) -> None:
        loop = asyncio.get_running_loop()
        try:
            state.publish(await loop.run_in_executor(self._executor, state.summarise_window, window))
        except Exception:
            log.exception(
                "window not summarised rank=%s step=%d", state.identity.key, window.boundary.last_step
            )
            state.channel(wire.Channel.KERNELS).dropped["summarise_error"] += len(window.records)


def _listen(path: Path) -> socket.socket:
    """A listening socket, mode 0600 in a folder of mode 0700 where we make it; a dead one is replaced."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, mode=0o700)
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise SocketTaken(f"{path} exists and is not a socket; name another with --socket")
        if is_listening(path):
            raise SocketTaken(f"{path} is in use by another exporter; stop it or name another with --socket")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    return listener


def is_listening(path: Path) -> bool:
    """Whether a live exporter has the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
