"""Running totals advance with the records and never fall."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_exporter.config import ExporterConfig
from argus_exporter.kernels.config import WindowsConfig
from argus_exporter.kernels.pipeline import KernelPipeline
from argus_exporter.kernels.totals import CollectiveTotals, KernelIds, KernelTotals
from argus_exporter.place.topology import Identity
from exporter.kernel_rows import NAMES, kernels

GEMM = ("gemm", "compute0")


def totals() -> KernelTotals:
    made = KernelTotals(NAMES)
    made.label({7: "compute0", 20: "nccl:dp"}, {20: "dp"})
    return made


def count(made: KernelTotals, label: tuple[str, str] = GEMM) -> tuple[int, float]:
    found = made.of(label)
    return (found.count, round(found.seconds * 1e9)) if found else (0, 0)


def test_records_count_at_most_two_seconds_later():
    """Not for every packet, but well within a scrape interval."""
    made = totals()
    made.advance(10.0)
    made.add(kernels((0, 40, 1, 7), (0, 60, 1, 7)))
    made.advance(11.9)
    assert count(made) == (0, 0)
    made.advance(12.0)
    assert count(made) == (2, 100)
    made.add(kernels((0, 5, 1, 7)))
    made.advance(14.0)
    assert count(made) == (3, 105)


def test_totals_advance_as_much_more_often_as_windows_are_shorter():
    """A stack that plays ten times as fast scrapes ten times as often; longer windows change nothing."""
    for window_s, every_s in ((60.0, 2.0), (6.0, 0.2), (600.0, 2.0)):
        config = ExporterConfig(windows=WindowsConfig(seconds=window_s))
        pipeline = KernelPipeline(
            config, lambda: Identity("job", 0), {}, lambda: 0.0, lambda *_: None, lambda _: None
        )
        assert pipeline._totals.every_seconds == pytest.approx(every_s)
        assert pipeline.anatomy.every_seconds == pytest.approx(2.5 * every_s)


def test_records_before_the_labels_are_known_count_too():
    """The first window names the streams; what came before it is not lost."""
    made = KernelTotals(NAMES)
    made.add(kernels((0, 40, 1, 7)))
    made.advance(10.0)
    made.label({7: "compute0"}, {})
    made.add(kernels((0, 2, 1, 7)))
    made.advance(12.0)
    assert count(made) == (2, 42)


def test_a_label_that_passes_to_another_stream_goes_on():
    """A counter that fell would read as a restart."""
    made = totals()
    made.add(kernels((0, 40, 1, 7)))
    made.advance(10.0)
    made.label({8: "compute0"}, {})
    made.add(kernels((0, 2, 1, 8)))
    made.advance(12.0)
    assert count(made) == (2, 42)


def test_collectives_of_a_known_dimension_are_told():
    """Once, with their longest; compute is none, and a stream without dimension neither."""
    made = totals()
    made.add(kernels((0, 40, 2, 20), (0, 60, 2, 20), (0, 9, 1, 7), (0, 9, 4, 21)))
    (found,) = made.advance(10.0)
    assert found == CollectiveTotals("all_reduce", "dp", 2, pytest.approx(100e-9), 60e-9)
    assert made.advance(20.0) == []


def test_many_waiting_records_are_summed_before_their_time(monkeypatch):
    """An exporter that is not asked does not keep records for it."""
    monkeypatch.setattr("argus_exporter.kernels.totals._WAITING_LIMIT", 2)
    made = totals()
    for _ in range(5):
        made.add(kernels((0, 40, 1, 7)))
        assert made._waiting_records < 2
    made.advance(10.0)
    assert count(made) == (5, 200)


def test_pairs_beyond_the_limit_are_dropped_and_counted(monkeypatch):
    """A producer that invents kernels costs a bounded amount of memory."""
    monkeypatch.setattr("argus_exporter.kernels.totals._PAIRS_LIMIT", 2)
    made = KernelTotals({})
    made.label({7: "compute0"}, {})
    made.add(kernels(*((0, 1, name, 7) for name in range(10, 20))))
    made.advance(10.0)
    assert made.dropped == 8
    made.add(kernels((0, 1, 10, 7), (0, 1, 30, 7)))
    made.advance(20.0)
    assert (count(made, ("unknown_10", "compute0")), made.dropped) == ((2, 2), 9)
    assert made.of(("unknown_30", "compute0")) is None


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([7, 8, 20, 21])), max_size=8), max_size=8)
)
def test_totals_equal_a_plain_count_however_records_and_labels_come(batches):
    """Labels become known one by one; every record is counted once for the label of its stream."""
    made, streams, sent = KernelTotals(NAMES), {}, Counter()
    for number, batch in enumerate(batches):
        made.add(kernels(*((0, 3, name, stream) for name, stream in batch)))
        sent.update(batch)
        if number < 4:
            stream = (7, 8, 20, 21)[number]
            streams = streams | {stream: f"s{stream}"}
            made.label(streams, {})
        made.advance(10.0 * number)
    expected = {(NAMES[n], f"s{s}"): c for (n, s), c in sent.items() if s in streams}
    ids = KernelIds()
    assert {pair: count(made, (ids[pair[0]], pair[1]))[0] for pair in expected} == expected
