"""Whatever a producer's kernel records and marks say, windows and totals go on: nothing is raised."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.kernels.config import WindowsConfig
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry
from exporter.kernel_rows import NAMES

U64 = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 10**10)
)
I64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1, 10**9))
KERNELS = st.lists(
    st.tuples(U64, U64, I64, st.sampled_from(sorted(NAMES)), st.integers(0, 2**32 - 1), st.integers(0, 255)),
    min_size=1,
    max_size=6,
)
MARK = st.tuples(U64, U64, U64, U64)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.one_of(KERNELS, MARK), st.floats(0, 100)), max_size=12),
    st.sampled_from([1, 2, None]),
)
@example([((1, 2**63 + 5, 0, 1), 0.0), ((2, 2**64 - 1, 1, 2), 9.0), ([(1, 1, 1, 1, 7, 0)], 9.0)], 2)
def test_any_records_and_marks_leave_a_scrape_that_works(events, steps):
    """Counters are finite and never fall."""
    now = 0.0
    config = ExporterConfig(windows=WindowsConfig(seconds=1.0, steps=steps, settle_seconds=0.5))
    ranks = RankRegistry(config, clock=lambda: now)
    attachment = Attachment(frozenset((wire.Channel.PHASES, wire.Channel.KERNELS)), os.getuid(), 1)
    state = ranks.hello(Identity("job", 0, coordinates={"dp": 0}, sizes={"dp": 2}), attachment)
    names = NameTable(state.texts)
    for name_id, name in NAMES.items():
        names.bind(wire.Name(name_id, wire.encode_name(name)))
    counters: dict[object, float] = {}
    for event, wait in events:
        if isinstance(event, tuple):
            step, end, duration, count = event
            records.iteration(state, wire.Iteration(step, end, duration, count, 0.0, 0.0))
        else:
            rows = [
                (start, d, issue, name, s, 0, name % 3, device, 0)
                for start, d, issue, name, s, device in event
            ]
            records.kernels(state, np.array(rows, KERNEL_DTYPE), names)
        now += wait
        state.kernels.close_windows()
        for family in CollectorRunner(ALL_COLLECTORS, ranks).collect():
            for sample in family.samples:
                assert math.isfinite(sample.value), sample
                if family.type == "counter" and sample.name.startswith(("argus_kernel", "argus_void")):
                    key = sample.name, frozenset(sample.labels.items())
                    assert sample.value >= counters.get(key, 0.0)
                    counters[key] = sample.value
