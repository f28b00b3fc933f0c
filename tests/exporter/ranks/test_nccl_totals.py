"""Counters by process group, of memory whose slots are given away."""

from __future__ import annotations

from argus_core.nccl_page import Communicator, NcclPage, Operation
from argus_exporter.ranks.nccl_totals import NcclTotals


def communicator(slot: int, generation: int, hash_: int, count: int) -> Communicator:
    sizes = (count, 0, 0, 0, 0)
    operation = Operation(
        "AllReduce", 0, count, 8 * count, count, 1, 0, 0, 0, 0, sizes, kernels=count, kernel_ns=3 * count
    )
    about = (hash_, 0, 2, 1, True, "", count, 5 * count, 0, (operation,), ())
    return Communicator(slot, generation, *about, bus_ns=sizes, bus_bytes=sizes)


def page(*communicators: Communicator) -> NcclPage:
    return NcclPage("watching", "", 23203, 7, 0, "none", 0, 0, 0, 0, 0, 0, communicators)


def test_a_slot_that_is_given_away_takes_nothing_back() -> None:
    totals = NcclTotals()
    totals.add(page(communicator(0, 1, 0xA, 100)), {0xA: "unknown"})
    totals.add(page(communicator(0, 2, 0xB, 3)), {0xB: "unknown"})
    assert totals.collectives["unknown", "AllReduce"] == 103
    assert totals.sizes["unknown", "64KiB"] == totals.bus_ns["unknown", "64KiB"] == 103
    assert totals.bus_bytes["unknown", "64KiB"] == totals.kernels["unknown", "AllReduce"] == 103
    assert totals.kernel_ns["unknown", "AllReduce"] == 309
    assert (totals.launches["unknown"], totals.launch_ns["unknown"]) == (103, 515)


def test_a_group_that_becomes_known_counts_from_then_on() -> None:
    totals = NcclTotals()
    totals.add(page(communicator(0, 1, 0xA, 100)), {0xA: "unknown"})
    totals.add(page(communicator(0, 1, 0xA, 110)), {0xA: "tp"})
    assert totals.collectives == {("unknown", "AllReduce"): 100, ("tp", "AllReduce"): 10}


def test_a_slot_that_was_half_written_counts_once() -> None:
    """It is left out of one reading."""
    totals = NcclTotals()
    for reading in (page(communicator(0, 1, 0xA, 100)), page(), page(communicator(0, 1, 0xA, 101))):
        totals.add(reading, {0xA: "tp"})
    assert totals.collectives["tp", "AllReduce"] == 101
