"""What a rank's oldest operation over the network waits for, from what the memory says of all peers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from argus_core import nccl_page
from argus_core.nccl_page import NcclPageReader
from argus_exporter.ranks.nccl_oldest import PEERS, STANDS_NS, oldest
from nccl_memory import Oldest, write_communicator, write_header, write_peer

NOW = 100 * STANDS_NS
STOOD = NOW - 2 * STANDS_NS
SENDS_OWN, SENDS_PEER, SENDS_WIRE, RECEIVES_PEER, FLUSHES, RECEIVES_OWN = range(6)


def of(state: int, entered: int, moved: int = STOOD, function: str = "AllReduce") -> Oldest:
    """One channel to a peer stands in this state."""
    counts = tuple(int(at == state) for at in range(6))
    return Oldest(counts, (function, function), (entered, entered), (moved, moved))


def waits(
    *communicators: Sequence[tuple[int, Oldest]], table: int = 7
) -> list[tuple[int, str, int, str, int]]:
    """(hash, operation, peer, wait, since) of communicators, each with what it has by peer."""
    descriptor = nccl_page.make()
    write_header(descriptor, state=1, table=table, communicators=len(communicators))
    for slot, peers in enumerate(communicators):
        write_communicator(descriptor, slot, hash=slot + 1, rank=0, ranks=8)
        for at, (peer, one) in enumerate(peers):
            write_peer(descriptor, slot, at, peer + 1, (0,) * 6, 0, one)
    reader = NcclPageReader(os.dup(descriptor))
    os.close(descriptor)
    try:
        found = oldest(reader.read(), NOW)
    finally:
        reader.close()
    return [(one.communicator.hash, *one[1:]) for one in found]


def test_what_is_behind_the_oldest_operation_tells_nothing() -> None:
    """A send that its own GPU does not fill was entered first; the receive behind it is posted ahead."""
    found = waits([(3, of(RECEIVES_PEER, entered=20))], [(1, of(SENDS_OWN, entered=10, function="Send"))])
    assert found == [(2, "Send", 1, "send_own_gpu", STOOD)]


def test_of_one_operation_both_ways_are_told() -> None:
    ring = [(1, of(SENDS_PEER, entered=10)), (7, of(RECEIVES_OWN, entered=10))]
    assert waits(ring) == [
        (1, "AllReduce", 1, "send_peer", STOOD),
        (1, "AllReduce", 7, "receive_own_gpu", STOOD),
    ]


def test_what_is_flushed_and_what_is_consumed_is_one_wait() -> None:
    """The gauge has one sample by peer and wait, of whichever has stood for longer."""
    both = Oldest((0, 0, 0, 0, 1, 1), entered_ns=(0, 10), moved_ns=(0, STOOD))
    assert waits([(1, both)]) == [(1, "AllReduce", 1, "receive_own_gpu", STOOD)]


def test_nothing_is_told_while_it_moves() -> None:
    """One of its channels has moved a moment ago."""
    ring = [(1, of(SENDS_PEER, entered=10)), (7, of(RECEIVES_PEER, entered=10, moved=NOW - 1))]
    assert waits(ring) == []
    assert waits([]) == []


def test_a_send_of_which_it_is_not_known_for_whom_it_waits_is_not_told() -> None:
    """Up to NCCL 2.26 the peer's wait is in that for the own GPU."""
    assert waits([(1, of(SENDS_OWN, entered=10))], table=3) == []


def test_an_operation_that_is_not_known_is_not_the_oldest() -> None:
    assert waits([(1, of(SENDS_OWN, entered=0)), (2, of(RECEIVES_PEER, entered=9))]) == [
        (1, "AllReduce", 2, "receive_peer", STOOD)
    ]


def test_a_wait_has_its_peers_up_to_a_limit() -> None:
    """Those that have stood for longest."""
    many = [(peer, of(RECEIVES_PEER, entered=10, moved=STOOD - peer)) for peer in range(9)]
    assert [peer for _, _, peer, _, _ in waits(many)] == list(range(8, 8 - PEERS, -1))
