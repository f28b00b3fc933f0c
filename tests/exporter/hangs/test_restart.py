"""An exporter that starts anew while a job hangs: what it knew must come again, as no iteration will end."""

from __future__ import annotations

import os
import time
from pathlib import Path

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import PageWriter
from argus_training.recorder import Recorder
from exporter.exporter_process import config, exporter, scrape, value, wait_for

KNOWN = (
    "argus_job_last_iteration_timestamp_seconds",
    "argus_job_usual_iteration_seconds",
    "argus_iteration_duration_seconds_count",
)


def told(url: str) -> list[float | None]:
    series = scrape(url)
    return [value(series, name, training_job="job") for name in KNOWN]


def test_it_is_told_when_the_last_iteration_ended(tmp_path: Path) -> None:
    """By the same figures: else the page of the hang would be resolved, and never come again."""
    page = PageWriter()

    def hello() -> wire.Hello:
        clocks = {"monotonic_ns": time.monotonic_ns(), "realtime_ns": time.time_ns()}
        return wire.hello(pid=os.getpid(), rank=0, training_job="job", shares_page=True, **clocks)

    settings = config(tmp_path / "s" / "exporter.sock")
    link = Link(settings.socket.path, hello, patience_s=5.0, page_fd=page.fd)
    recorder = Recorder(link, page=page, background=True, flush_ms=50)
    forward = recorder.phase("forward", wire.Kind.COMPUTE)
    try:
        with exporter(settings) as first:
            for _ in range(6):
                begin = recorder.begin(forward)
                recorder.ended(forward, begin)
                recorder.iteration(begin, time.monotonic_ns())
            wait_for(lambda: told(first.url)[2] == 6, "six iterations")
            recorder.begin(forward)  # and here it hangs
            before = told(first.url)
        with exporter(settings) as second:
            wait_for(lambda: told(second.url) == before, "what was known")
    finally:
        recorder.close(0)
        page.close()
