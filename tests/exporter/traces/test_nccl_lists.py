"""What kernels of NCCL do, as traces say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.nccl_page import FUNCTIONS
from argus_exporter.kernels.communicator_streams import Members, stream_of
from argus_exporter.traces.nccl_lists import lists
from argus_exporter.traces.reader import window_of_steps
from argus_exporter.traces.ring import Ring
from exporter.traces.rings import KERNELS, STEP_NS, Producer
from exporter.traces.trace_windows import kernels, operations

SEVERAL = [("AllGather", 4, -1), ("AllReduce", 9, -1), ("AllGather", 5, -1)]


def one(count: int) -> KernelArray:
    """A kernel of NCCL that does so many operations."""
    records = kernels(1)
    records["operation"], records["kilobytes"] = (
        wire.Operation.KERNEL,
        wire.launched_by(2, 1, operations=count),
    )
    return records


def test_collectives_are_told_with_their_numbers() -> None:
    of = one(3)
    found = lists(of, operations(of, [SEVERAL]), {})
    assert (found.texts, found.sequences.tolist()) == (["AllGather 4, AllReduce 9, AllGather 5"], [4])


def test_more_than_are_told_are_counted() -> None:
    of = one(20)
    found = lists(of, operations(of, [[("Broadcast", number, -1) for number in range(wire.LISTED)]]), {})
    assert found.texts[0].startswith("Broadcast 0, Broadcast 1, ")
    assert found.texts[0].endswith(", Broadcast 15, 4 more")


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_what_did_not_come_whole_is_not_told(lost: int) -> None:
    """A message was dropped that had some of the operations."""
    of = one(3)
    told = operations(of, [SEVERAL])
    found = lists(of, told[[place for place in range(3) if place != lost]], {})
    assert (found.texts, found.sequences.tolist()) == ([""], [-1])


def test_a_kernel_that_nobody_told_of_has_no_list() -> None:
    """Of another kernel at another time, or of another communicator at the same time."""
    of, later, other = one(3), one(3), one(3)
    later["start_ns"] += 1
    other["kilobytes"] = wire.launched_by(3, 1, operations=3)
    for another in (later, other):
        assert lists(of, operations(another, [SEVERAL]), {}).texts == [""]


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (None, "Send to 1"),
        (Members({}, ""), "Send to 1"),
        (Members({}, "pp"), "Send to 1 (pp1)"),
        (Members({0: 4, 1: 6}, "pp"), "Send to 1 (rank 6)"),
        (Members({0: 0}, "world"), "Send to 1 (rank 1)"),
    ],
    ids=["nothing known", "no dimension", "place", "on this host", "whole job"],
)
def test_a_peer_is_named_as_far_as_it_is_known(members: Members | None, text: str) -> None:
    of = one(1)
    known = {} if members is None else {stream_of(2, 1): members}
    found = lists(of, operations(of, [[("Send", 0, 1)]]), known)
    assert (found.texts, found.sequences.tolist()) == ([text], [-1])


def test_a_function_of_a_later_library_is_another() -> None:
    of = one(1)
    told = operations(of, [[("Send", 0, 1)]]).copy()
    told["function"] = 200
    assert lists(of, told, {}).texts == [f"{FUNCTIONS[-1]} to 1"]


def test_the_ring_keeps_them_beside_the_kernels(tmp_path: Path) -> None:
    """Those of the window, as they came."""
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    ring.open()
    producer = Producer(ring)
    of = one(3)
    for step in range(3):
        of["start_ns"] = producer.begin + step * STEP_NS + 5
        told = operations(of, [SEVERAL])
        producer.message(wire.MessageType.NCCL_OPERATIONS, told.tobytes(), len(told))
        producer.message(wire.MessageType.KERNELS, of.tobytes(), 1)
        producer.step()
    ring.flush()
    window = window_of_steps(ring.folder, ("job", 0), 1, 1)
    ring.close()
    assert (len(window.kernels), len(window.operations)) == (KERNELS + 1, 3)
    found = lists(window.kernels, window.operations, window.members)
    assert sorted(found.texts)[-1] == "AllGather 4, AllReduce 9, AllGather 5"
