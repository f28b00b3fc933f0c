"""An hour of a real trace mints hardly a series: modes and top pairs keep their identity.

Sixty windows resampled from a real ResNet-50 trace (every duration drawn anew, smoothed bootstrap). Churn is
the share of series that no window before had: new series after the first window / series summed over windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors.kernel import KernelCollector
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.replay.reader import read_files
from argus_exporter.replay.resample import resample

pytestmark = pytest.mark.traces

WINDOWS, STEPS = 60, 16
Series = frozenset[tuple[str, frozenset[tuple[str, str]]]]


@pytest.fixture(scope="module")
def hour(traces: Path) -> list[ClosedWindow]:
    """Sixty windows of one rank, about 23,000 kernels each."""
    recordings = read_files(sorted((traces / "resnet50_kineto").glob("*.json.gz"))[:2], assume_ranks=True)
    windows = []
    for number in range(WINDOWS):
        (rank,) = resample(recordings, ranks=1, steps=STEPS, seed=7, draw=number)
        boundary = Boundary((number + 1) * STEPS, STEPS, int(rank.kernels["start_ns"].max()))
        names = dict(enumerate(rank.texts))
        windows.append(ClosedWindow(boundary, rank.kernels, names, np.empty(0, np.int64)))
    return windows


@dataclass(frozen=True)
class Churn:
    minted: int
    series_windows: int
    first: int

    @property
    def share(self) -> float:
        return self.minted / self.series_windows


def published(windows: list[ClosedWindow]) -> Iterator[Series]:
    """The kernel series that a scrape sees after each window."""
    state = RankState(Identity("resnet50", 0, coordinates={"dp": 0}), ExporterConfig(), clock=lambda: 0.0)
    names = NameTable(state.texts)
    for window in windows:
        for name_id, name in window.names.items():
            names.bind(wire.Name(name_id, wire.encode_name(name)))
        records.kernels(state, window.records, names)
        state.kernels.publish(state.kernels.summarise(window))
        yield frozenset(
            (sample.name, frozenset(sample.labels.items()))
            for family in KernelCollector().collect([state], 0.0)
            for sample in family.samples
        )


def churn(windows: list[ClosedWindow]) -> Churn:
    known: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    minted = total = first = 0
    for number, series in enumerate(published(windows)):
        total += len(series)
        if number == 0:
            first = len(series)
        else:
            minted += len(series - known)
        known |= series
    return Churn(minted, total, first)


def changed(
    windows: list[ClosedWindow], durations: Callable[[int, np.ndarray, np.ndarray], np.ndarray]
) -> list[ClosedWindow]:
    """The same windows with durations made by (number of the window, records, durations)."""
    result = []
    for number, window in enumerate(windows):
        records = window.records.copy()
        new = durations(number, records, records["duration_ns"].astype(np.float64))
        records["duration_ns"] = np.maximum(np.rint(new), 1).astype(np.uint64)
        result.append(ClosedWindow(window.boundary, records, window.names, window.step_ends_ns))
    return result


def test_a_healthy_hour_mints_under_one_percent(hour: list[ClosedWindow]):
    """Sixty windows, about 250 series: what resampling moves is matched."""
    found = churn(hour)
    print(found)
    assert 150 < found.first < 400
    assert found.share < 0.01


def test_a_drift_by_seven_percent_mints_no_more(hour: list[ClosedWindow]):
    """A GPU that becomes 7 % slower over the hour, or at once, keeps its series."""
    gradual = churn(changed(hour, lambda number, _, d: d * (1 + 0.07 * number / WINDOWS)))
    sudden = churn(changed(hour, lambda number, _, d: d * (1.07 if number >= 30 else 1.0)))
    print(gradual, sudden)
    assert gradual.share < 0.01
    assert sudden.share < 0.01


def test_a_mode_that_appears_and_vanishes_takes_its_series_again(hour: list[ClosedWindow]):
    """The largest kernel has a tenth of its events twice as long in five windows of every fifteen."""
    first = hour[0].records
    seconds = np.bincount(first["name_id"], weights=first["duration_ns"])
    largest = int(np.argmax(seconds))

    def sometimes(number: int, records: np.ndarray, durations: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(number)
        hit = (records["name_id"] == largest) & (rng.random(len(records)) < 0.1) & (number % 15 >= 10)
        return np.where(hit, durations * 2.0, durations)

    found = churn(changed(hour, sometimes))
    print(found)
    assert found.share < 0.01


def test_top_pairs_do_not_take_turns(hour: list[ClosedWindow]):
    """Near the cutoff a pair stays until it is clearly out: hardly any comes or goes between windows."""
    pairs = [
        {labels for name, labels in series if name == "argus_kernel_tail_events"}
        for series in published(hour)
    ]
    moves = sum(len(after - before) for before, after in pairwise(pairs))
    print(moves, sum(map(len, pairs)))
    assert {len(of_window) for of_window in pairs} == {20}
    assert moves / sum(map(len, pairs)) < 0.01
