"""The page at the worker's root."""

from __future__ import annotations

import time

from argus_l3_worker.start_page import start_page
from argus_l3_worker.telemetry import Telemetry


def test_the_start_page_says_how_the_worker_is_and_where_its_traces_are() -> None:
    """Its health, the age of the last cycle, and how to ask for the traces of a job's day."""
    telemetry = Telemetry()
    assert "none yet" in start_page(telemetry, "ok", traces=False)
    telemetry.last_success.set(time.time())
    telemetry.cycle_seconds.set(1.5)
    telemetry.anomalies.labels("culprit").set(2)

    page = start_page(telemetry, "nothing was written: <refused>", traces=True)

    assert "<td>nothing was written: &lt;refused&gt;" in page
    assert "<td>0 s ago" in page
    assert "<td>1.50 s" in page
    assert "<td>anomalies held<td>2" in page
    assert "/traces/TRAINING_JOB/" in page
