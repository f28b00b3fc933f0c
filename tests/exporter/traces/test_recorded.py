"""A trace that the exporter's encoder made of kernels of an H100 opens, and is read, record by record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from argus_traces.reader import read
from recorded.files import recorded
from trace_processor import open_trace


@pytest.mark.servers  # node runs the trace processor
def test_a_trace_of_a_gpu_is_what_perfetto_and_the_analysis_read(tmp_path: Path) -> None:
    """4,140 kernels, copies and sets within 84 ms of one stream, which never overlap there."""
    data = recorded("kernels.perfetto-trace")
    trace = read([data], "recorded")
    rows = trace.of("kernel", "memcpy", "memset")
    assert (trace.window.training_job, trace.window.rank, trace.window.dropped) == ("gpu-day", 0, 0)
    read_rows = Counter(
        zip(
            rows["start_ns"].tolist(),
            (rows["end_ns"] - rows["start_ns"]).tolist(),
            map(trace.text, rows["name"].tolist()),
            strict=True,
        )
    )
    assert read_rows.total() == 4140
    assert (rows["start_ns"][1:] >= rows["end_ns"][:-1]).all()
    with open_trace(data, folder=tmp_path) as opened:
        slices = opened.rows(
            "select ts, dur, name from slice where category in ('kernel', 'memcpy', 'memset')"
        )
    assert Counter(slices) == read_rows
