"""The memory of libargus_nccl as the exporter reads it, written here by its layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from argus_core import nccl_page
from argus_core.nccl_page import NcclPageError, NcclPageReader
from nccl_memory import (
    Oldest,
    write_communicator,
    write_header,
    write_kernels,
    write_operation,
    write_peer,
)


@pytest.fixture
def reader() -> Any:
    descriptor = nccl_page.make()
    made = NcclPageReader(os.dup(descriptor))
    yield made, descriptor
    made.close()
    os.close(descriptor)


def test_memory_that_nobody_has_written_is_of_a_library_that_is_not_loaded(reader: Any) -> None:
    page = reader[0].read()
    assert (page.state, page.communicators) == ("not_loaded", ())


def test_what_is_written_by_the_layout_is_read(reader: Any) -> None:
    made, descriptor = reader
    write_header(descriptor, state=1, nccl_version=23007, table=6, mask=0x816, communicators=2)
    write_communicator(descriptor, 0, hash=0xABC, rank=1, ranks=4, name=b"dp")
    write_operation(descriptor, 0, "AllReduce", 3, 3)
    oldest = Oldest((0, 1, 0, 3, 0, 0), ("Send", "AllReduce"), (5, 6), (7, 8))
    write_peer(descriptor, 0, 0, 3, (0, 7, 0, 0, 0, 0), 2, oldest)
    page = made.read()
    (one,) = page.communicators
    assert (page.state, page.nccl_version, page.table) == ("watching", 23007, 6)
    assert (one.hash, one.rank, one.ranks, one.name, one.live) == (0xABC, 1, 4, "dp", True)
    (operation,) = one.operations
    assert (operation.function, operation.count, operation.sequence, operation.finished) == (
        "AllReduce",
        3,
        3,
        2,
    )
    assert operation.by_size == (3, 0, 0, 0, 0)
    assert (operation.kernels, one.bus_bytes) == (0, (0,) * 5)
    (peer,) = one.peers
    assert (peer.rank, peer.ns[1], peer.steps[1], peer.open[1]) == (2, 7, 1, 2)
    assert (peer.oldest, peer.oldest_function) == ((0, 1, 0, 3, 0, 0), ("Send", "AllReduce"))
    assert (peer.oldest_entered_ns, peer.oldest_moved_ns) == ((5, 6), (7, 8))


def test_kernels_end_what_has_no_network_steps(reader: Any) -> None:
    """They come later than the network tells, where both do: the last of either has ended."""
    made, descriptor = reader
    write_header(descriptor, communicators=2)
    for slot, finished in enumerate((1, 3)):
        write_communicator(descriptor, slot)
        write_operation(descriptor, slot, "AllGather", 3, 3)
        write_kernels(descriptor, slot, "AllGather", 2, 9, finished=finished, size="16MiB", bus_bytes=50)
    first, second = made.read().communicators
    (operation,) = first.operations
    assert (operation.kernels, operation.kernel_ns, operation.finished) == (2, 9, 2)
    assert second.operations[0].finished == 3
    assert (first.bus_ns, first.bus_bytes) == ((0, 0, 9, 0, 0), (0, 0, 50, 0, 0))


def test_all_other_peers_are_one(reader: Any) -> None:
    made, descriptor = reader
    write_header(descriptor, communicators=1)
    write_communicator(descriptor, 0)
    write_peer(descriptor, 0, nccl_page.PEERS - 1, nccl_page.OTHER_PEERS, (1,) * 6, 0)
    assert made.read().communicators[0].peers[0].rank == -1


@pytest.mark.parametrize("number", [99, 2**32 - 1])
def test_numbers_that_mean_nothing_are_no_error(reader: Any, number: int) -> None:
    """A peer may write whatever it likes."""
    made, descriptor = reader
    write_header(descriptor, state=number, reason=number, former=number, communicators=number)
    write_communicator(descriptor, 63, state=number, name=b"\xff\x00")
    page = made.read()
    assert (page.state, page.reason, page.former) == ("unknown",) * 3
    assert page.communicators == ()


def test_another_versions_memory_is_refused(reader: Any) -> None:
    made, descriptor = reader
    write_header(descriptor, version=1)
    with pytest.raises(NcclPageError, match="version 1, not"):
        made.read()


def test_what_is_no_sealed_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "page"
    file.write_bytes(bytes(nccl_page.SIZE))
    with file.open("rb") as opened, pytest.raises(NcclPageError, match=r"no memfd|seals"):
        NcclPageReader(os.dup(opened.fileno()))
    short = os.memfd_create("short", os.MFD_ALLOW_SEALING)
    with pytest.raises(NcclPageError, match="0 bytes"):
        NcclPageReader(short)
