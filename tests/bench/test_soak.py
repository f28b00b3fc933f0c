"""The short form of the soak: each part is killed once; `make verify` plays an hour."""

from __future__ import annotations

import pytest
from bench.soak import soak


@pytest.mark.e2e
def test_what_comes_and_goes_leaves_nothing_and_loses_nothing() -> None:
    """Every round brings 12 peers that send garbage: a tenth of their descriptors kept would be seen."""
    said: list[str] = []
    result = soak(0.0, 0, said.append)
    assert [line for line in said if line.endswith("killed")] == [
        f"{part} is killed" for part in ("exporter", "worker", "prometheus", "store")
    ]
    assert result["cycles"] > 0
    assert result["steps_written"] > 0
    assert result["traces_stored"] > 0
    assert (result["lost_uncounted"], result["sent_not_written"], result["files_left"]) == (0, 0, 0)
    assert result["fds_growth"] <= 8
    assert result["series_growth"] <= 10
    assert result["rss_growth_mb"] <= 40
