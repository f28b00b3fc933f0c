"""Matches that go empty where the store adds labels of a metric's type."""

from __future__ import annotations

import re

import pytest
from tools.lint.matches import complaints
from tools.lint.sources import dashboard_queries


@pytest.mark.parametrize(
    "query",
    [
        "timestamp(argus_a) - argus_a",
        "timestamp(argus_a) - (argus_a > 0)",
        "argus_a and rate(argus_b[5m])",
        "argus_a > rank:argus_b:c",
        "max by (rank) (argus_a) unless last_over_time(argus_b[5m])",
        "sum(timestamp(argus_a) - (argus_a offset 1m))",
        "(argus_a - argus_b) > argus_a",
    ],
)
def test_a_scraped_series_is_not_matched_with_a_computed_one(query: str) -> None:
    """On all labels: the one has `__type__`, the other has not."""
    assert len(list(complaints(query))) == 1


@pytest.mark.parametrize(
    "query",
    [
        "timestamp(argus_a) - (0 + argus_a > 0)",
        "timestamp(argus_a) - on (rank) argus_a",
        "argus_a - argus_a offset 15s",
        "argus_a > 5 and argus_b",
        "rate(argus_a[5m]) / rate(argus_b[5m])",
        "max by (rank) (argus_a) > rank:argus_b:c",
        "argus_a unless ignoring (phase) rank:argus_b:c",
        "time() - max(argus_a)",
    ],
)
def test_like_is_matched_with_like(query: str) -> None:
    """Both scraped, both computed, or on labels that both have."""
    assert list(complaints(query)) == []


def test_no_panel_is_empty_on_a_store_that_types_its_series() -> None:
    """Every query of the dashboards; those of the rules are among the checks of `make lint`."""
    found = [
        (where, complaint)
        for where, query in dashboard_queries(keys=["expr"])
        for complaint in complaints(_plain(query))
    ]
    assert found == []


def _plain(query: str) -> str:
    """With a duration or a recorded series where Grafana fills one in."""
    seconds = re.sub(r"\$\{\w+\}s", "15s", query)
    return re.sub(r"\$\w+", "rank:argus_a:b", re.sub(r"(\[|:|offset )\$\w+", r"\g<1>5m", seconds))
