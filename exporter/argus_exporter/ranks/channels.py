"""The channels that observe one rank: which connections carry them, their state, cost and losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from argus_core import wire

DISCONNECTED: Final = "disconnected"
ENDED: Final = "ended"
_SENDERS_LIMIT: Final = 16
"""Processes of a rank whose loss counts are remembered: a restarted job brings a new one each time."""


@dataclass(frozen=True, eq=False)
class Attachment:
    """One connection that speaks for a rank.

    `uid` and `pid` are the peer's as the kernel names them; pid 0: invisible from our PID namespace, as of a
    container beside ours.
    """

    channels: frozenset[wire.Channel]
    uid: int
    pid: int

    @property
    def leads(self) -> bool:
        """It carries the phases: what it says of the rank's identity and end stands."""
        return wire.Channel.PHASES in self.channels

    @property
    def main_channel(self) -> wire.Channel:
        """The channel that is charged with what the connection loses: a packet does not say which it was."""
        return min(self.channels)


def channels_of(mask: int) -> frozenset[wire.Channel]:
    """Channels of HELLO's mask.

    Raises:
        WireError: none, or one that does not exist.
    """
    known = frozenset(channel for channel in wire.Channel if mask & 1 << channel)
    if not known or mask >> len(wire.Channel):
        raise wire.WireError(
            "hello", f"HELLO has the channel mask {mask:#x}, which names none or unknown ones"
        )
    return known


@dataclass
class ChannelTotals:
    up: bool = False
    reason: str = ""
    cpu_seconds: float = 0.0
    records: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Channels(dict[wire.Channel, ChannelTotals]):
    """Totals by channel, and the connections that carry them. A channel that is asked for exists."""

    def __init__(self) -> None:
        super().__init__()
        self.attachments: list[Attachment] = []
        self._had_leader = False
        self._lost_by: dict[tuple[int, wire.Channel], int] = {}

    def __missing__(self, channel: wire.Channel) -> ChannelTotals:
        totals = self[channel] = ChannelTotals(up=True)
        return totals

    @property
    def connected(self) -> bool:
        """Whether the rank is. One that carried the phases decides: a child may have inherited others."""
        return any(one.leads or not self._had_leader for one in self.attachments)

    def attach(self, attachment: Attachment) -> None:
        self.attachments.append(attachment)
        self._had_leader |= attachment.leads
        for channel in attachment.channels:
            totals = self[channel]
            if totals.reason in (DISCONNECTED, ENDED):
                totals.up, totals.reason = True, ""

    def detach(self, attachment: Attachment, *, said_bye: bool) -> None:
        """A connection ended: channels that were its own go down. Of the leader's, the rank's end tells."""
        self.attachments.remove(attachment)
        if attachment.leads:
            return
        carried: Iterable[wire.Channel] = (c for one in self.attachments for c in one.channels)
        for channel in attachment.channels.difference(carried):
            self[channel].up, self[channel].reason = False, ENDED if said_bye else DISCONNECTED

    def sender_dropped(self, attachment: Attachment, total: int) -> int:
        """What the sending end could not deliver: its own total, which outlives a connection.

        Returns:
            How many of them are new.
        """
        key = attachment.pid, attachment.main_channel
        before = self._lost_by.pop(key, 0)
        self._lost_by[key] = total
        while len(self._lost_by) > _SENDERS_LIMIT:
            del self._lost_by[next(iter(self._lost_by))]
        # A smaller total is a new process under the same pid, as in a container that starts again.
        new = total - before if total >= before else total
        self[attachment.main_channel].dropped["socket"] += new
        return new
