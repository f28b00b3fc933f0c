"""The receiving end of the wire: a SEQPACKET server on the event loop.

Every byte is hostile: whatever a packet gets wrong ends that connection with a counted reason, nothing else.
Who may connect is for `peers` to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter import process
from argus_exporter.channels import Attachment, channels_of
from argus_exporter.config import SocketConfig
from argus_exporter.kernel_windows import ClosedWindow
from argus_exporter.listener import access_of, listen
from argus_exporter.live import adopt_page
from argus_exporter.log_limiter import LogLimiter
from argus_exporter.names import NameTable
from argus_exporter.peers import AllowedUsers, Peer, peer_of, user_name
from argus_exporter.ranks import RankState
from argus_exporter.registry import Ranks
from argus_exporter.topology import Identity
from argus_exporter.traces.ring import Ring, Tap

log = logging.getLogger(__name__)

_BACKLOG = 128
_PACKETS_A_TURN = 64
"""Packets read from one connection before the others get their turn."""
_PACKET_LIMIT = wire.MAX_MESSAGE_BYTES + 1
_DESCRIPTORS = 2
"""Descriptors taken with HELLO: one more than allowed, to tell; the kernel closes what is beyond."""
_TICK_S = 0.25
_HELLO_LIMIT_S = 10.0
"""A connection that has not said HELLO by then ends: it would hold its place for nothing."""
_FILES_EACH = 3
"""Files that a connection may come to hold: its own, a page, a segment of the trace ring."""
_ACCEPT_PAUSE_S = 1.0
"""Before accepting again when there are no file descriptors left."""


OnIteration = Callable[[RankState, wire.Iteration], None]
"""Called with each finished step and its rank; returns at once."""


class Connection:
    """One producer's connection: reads packets, checks them, hands records to the rank."""

    def __init__(
        self,
        peer: socket.socket,
        ranks: Ranks,
        who: Peer,
        opened_at: float,
        ring: Ring | None = None,
        on_iteration: OnIteration | None = None,
    ) -> None:
        self._socket = peer
        self._ring = ring
        self._tap: Tap | None = None
        self._ranks = ranks
        self.who = who
        self._on_iteration = on_iteration
        self.opened_at = opened_at
        """Monotonic seconds, by the clock of the ranks."""
        self.state: RankState | None = None
        """None until HELLO."""
        self._attachment: Attachment | None = None
        self._names: NameTable | None = None
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
                # Descriptors come with HELLO only: of any that are sent later, recv lets the kernel dispose.
                packet = self._socket.recv(_PACKET_LIMIT) if self._names is not None else self._first()
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
        if self._tap is not None:
            self._tap.close()
        if self.state is not None and self._attachment is not None:
            self._ranks.detach(self.state, self._attachment, said_bye=self._said_bye)
            life = "connected" if self.state.connected else "left" if self._said_bye else "lost"
            log.info("producer hung up job=%s rank=%d rank_is=%s", *self.state.identity.key, life)

    def _first(self) -> bytes:
        """The packet that opens the connection, its HELLO handled; empty when there is none any more."""
        packet, descriptors, _, _ = socket.recv_fds(
            self._socket, _PACKET_LIMIT, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        try:
            if not packet:
                return b""
            header, payload = next(wire.messages(packet))
            if header.type is not wire.MessageType.HELLO or header.count != 1:
                raise wire.WireError("hello", f"the first message is {header.type.name}, not one HELLO")
            self._greet(next(wire.Hello.unpack_all(payload)), descriptors)
            return packet[wire.HEADER.size + len(payload) :] or self._socket.recv(_PACKET_LIMIT)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _greet(self, hello: wire.Hello, descriptors: list[int]) -> None:
        if hello.rank < 0:
            raise wire.WireError("hello", f"rank {hello.rank} is not 0 or more")
        attachment = Attachment(channels_of(hello.channels), self.who.uid, self.who.pid)
        identity = Identity.from_hello(hello)
        page = adopt_page(hello, descriptors)
        try:
            self.state = self._ranks.hello(identity, attachment, page)
        except wire.WireError:
            if page is not None:
                page.close()
            raise
        self._attachment = attachment
        self._names = NameTable(self.state.texts)
        if self._ring is not None:
            self._tap = self._ring.connect(self.state.identity)
        log.info(
            "rank connected job=%s rank=%d channels=%s pid=%d user=%s",
            identity.training_job,
            identity.rank,
            ",".join(sorted(channel.name.lower() for channel in attachment.channels)),
            identity.pid,
            user_name(self.who.uid),
        )

    def _handle(self, header: wire.Header, payload: memoryview) -> None:
        state, names, attachment = self.state, self._names, self._attachment
        assert state is not None and names is not None and attachment is not None
        if header.dropped:
            state.channels.sender_dropped(attachment, header.dropped)
        match header.type:
            case wire.MessageType.HELLO:
                raise wire.WireError("hello", "a connection says HELLO exactly once")
            case wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(payload):
                    if not names.bind(name):
                        state.channel(attachment.main_channel).dropped["names_limit"] += 1
            case wire.MessageType.SPANS:
                for span in wire.Span.unpack_all(payload):
                    state.span(span, names)
            case wire.MessageType.KERNELS:
                if header.count:
                    state.kernels(np.frombuffer(payload, KERNEL_DTYPE), names)
            case wire.MessageType.ITERATIONS:
                for iteration in wire.Iteration.unpack_all(payload):
                    state.iteration(iteration)
                    if self._on_iteration is not None:
                        self._on_iteration(state, iteration)
            case wire.MessageType.ACTIVITY:
                for change in wire.ActivityChange.unpack_all(payload):
                    state.activity_changed(change)
            case wire.MessageType.WORK:
                for work in wire.Work.unpack_all(payload):
                    state.work_done(work, names)
            case wire.MessageType.JOB:
                for facts in wire.JobFacts.unpack_all(payload):
                    state.job_facts(facts)
            case wire.MessageType.CHANNELS:
                for channel in wire.ChannelState.unpack_all(payload):
                    state.channel_state(channel, names)
            case wire.MessageType.GARBAGE_COLLECTIONS:
                for collection in wire.GarbageCollection.unpack_all(payload):
                    state.collected(collection)
            case wire.MessageType.COMPILATIONS:
                for compilation in wire.Compilation.unpack_all(payload):
                    state.compiled(compilation, names)
            case wire.MessageType.STACK_NODES:
                for node in wire.StackNode.unpack_all(payload):
                    state.stacks.node(node, names)
            case wire.MessageType.STACK_SAMPLES:
                for sample in wire.StackSample.unpack_all(payload):
                    state.stack_sample(sample, names)
            case wire.MessageType.BYE:
                self._said_bye = True
        if self._tap is not None:
            self._tap.take(header, payload)


class Intake:
    """Listens on the socket, keeps the connections, and closes kernel windows in `executor`.

    `ring`, where there is one, gets every record that was checked.
    """

    def __init__(
        self,
        path: Path,
        config: SocketConfig,
        ranks: Ranks,
        executor: Executor,
        ring: Ring | None = None,
        on_iteration: OnIteration | None = None,
    ) -> None:
        self._path = path
        self._on_iteration = on_iteration
        self._config = config
        self._allowed = AllowedUsers(config.allowed_users)
        self._ranks = ranks
        self._ring = ring
        self._executor = executor
        self._connections: set[Connection] = set()
        self._by_uid: Counter[int] = Counter()
        self._rejections = LogLimiter(log)
        self._failures = LogLimiter(log)
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: socket.socket | None = None
        self.rejected: Counter[str] = Counter()
        """Connections that were ended for what they sent, by reason."""

    @property
    def path(self) -> Path:
        """Where producers connect."""
        return self._path

    @property
    def listening(self) -> bool:
        return self._listener is not None and self._listener.fileno() >= 0

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Bind and listen.

        Raises:
            SocketTaken: a live exporter has the socket.
            OSError: the folder cannot be made or the socket not bound.
        """
        self._listener = listen(self._path, access_of(self._config))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        self._tasks = [loop.create_task(self._tick()), loop.create_task(self._publish_windows())]
        log.info("listening for producers socket=%s", self._path)

    def reconfigure(self, config: SocketConfig) -> None:
        """Take new users and limits, for connections to come; the socket stays as it is."""
        self._config = config
        self._allowed = AllowedUsers(config.allowed_users)

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for task in self._tasks:
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
            connected, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._pause_accepting(error)
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                log.error("cannot accept a producer error=%s", error)
            return
        connected.setblocking(False)
        who = peer_of(connected)
        if not self._may_connect(who):
            connected.close()
            return
        connection = Connection(
            connected, self._ranks, who, self._ranks.clock(), self._ring, self._on_iteration
        )
        self._connections.add(connection)
        self._by_uid[who.uid] += 1
        asyncio.get_running_loop().add_reader(connected, self._readable, connection)

    def _may_connect(self, who: Peer) -> bool:
        if who.uid not in self._allowed:
            self._reject(
                "peer_uid",
                f"user {user_name(who.uid)} (uid {who.uid}) may not connect; to allow it, add it to "
                "socket.allowed_users in the configuration",
            )
            return False
        limit = self._config.connections_per_user
        if self._by_uid[who.uid] >= limit:
            self._reject(
                "connections_limit",
                f"user {user_name(who.uid)} has {limit} connections; raise socket.connections_per_user",
            )
            return False
        # Lost ranks keep their page.
        if _FILES_EACH * (len(self._connections) + 1) + len(self._ranks) > process.files_for_ranks():
            self._reject("files_limit", "too few files may be open for another producer; raise the limit")
            return False
        return True

    def _pause_accepting(self, error: OSError) -> None:
        """The queue of the listener stays readable: polling on would be a busy loop."""
        self._reject("files_limit", f"cannot accept a producer: {error}; raise the limit of open files")
        loop = asyncio.get_running_loop()
        listener = self._listener
        assert listener is not None
        loop.remove_reader(listener)

        def resume() -> None:
            if self._listener is listener and listener.fileno() >= 0:
                loop.add_reader(listener, self._accept)

        loop.call_later(_ACCEPT_PAUSE_S, resume)

    def _reject(self, reason: str, detail: str) -> None:
        self.rejected[reason] += 1
        self._rejections.warning(reason, f"producer refused reason={reason} detail={detail}")

    def _readable(self, connection: Connection) -> None:
        try:
            alive = connection.read()
        except wire.WireError as error:
            self._reject(error.reason, str(error))
            alive = False
        if not alive:
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        asyncio.get_running_loop().remove_reader(connection.fileno())
        self._connections.discard(connection)
        self._by_uid[connection.who.uid] -= 1
        connection.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with self._going_on("ranks and connections not looked through"):
                self._ranks.forget_lost()
                self._end_stale()

    async def _publish_windows(self) -> None:
        """One rank after the other: a window is cut out, which copies it, when its turn has come.

        The windows of all ranks end with the same step; copied all at once they would double the memory.
        """
        while True:
            await asyncio.sleep(_TICK_S)
            for state in list(self._ranks):
                with self._going_on(f"windows not closed rank={state.identity.key}"):
                    for window in state.complete_windows():
                        await self._publish(state, window)

    @contextlib.contextmanager
    def _going_on(self, failure: str) -> Iterator[None]:
        """An error in the round of one rank is said, and ends neither the others nor the loop."""
        try:
            yield
        except Exception:
            self._failures.warning(failure, f"{failure}\n{traceback.format_exc()}")

    def _end_stale(self) -> None:
        """Hang up where nobody says HELLO, and where the rank is forgotten: who lives connects again."""
        limit = self._ranks.clock() - _HELLO_LIMIT_S
        for connection in list(self._connections):
            if connection.state is None:
                if connection.opened_at <= limit:
                    self._reject("hello", f"no HELLO within {_HELLO_LIMIT_S:g} s")
                    self._end(connection)
            elif not self._ranks.knows(connection.state):
                self._end(connection)

    async def _publish(self, state: RankState, window: ClosedWindow) -> None:
        loop = asyncio.get_running_loop()
        try:
            state.publish(await loop.run_in_executor(self._executor, state.summarise_window, window))
        except Exception:
            log.exception(
                "window not summarised rank=%s step=%d", state.identity.key, window.boundary.last_step
            )
            state.channel(wire.Channel.KERNELS).dropped["summarise_error"] += len(window.records)
