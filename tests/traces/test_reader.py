"""Files of the exporter's encoder come back as they went in; what is not whole is refused by name."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from argus_exporter.traces.encode import encode
from argus_simulator.traces.cases import Case
from argus_traces.errors import TraceDamaged
from argus_traces.reader import read
from argus_traces.summary import launches_of
from exporter.traces.trace_windows import BEGIN, STEP_NS, TEXTS, window


def test_the_exporters_file_comes_back_record_by_record() -> None:
    """Kernels with names, times and launches; phases; steps; pauses; whose it is."""
    given = window()
    found = read([encode(given)], "file")
    kernels = found.of("kernel", "memcpy", "memset")
    expected = given.kernels[np.argsort(given.kernels["start_ns"], kind="stable")]
    assert sorted(kernels["start_ns"].tolist()) == expected["start_ns"].tolist()
    by_record = sorted(
        zip(
            kernels["start_ns"].tolist(),
            kernels["end_ns"].tolist(),
            map(found.text, kernels["name"].tolist()),
            strict=True,
        )
    )
    assert by_record == sorted(
        (int(k["start_ns"]), int(k["start_ns"] + k["duration_ns"]), TEXTS[int(k["name_id"])])
        for k in expected
    )
    launches = launches_of(found, kernels)
    known = expected["issue_ns"] >= 0
    launched = expected["start_ns"].astype(np.int64) - np.where(known, expected["issue_ns"], 0)
    assert sorted(launches.tolist()) == sorted(launched.tolist())
    assert len(found.of("phase")) == len(given.spans)
    assert found.of("iteration")["step"].tolist() == [128, 129]
    assert {found.text(int(one["category"])) for one in found.of("gc", "compile")} == {"gc", "compile"}
    assert found.window.name == "rank 3 (dp1 tp0 pp2)"
    assert (found.window.first_step, found.window.world_size, found.window.dropped) == (128, 16, 12)
    assert (found.window.start_ns, found.window.end_ns) == (BEGIN, BEGIN + 2 * STEP_NS)


def test_stack_samples_come_back_with_thread_and_frames() -> None:
    """15 samples of two threads, outermost frame first."""
    found = read([encode(window())], "file")
    stacks = [(found.tracks[int(one["track"])], found.text(int(one["stack"]))) for one in found.samples]
    assert len(stacks) == 15
    assert stacks.count(("stacks MainThread", "main (train.py:1);forward (model.py:7)")) == 10
    assert stacks.count(("stacks loader", "read (data.py:3)")) == 2


def test_the_size_of_chunks_does_not_matter() -> None:
    """A store hands out pieces of any size."""
    data = encode(window(200))
    whole = read([data], "file")
    pieces = read([data[at : at + 997] for at in range(0, len(data), 997)], "file")
    assert np.array_equal(whole.slices, pieces.slices) and whole.window == pieces.window


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_is_refused_with_its_name(masked_stage: Case, share: float) -> None:
    """Wherever the cut lies: in a packet, or between two of them."""
    data = masked_stage.files[3]
    cut = data[: int(len(data) * share)]
    with pytest.raises(TraceDamaged, match=r"rank3\.perfetto-trace"):
        read([cut], "rank3.perfetto-trace")


def test_a_file_cut_between_two_packets_is_refused(masked_stage: Case) -> None:
    """No packet is torn then, but the last one, which says whose it is, is missing."""
    trace = perfetto_trace_pb2.Trace.FromString(masked_stage.files[3])
    del trace.packet[-1]
    with pytest.raises(TraceDamaged, match=r"cut\.trace has no event `window`"):
        read([trace.SerializeToString()], "cut.trace")


def test_damaged_bytes_are_refused_and_never_crash(masked_stage: Case) -> None:
    """300 random changes: the file is refused by name, or reads (the change hit a number or a text)."""
    random = np.random.default_rng(4)
    data = bytearray(masked_stage.files[0])
    refused = 0
    for _ in range(300):
        changed = bytearray(data)
        for at in random.integers(0, len(data), 3):
            changed[at] = int(random.integers(256))
        try:
            read([bytes(changed)], "changed.trace")
        except TraceDamaged as error:
            assert "changed.trace" in str(error)
            refused += 1
    assert refused > 100


def test_compressed_packets_that_grow_without_bound_are_refused() -> None:
    """A few kB that decompress to 80 MB."""
    trace = perfetto_trace_pb2.Trace()
    trace.packet.add().compressed_packets = zlib.compress(b"\0" * (80 << 20), 9)
    with pytest.raises(TraceDamaged, match="bomb"):
        read([trace.SerializeToString()], "bomb")


@pytest.mark.parametrize("content", [b"", b"{}", b"\x0a\xff\xff\xff\xff\xff\xff", b"\x0a\x02zz"])
def test_what_is_no_trace_is_refused(content: bytes) -> None:
    """Empty, JSON, absurd lengths, packets of garbage."""
    with pytest.raises(TraceDamaged, match="other"):
        read([content], "other")


def test_slices_that_the_window_cut_end_with_it(masked_stage: Case) -> None:
    """An open phase is shown up to the window's end, and counted."""
    trace = perfetto_trace_pb2.Trace.FromString(masked_stage.files[0])
    ends = [at for at, packet in enumerate(trace.packet) if packet.track_event.type == 2]
    del trace.packet[ends[-1]]
    found = read([trace.SerializeToString()], "open")
    assert found.unfinished == 1
    assert found.slices["end_ns"].max() == found.window.end_ns
