"""What the oldest operation of a rank over the network waits for, by the oldest step of each of its channels.

NCCL posts a receive before the GPU comes to it, and up to eight steps of an operation: so a rank whose GPU
stands has receives that wait for a peer too. What is behind its oldest operation, and behind the oldest step
of a channel, tells nothing of why it stands.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from argus_core.nccl_page import Communicator, NcclPage

WAITS: Final = (
    "send_own_gpu",
    "send_peer",
    "send_wire",
    "receive_peer",
    "receive_own_gpu",
    "receive_own_gpu",
)
"""What each of nccl_page.STEP_STATES waits for: a receive is flushed to our GPU's memory, then consumed."""
STANDS_NS: Final = 5_000_000_000
"""A choice: a step that moves takes milliseconds, and a scrape of a healthy job shall have no such series."""
PEERS: Final = 4
"""Of one wait: a ring has one peer each way on a channel, a tree three; those that have stood for longest."""
_SENDS: Final = 3
"""States of a send, the first ones."""
_FIRST_INTERFACE: Final = 4
"""Before (NCCL 2.26 and older) a send that waits for its peer looks as if it waited for its own GPU."""


class Oldest(NamedTuple):
    """Channels of one communicator to one peer, rank -1: several others, of which none has moved since."""

    communicator: Communicator
    operation: str
    peer: int
    wait: str
    since_ns: int


def oldest(page: NcclPage, now_ns: int) -> list[Oldest]:
    """None where it moves, or the rank has nothing under way over the network.

    Args:
        now_ns: CLOCK_MONOTONIC, as all times of the page.
    """
    if page.table < _FIRST_INTERFACE:
        return []
    by_operation: dict[int, list[Oldest]] = defaultdict(list)
    for one in page.communicators:
        for peer in one.peers if one.live else ():
            for state, count in enumerate(peer.oldest):
                way = state >= _SENDS
                if count and (entered := peer.oldest_entered_ns[way]):
                    since = peer.oldest_moved_ns[way]
                    found = Oldest(one, peer.oldest_function[way], peer.rank, WAITS[state], since)
                    by_operation[entered].append(found)
    if not by_operation:
        return []
    waits = by_operation[min(by_operation)]
    if now_ns - max(step.since_ns for step in waits) < STANDS_NS:
        return []
    by_wait: dict[str, dict[int, Oldest]] = defaultdict(dict)
    for step in sorted(waits, key=lambda step: step.since_ns):
        by_wait[step.wait].setdefault(step.peer, step)
    return [step for peers in by_wait.values() for step in list(peers.values())[:PEERS]]
