"""NCCL kernels of a stream whose process group is known become communication phases, as in the series."""

from __future__ import annotations

import dataclasses

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.place.topology import Identity, RoutingTable
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.collectives import collective_phases, dimensions_of

NAMES = {0: "", 1: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 2: "gemm", 3: "dp-allreduce"}
IDENTITY = Identity("job", 0, coordinates={"dp": 0, "tp": 1}, sizes={"dp": 4, "tp": 2})
STEPS = np.array([(5, 0, 1000), (6, 1000, 1000)], ITERATION_DTYPE)


def kernels() -> np.ndarray:
    """On streams 20 and 21 all-reduces, on 7 a matrix product."""
    records = np.zeros(6, KERNEL_DTYPE)
    records["start_ns"] = [100, 300, 1200, 1400, 1500, 400]
    records["duration_ns"] = [10, 20, 30, 40, 50, 60]
    records["name_id"] = [1, 1, 1, 1, 1, 2]
    records["stream"] = [20, 20, 20, 21, 20, 7]
    records["issue_ns"] = 5
    return records


def test_each_collective_of_a_known_stream_is_a_phase() -> None:
    """With the kernel's times, its step, and the group of its dimension; other streams give none."""
    texts = dict(NAMES)
    dimensions = {stream_key(0, 20): "dp"}
    spans, groups = collective_phases(kernels(), texts, dimensions, STEPS, RoutingTable(IDENTITY))
    assert [(int(s["start_ns"]), int(s["duration_ns"]), int(s["step"])) for s in spans] == [
        (100, 10, 5),
        (300, 20, 5),
        (1200, 30, 6),
        (1500, 50, 6),
    ]
    assert {texts[int(s["phase_id"])] for s in spans} == {"all_reduce"}
    assert set(spans["kind"].tolist()) == {wire.Kind.COMM}
    assert set(spans["source"].tolist()) == {wire.Source.KERNEL}
    assert groups == ["dp:tp1"] * 4


def test_host_spans_around_the_launches_tell_the_dimension() -> None:
    """Two dimensions have collectives here, so the name alone does not."""
    nothing = np.empty(0, SPAN_DTYPE)
    assert dimensions_of(kernels(), NAMES, IDENTITY, nothing, [], {}) == {}
    spans = np.zeros(1, SPAN_DTYPE)
    spans["duration_ns"], spans["phase_id"], spans["kind"] = 1300, 3, wire.Kind.COMM
    spans["source"] = wire.Source.HOST
    found = dimensions_of(kernels(), NAMES, IDENTITY, spans, ["dp:tp1"], {})
    assert found[stream_key(0, 20)] == "dp"


def test_one_dimension_needs_no_evidence() -> None:
    """A plain data-parallel job."""
    plain = dataclasses.replace(IDENTITY, coordinates={"dp": 0}, sizes={"dp": 4})
    found = dimensions_of(kernels(), NAMES, plain, np.empty(0, SPAN_DTYPE), [], {})
    assert found == {stream_key(0, 20): "dp", stream_key(0, 21): "dp"}


def test_no_kernels_are_no_phases() -> None:
    """An empty window."""
    nothing = np.empty(0, KERNEL_DTYPE)
    assert dimensions_of(nothing, NAMES, IDENTITY, np.empty(0, SPAN_DTYPE), [], {}) == {}
    spans, groups = collective_phases(nothing, dict(NAMES), {}, STEPS, RoutingTable(IDENTITY))
    assert (len(spans), groups) == (0, [])
