"""Importers read in bounded memory: the short form of `python -m bench.importers`."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.importers import LIMIT_MB_OF_1_GB, compress, enlarge, measure, real_trace

MEGABYTES = 60


@pytest.mark.traces
@pytest.mark.slow
def test_large_trace_needs_little_more_memory_than_a_small_one(tmp_path: Path, traces: Path):
    """60 MB of trace may cost 60/1000 of what 1 GB may: 30 MB over what the command needs for one event."""
    small = tmp_path / "rank0.json"
    small.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}')
    large, packed = tmp_path / "rank1.json", tmp_path / "rank2.json.gz"
    events = enlarge(real_trace(traces), large, MEGABYTES)
    compress(large, packed)
    allowed = measure(small).peak_mb + LIMIT_MB_OF_1_GB * MEGABYTES / 1000
    for path in (large, packed):
        used = measure(path)
        assert used.kernels == events
        assert used.peak_mb < allowed
