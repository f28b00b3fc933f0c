"""Series of libargus_nccl from memory that two ranks of a job share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from argus_core import nccl_page, wire
from argus_core.nccl_page import NcclPageReader
from argus_core.shared_page import PageReader, PageWriter
from argus_exporter.config import ExporterConfig
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors import CollectorRunner
from argus_exporter.publish.collectors.base import NoData
from argus_exporter.publish.collectors.nccl import NcclCollector
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.live import Clock, LivePage, adopt_page
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from exporter.exporter_process import greeting
from nccl_memory import (
    Oldest,
    write_communicator,
    write_header,
    write_kernels,
    write_operation,
    write_peer,
)

SECOND = 1_000_000_000
ATTACHMENT = Attachment(frozenset({wire.Channel.PHASES}), os.getuid(), os.getpid())


@pytest.fixture
def told() -> Iterator[dict[tuple[str, ...], float]]:
    """Values by name and labels, without the job's; rank 1's memory says twice as much as rank 0's."""
    ranks = RankRegistry(ExporterConfig())
    for rank in (0, 1):
        memory = nccl_page.make()
        write_header(memory, state=1, table=7, nccl_version=23203, communicators=2, stale_events=rank)
        write_communicator(memory, 0, hash=0xAB, rank=rank, ranks=2, launches=4, launch_ns=2_000_000_000)
        write_operation(memory, 0, "AllReduce", 3 * (rank + 1), 3 * (rank + 1))
        write_kernels(memory, 0, "AllReduce", 4, 2_000_000_000, size="1MiB", bus_bytes=10**9)
        write_peer(memory, 0, 0, 2 - rank, (10**9, 2 * 10**9, 0, 0, 0, 0), 1)
        sends = Oldest((0, 2, 0, 0, 0, 0), entered_ns=(7, 0), moved_ns=(50 * SECOND, 0))
        write_peer(memory, 0, 1, 8, (1, 0, 0, 0, 0, 0), 0, sends)
        write_peer(memory, 0, 2, 9, (0, 0, 0, 0, 10**9, 10**9), 0)
        write_communicator(memory, 1, hash=0xCD, rank=0, ranks=5)
        write_operation(memory, 1, "AllGather", 1, 1)
        write_operation(memory, 1, "Broadcast", 0, 0, called=7)
        page = LivePage(PageReader(PageWriter().fd), Clock(0, 0), NcclPageReader(memory))
        at = Identity("job", rank, world_size=2, coordinates={"dp": rank}, sizes={"dp": 2})
        ranks.hello(at, ATTACHMENT, page)
    yield {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "training_job")): sample.value
        for family in NcclCollector().collect(list(ranks), 60.0)
        for sample in family.samples
    }
    for state in ranks:
        state.close()


def test_operations_are_counted_by_group(told: dict[tuple[str, ...], float]) -> None:
    """Two members of two of dp: its group; a communicator of five fits nothing here."""
    assert told["argus_nccl_collectives_total", "dp", "AllReduce", "0"] == 3
    assert told["argus_nccl_collectives_total", "dp", "AllReduce", "1"] == 6
    assert told["argus_nccl_collectives_total", "unknown", "AllGather", "0"] == 1
    assert told["argus_nccl_bytes_total", "dp", "AllReduce", "1"] == 24
    assert told["argus_nccl_sized_collectives_total", "dp", "0", "64KiB"] == 3
    assert told["argus_nccl_launch_seconds_sum", "dp", "0"] == 2
    assert told["argus_nccl_launch_seconds_count", "dp", "0"] == 4


def test_bytes_by_time_are_the_bandwidth_of_a_class_of_size(told: dict[tuple[str, ...], float]) -> None:
    assert told["argus_nccl_kernel_seconds_count", "dp", "AllReduce", "0"] == 4
    assert told["argus_nccl_kernel_seconds_sum", "dp", "AllReduce", "0"] == 2
    assert told["argus_nccl_bus_bytes_total", "dp", "0", "1MiB"] == 10**9
    assert told["argus_nccl_bus_seconds_total", "dp", "0", "1MiB"] == 2
    assert ("argus_nccl_bus_bytes_total", "dp", "0", "64KiB") not in told


def test_ranks_compare_by_communicator_and_sequence(told: dict[tuple[str, ...], float]) -> None:
    assert told["argus_nccl_entered_sequence", "0xab", "dp", "AllReduce", "0"] == 3
    assert told["argus_nccl_entered_sequence", "0xab", "dp", "AllReduce", "1"] == 6
    assert told["argus_nccl_finished_sequence", "0xab", "dp", "AllReduce", "1"] == 5


def test_what_nccl_does_not_number_is_entered_by_its_calls(told: dict[tuple[str, ...], float]) -> None:
    """Broadcast since 2.29: a rank that called it, where others called something else, is told by that."""
    assert told["argus_nccl_entered_sequence", "0xcd", "unknown", "Broadcast", "0"] == 7


def test_waits_are_those_of_the_two_peers_that_count(told: dict[tuple[str, ...], float]) -> None:
    """Peer 1 has 3 s, peer 8 has 2 s, peer 7 a nanosecond."""
    wait = "argus_nccl_network_wait_seconds_total"
    assert told[wait, "0xab", "dp", "0", "1", "0", "send_peer"] == 2
    assert told[wait, "0xab", "dp", "0", "8", "0", "receive_own_gpu"] == 2
    assert {key[4] for key in told if key[0] == wait and key[5] == "0"} == {"1", "8"}
    assert told["argus_nccl_network_steps_waiting", "0xab", "dp", "0", "1", "0", "send_peer"] == 1


def test_the_oldest_step_says_since_when_it_waits(told: dict[tuple[str, ...], float]) -> None:
    """Two channels to peer 7 have not moved since the second 50; the clock's zero is that of Unix time."""
    found = {key: value for key, value in told.items() if "oldest" in key[0] and key[-2] == "1"}
    name = "argus_nccl_network_oldest_timestamp_seconds"
    assert found == {(name, "0xab", "dp", "1", "AllReduce", "7", "1", "send_peer"): 50}


def test_the_library_says_how_it_is(told: dict[tuple[str, ...], float]) -> None:
    assert told["argus_nccl_info", "none", "7", "2.32.3", "0", "", "watching"] == 1
    assert told["argus_nccl_dropped_total", "1", "stale_events"] == 1
    assert ("argus_nccl_dropped_total", "0", "stale_events") not in told


def test_without_the_library_there_is_nothing() -> None:
    ranks = RankRegistry(ExporterConfig())
    ranks.hello(Identity("job", 0), ATTACHMENT)
    with pytest.raises(NoData, match="ARGUS_NCCL is off"):
        list(NcclCollector().collect(list(ranks), 0.0))


def test_memory_comes_with_hello_behind_the_page() -> None:
    page, memory = PageWriter(), nccl_page.make()
    write_header(memory, state=2, reason=3)
    hello = greeting(0, shares_page=True, shares_nccl=True)()
    adopted = adopt_page(hello, [os.dup(page.fd), os.dup(memory)])
    assert adopted is not None
    nccl = adopted.read_nccl()
    assert nccl is not None
    assert (nccl.state, nccl.reason) == ("declined", "rccl")
    adopted.close()


def test_what_hello_does_not_announce_is_refused() -> None:
    """Two pages, with one announced."""
    page = PageWriter()
    hello = greeting(0, shares_page=True)()
    given = [os.dup(page.fd), os.dup(page.fd)]
    with pytest.raises(wire.WireError):
        adopt_page(hello, given)
    for descriptor in given:
        os.close(descriptor)


def test_what_is_no_memory_of_nccl_costs_nothing_but_that() -> None:
    """The descriptor was closed by an exec of the training process, and is of another file now."""
    page = PageWriter()
    hello = greeting(0, shares_page=True, shares_nccl=True)()
    adopted = adopt_page(hello, [os.dup(page.fd), os.open("/dev/null", os.O_RDONLY)])
    assert adopted is not None
    assert adopted.read_nccl() is None
    adopted.close()


def connect(
    ranks: RankRegistry, rank: int, page: PageWriter, memory: int, attachment: Attachment
) -> RankState:
    """A rank of a job of 2 by 2 says HELLO, with its page and NCCL's memory."""
    place = {"coordinates": {"dp": 0, "tp": rank}, "sizes": {"dp": 2, "tp": 2}, "world_size": 4}
    hello = greeting(rank, shares_page=True, shares_nccl=True, **place)()
    adopted = adopt_page(hello, [os.dup(page.fd), os.dup(memory)])
    return ranks.hello(Identity.from_hello(hello), attachment, adopted)


def counted(ranks: RankRegistry, rank: int | None = None) -> dict[tuple[str, str], float]:
    """Collectives by rank and group, as a scrape shows them."""
    return {
        (sample.labels["rank"], sample.labels["group"]): sample.value
        for family in CollectorRunner([NcclCollector()], ranks, rank=rank).collect()
        for sample in family.samples
        if sample.name == "argus_nccl_collectives_total"
    }


def test_who_asks_for_one_rank_moves_no_count_to_another_group() -> None:
    """A group is known by all of its members that are here, whoever is shown."""
    ranks = RankRegistry(ExporterConfig())
    memories = [nccl_page.make() for _ in range(2)]
    for rank, memory in enumerate(memories):
        write_header(memory, communicators=1, state=1)
        write_communicator(memory, 0, hash=0xAB, rank=rank, ranks=2, generation=1)
        write_operation(memory, 0, "AllReduce", 100, 101)
        connect(ranks, rank, PageWriter(), memory, ATTACHMENT)
    assert counted(ranks) == {("0", "tp:dp0"): 100, ("1", "tp:dp0"): 100}
    for memory in memories:
        write_operation(memory, 0, "AllReduce", 1100, 1101)
    assert counted(ranks, 0) == {("0", "tp:dp0"): 1100}
    assert counted(ranks) == {("0", "tp:dp0"): 1100, ("1", "tp:dp0"): 1100}


def test_counts_go_on_where_the_process_connects_again_and_begin_anew_with_another() -> None:
    """What former communicators did is in no memory any more: the totals keep it."""
    ranks = RankRegistry(ExporterConfig())
    page, memory = PageWriter(), nccl_page.make()
    write_header(memory, communicators=1, state=1)
    state = connect(ranks, 0, page, memory, ATTACHMENT)
    for generation, count in ((1, 1000), (2, 10)):  # the slot was given to another communicator
        write_communicator(memory, 0, hash=generation, rank=0, ranks=3, generation=generation)
        write_operation(memory, 0, "AllReduce", count, count)
        counts = counted(ranks)
    assert counts == {("0", "unknown"): 1010}
    ranks.detach(state, ATTACHMENT, said_bye=False)
    connect(ranks, 0, page, memory, ATTACHMENT)
    write_operation(memory, 0, "AllReduce", 11, 11)
    assert counted(ranks) == {("0", "unknown"): 1011}
    connect(ranks, 0, PageWriter(), memory, ATTACHMENT)
    assert counted(ranks) == {("0", "unknown"): 11}
