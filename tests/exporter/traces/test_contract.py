"""What the exporter writes, the worker reads: the whole of it or nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_exporter.traces.encode import encode
from argus_traces.errors import TraceDamaged
from argus_traces.reader import read
from exporter.traces.trace_windows import BEGIN, STEP_NS, window

CONTENT = encode(window(500))


def test_the_worker_reads_what_the_exporter_wrote() -> None:
    """Window, slices by category, kernels with their times and flows, samples."""
    given_window = window(500)
    trace = read([CONTENT], "key")
    assert trace.window.name == "rank 3 (dp1 tp0 pp2)"
    assert (trace.window.training_job, trace.window.node) == ("llama-70b", "node-7")
    assert (trace.window.first_step, trace.window.last_step, trace.window.dropped) == (128, 129, 12)
    assert (trace.window.start_ns, trace.window.end_ns) == (BEGIN, BEGIN + 2 * STEP_NS)
    kernels = trace.of("kernel", "memcpy", "memset")
    given_kernels = given_window.kernels
    expected = Counter(
        zip(
            given_kernels["start_ns"].tolist(),
            (given_kernels["start_ns"] + given_kernels["duration_ns"]).tolist(),
            strict=True,
        )
    )
    assert Counter(zip(kernels["start_ns"].tolist(), kernels["end_ns"].tolist(), strict=True)) == expected
    launches = trace.of("launch")
    assert len(launches) == int((given_kernels["issue_ns"] >= 0).sum())
    launched_at = dict(zip(launches["flow"].tolist(), launches["start_ns"].tolist(), strict=True))
    issue = [
        int(kernel["start_ns"]) - launched_at[int(kernel["flow"])] for kernel in kernels if kernel["flow"]
    ]
    assert sorted(issue) == sorted(given_kernels["issue_ns"][given_kernels["issue_ns"] >= 0].tolist())
    phases = trace.of("phase")
    assert len(phases) == len(given_window.spans)
    assert {trace.text(int(phase["group"])) for phase in phases} == {"dp:pp2.tp0"}
    assert Counter(trace.text(int(stack)) for stack in trace.samples["stack"]) == {
        "main (train.py:1);forward (model.py:7)": 10,
        "main (train.py:1)": 3,
        "read (data.py:3)": 2,
    }


@settings(max_examples=200)
@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_truncated_file_is_refused_with_its_name(length: int) -> None:
    """Cut anywhere, also between two packets."""
    with pytest.raises(TraceDamaged, match="job/2026-11-21/3/window"):
        read([CONTENT[:length]], "job/2026-11-21/3/window")


@settings(max_examples=200)
@given(place=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_harmless(place: int, bit: int) -> None:
    """The compressed parts carry a checksum: nothing wrong is ever shown."""
    content = bytearray(CONTENT)
    content[place] ^= 1 << bit
    try:
        trace = read([bytes(content)], "window")
    except TraceDamaged:
        return
    whole = read([CONTENT], "window")
    assert np.array_equal(trace.slices, whole.slices)
    assert trace.window == whole.window
