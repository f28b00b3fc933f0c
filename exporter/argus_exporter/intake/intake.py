"""The receiving end of the wire: a SEQPACKET server on the event loop. `peers` says who may connect."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_core.background import BackgroundTask
from argus_core.log import Log
from argus_core.log_limiter import Failures, LogLimiter
from argus_exporter.intake import process
from argus_exporter.intake.config import SocketConfig
from argus_exporter.intake.connection import Connection
from argus_exporter.intake.listener import access_of, listen
from argus_exporter.ranks.peers import AllowedUsers, Peer, peer_of, user_name
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.traces.ring import Ring

log = Log(__name__)

KEPT_WARNING: Final = "settings that need a restart keep their value"

_TICK_S = 0.25
_HELLO_LIMIT_S = 10.0
"""A connection that has not said HELLO by then ends: it would hold its place for nothing."""
_FILES_EACH = 4
"""Files that a connection may come to hold: its own, a page, NCCL's memory, a segment of the trace ring."""
_ACCEPT_PAUSE_S = 1.0
"""Before accepting again when there are no file descriptors left."""


class Intake:
    """Listens on the socket and keeps the connections.

    `ring`, where there is one, gets every record that was checked.
    """

    def __init__(
        self,
        path: Path,
        config: SocketConfig,
        ranks: RankRegistry,
        failures: Failures,
        ring: Ring | None = None,
    ) -> None:
        self._path = path
        self._config = config
        self._access = access_of(config)
        self._allowed = AllowedUsers(config.allowed_users)
        self._ranks = ranks
        self._ring = ring
        self._connections: set[Connection] = set()
        self._by_uid: Counter[int] = Counter()
        self._rejections = LogLimiter(log)
        self._failures = failures
        self._task = BackgroundTask()
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
        self._listener = listen(self._path, self._access)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        self._task.start(self._tick())
        log.info("listening for producers", socket=self._path)

    def reconfigure(self, config: SocketConfig) -> None:
        """Take new users and limits, for connections to come; the socket stays as it is."""
        self._config = config
        self._allowed = AllowedUsers(config.allowed_users)
        if access_of(config) != self._access:
            log.warning(KEPT_WARNING, keys="mode of the socket by socket.allowed_users, socket.group")

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        await self._task.stop()
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
                log.error("cannot accept a producer", error=error)
            return
        connected.setblocking(False)
        who = peer_of(connected)
        if not self._may_connect(who):
            connected.close()
            return
        connection = Connection(connected, self._ranks, who, self._ranks.clock(), self._ring)
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
                f"user {user_name(who.uid)} has {limit} connections already, far more than ranks need",
            )
            return False
        # Lost ranks keep their page, and NCCL's memory.
        if _FILES_EACH * (len(self._connections) + 1) + 2 * len(self._ranks) > process.files_for_ranks():
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
        self._rejections.warning(reason, "producer refused", reason=reason, detail=detail)

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
            with self._failures.contained("connections", "ranks and connections not looked through"):
                self._ranks.forget_lost()
                self._end_stale()

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
