"""Kernels that carry their communicator count as of its stream; what is known of it is not guessed at."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core import wire
from argus_core.modes import ModeConfig
from argus_exporter.kernels.communicator_streams import by_communicator, is_communicator, stream_of
from argus_exporter.kernels.communicators import CollectiveSpan, find_dimensions
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.kernels.pairs import find_pairs, stream_key
from argus_exporter.kernels.window_summary import WindowStatistics, WindowSummariser
from argus_exporter.place.topology import Identity
from exporter.kernel_rows import NAMES, kernels

ALL_REDUCE, COPY, SEND_RECV = 2, 3, 4
PLACE = Identity(
    "job",
    0,
    world_size=8,
    coordinates=dict.fromkeys(("dp", "tp", "pp"), 0),
    sizes={"dp": 2, "tp": 2, "pp": 2},
)


def launched(name_id: int, slot: int, generation: int = 1, stream: int = 7):
    """Three kernels of a communicator."""
    records = kernels(*((at * 1000, 10, name_id, stream) for at in range(3)))
    records["kilobytes"] = wire.launched_by(slot, generation, sequence=5)
    return records


def dimensions(records, communicators, spans=(), routing=None, identity=PLACE) -> list[str]:
    moved = by_communicator(records)
    found = find_dimensions(moved, find_pairs(moved), NAMES, identity, spans, routing, communicators)
    return list(found.values())


def test_each_communicator_has_a_stream_whatever_it_ran_on():
    """Two of one CUDA stream are two, one of two streams is one; the computation stays where it was."""
    records = np.concatenate(
        [
            launched(ALL_REDUCE, 3),
            launched(ALL_REDUCE, 4),
            launched(ALL_REDUCE, 3, stream=20),
            kernels((0, 5, 1, 7)),
        ]
    )
    streams = by_communicator(records)["stream"].tolist()
    assert streams == [stream_of(3, 1)] * 3 + [stream_of(4, 1)] * 3 + [stream_of(3, 1)] * 3 + [7]
    assert [is_communicator(stream_key(1, stream)) for stream in streams] == [True] * 9 + [False]
    assert set(records["stream"].tolist()) == {7, 20}, "what came stays as it is"


def test_a_slot_that_was_given_away_again_is_another():
    assert stream_of(3, 1) != stream_of(3, 2) != stream_of(4, 2)
    assert stream_of(63, 511 + 512 * 7) == stream_of(63, 511), "9 bits of the generation travel"


def test_the_size_of_a_copy_is_no_communicator():
    """One of 2 TiB, whose kilobytes have the same bit."""
    records = kernels((0, 5, COPY, 7))
    records["kilobytes"] = 1 << 31
    assert by_communicator(records) is records


@pytest.mark.parametrize(
    ("name_id", "fitting", "found"),
    [
        (ALL_REDUCE, {"tp"}, ["tp"]),
        (ALL_REDUCE, {"world"}, ["world"]),
        (ALL_REDUCE, {"tp", "dp"}, []),
        (ALL_REDUCE, set(), []),
        (SEND_RECV, {"pp", "dp"}, ["pp"]),
        (SEND_RECV, set(), ["pp"]),
        (SEND_RECV, {"dp", "tp"}, []),
    ],
)
def test_its_members_say_what_it_is(name_id: int, fitting: set[str], found: list[str]):
    """One dimension fits, or one of those that fit only sends; a pair that fits none is of pipelining."""
    assert dimensions(launched(name_id, 3), {stream_of(3, 1): fitting}) == found


def test_a_communicator_that_nobody_told_of_is_not_guessed_by_elimination():
    """With one dimension its stream would be that of it; a part of the ranks may have communicators too."""
    identity = Identity("job", 0, coordinates={"dp": 0}, sizes={"dp": 8})
    assert dimensions(kernels((0, 10, ALL_REDUCE, 20)), {}, identity=identity) == ["dp"]
    assert dimensions(launched(ALL_REDUCE, 3), {}, identity=identity) == []


@pytest.mark.parametrize(("fitting", "found"), [({"tp", "dp"}, ["dp"]), ({"tp", "pp"}, []), ({"tp"}, ["tp"])])
def test_evidence_and_routing_choose_among_what_fits(fitting: set[str], found: list[str]):
    spans = [CollectiveSpan(0, 10_000, "dp", on_device=True)]
    assert dimensions(launched(ALL_REDUCE, 3), {stream_of(3, 1): fitting}, spans=spans) == found
    assert dimensions(launched(ALL_REDUCE, 3), {stream_of(3, 1): fitting}, routing={"all_*": "dp"}) == found


def test_streams_are_called_by_what_becomes_known_of_their_communicators():
    """At first nobody knows; then one fits; then more members are here, and it does not."""
    summariser, key = WindowSummariser(), stream_of(3, 1)
    records = by_communicator(np.concatenate([launched(ALL_REDUCE, 3), kernels((0, 90, 1, 7))]))

    def window(fitting: set[str]) -> WindowStatistics:
        closed = ClosedWindow(Boundary(1, 0, 1), records, dict(NAMES), np.empty(0, np.int64))
        return summariser.summarise(closed, PLACE, (), 10, ModeConfig(), communicators={key: fitting})

    seen = [window(fitting) for fitting in (set(), {"tp"}, set())]
    assert [one.streams[key] for one in seen] == ["nccl0", "nccl:tp", "nccl0"]
    assert [one.dimensions.get(key) for one in seen] == [None, "tp", None]
    assert all(one.streams[7] == "compute0" for one in seen)
