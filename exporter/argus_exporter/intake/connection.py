"""One producer's connection: packets in, checked records to the rank that it speaks for.

Every byte is hostile: whatever a packet gets wrong ends the connection with a counted reason, nothing else.
"""

from __future__ import annotations

import os
import socket
import time

from argus_core import wire
from argus_core.log import Log
from argus_exporter.intake import records
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.ranks.channels import Attachment, channels_of
from argus_exporter.ranks.live import adopt_page
from argus_exporter.ranks.peers import Peer, user_name
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.traces.ring import Ring, Tap

log = Log(__name__)

_PACKETS_A_TURN = 64
"""Packets read from one connection before the others get their turn."""
_TURN_S = 0.002
"""Time after which they get it too: sixty times what a turn of the event loop costs. A packet full of
iterations alone takes 40 ms."""
_PACKET_LIMIT = wire.MAX_MESSAGE_BYTES + 1
_DESCRIPTORS = 3
"""Descriptors taken with HELLO: one more than allowed, to tell; the kernel closes what is beyond."""


class Connection:
    """One producer's connection: reads packets, checks them, hands records to the rank."""

    def __init__(
        self,
        peer: socket.socket,
        ranks: RankRegistry,
        who: Peer,
        opened_at: float,
        ring: Ring | None = None,
    ) -> None:
        self._socket = peer
        self._ring = ring
        self._tap: Tap | None = None
        self._ranks = ranks
        self.who = who
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
        until = time.perf_counter() + _TURN_S
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
            if time.perf_counter() > until:
                break
        return True

    def close(self) -> None:
        self._socket.close()
        if self._tap is not None:
            self._tap.close()
        if self.state is not None and self._attachment is not None:
            self._ranks.detach(self.state, self._attachment, said_bye=self._said_bye)
            life = "connected" if self.state.connected else "left" if self._said_bye else "lost"
            log.info("producer hung up", **self.state.identity.names, rank_is=life)

    def _first(self) -> bytes:
        """The packet that opens the connection, its HELLO handled; empty when the connection has ended."""
        packet, descriptors, _, _ = socket.recv_fds(
            self._socket, _PACKET_LIMIT, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        try:
            if not packet:
                return b""
            header, payload = next(wire.messages(packet))
            if header.type is not wire.MessageType.HELLO or header.count != 1:
                raise wire.WireError("hello", f"the first message is {header.type.name}, not one HELLO")
            hello = next(wire.Hello.unpack_all(payload))
            if not hello.channels:  # it may have inherited the number of a rank that lives
                names = Identity.from_hello(hello).names
                log.warning("a process with a rank has ended, and ARGUS was not attached to it", **names)
                return b""
            self._greet(hello, descriptors)
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
            "rank connected",
            **identity.names,
            channels=",".join(sorted(channel.name.lower() for channel in attachment.channels)),
            pid=identity.pid,
            user=user_name(self.who.uid),
        )

    def _handle(self, header: wire.Header, payload: memoryview) -> None:
        state, names, attachment = self.state, self._names, self._attachment
        assert state is not None and names is not None and attachment is not None
        lost = 0
        if header.dropped:
            lost = state.channels.sender_dropped(attachment, header.dropped)
            if lost and attachment.main_channel is not wire.Channel.STACKS:
                state.kernels.anatomy.records.lost()
        match header.type:
            case wire.MessageType.HELLO:
                raise wire.WireError("hello", "a connection says HELLO exactly once")
            case wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(payload):
                    if not names.bind(name):
                        state.channel(attachment.main_channel).dropped["names_limit"] += 1
            case wire.MessageType.BYE:
                self._said_bye = not any(bye.failed for bye in wire.Bye.unpack_all(payload))
            case _:
                records.take(state, header, payload, names)
        if self._tap is not None:
            self._tap.take(header, payload, lost)
