"""Issue latency by hand."""

from __future__ import annotations

import pytest

from argus_exporter.kernels.issue_latency import IssueLatency, issue_latency
from argus_exporter.kernels.pairs import find_pairs
from exporter.kernel_rows import NAMES, kernels


def latencies(records) -> dict[str, IssueLatency]:
    return issue_latency(records, find_pairs(records), NAMES)


def test_latencies_by_class_with_their_quantiles():
    """Eleven kernels, 0 to 10 us after their launch: the quantiles are events of the window."""
    records = kernels(*((10**6, 10, 1, 7, latency * 1000) for latency in range(11)))
    assert latencies(records) == {
        "compute": IssueLatency(11, pytest.approx(55e-6), {0.1: 1e-6, 0.5: 5e-6, 0.9: 9e-6})
    }


def test_collectives_and_copies_are_classes_of_their_own():
    """A collective waits for peers, a copy for its engine."""
    found = latencies(kernels((0, 1, 1, 7, 10), (0, 1, 2, 20, 20), (0, 1, 3, 13, 30)))
    assert {name: latency.seconds for name, latency in found.items()} == pytest.approx(
        {"compute": 10e-9, "comm": 20e-9, "copy": 30e-9}
    )


def test_unknown_launches_are_left_out():
    """-1 is no latency; a window of them has none."""
    assert latencies(kernels((0, 1, 1, 7, -1), (0, 1, 1, 7, 40)))["compute"].count == 1
    assert latencies(kernels((0, 1, 1, 7, -1))) == {}
