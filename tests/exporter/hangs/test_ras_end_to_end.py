"""From a training process that stops to what is scraped: a real exporter, a real process, a fake RAS."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from argus_exporter.ras.config import RasConfig
from exporter.exporter_process import Samples, config, exporter, scrape, value, wait_for
from exporter.ras.answers import Absentee, Group, Job, Member
from exporter.ras.fake_ras import FakeRas

TESTS = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def trainer(socket: Path, report: Path, **environment: str) -> Iterator[int]:
    """Rank 0 of two, which steps."""
    paths = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter.trainer", str(socket), "0", str(report)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_job_that_stops_has_nccls_word_and_one_that_goes_on_has_none(tmp_path: Path) -> None:
    path = tmp_path / "s"
    settings = dataclasses.replace(config(path), ras=RasConfig(True, after_seconds=1.0, period_seconds=0.2))
    with (
        exporter(settings) as running,
        FakeRas() as server,
        trainer(path, tmp_path / "report", NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid,
    ):

        def samples() -> Samples:
            return scrape(running.url)

        def of_ras() -> list[str]:
            return [name for name, _ in samples() if name.startswith("argus_nccl_ras_")]

        others = [Member(1, 4001, 6), Member(2, 4002, 7)]
        dead = Absentee(3, 4003, unresponsive=True, dead=True)
        server.answers = [Job([Group([Member(0, pid, 7), *others], [dead])]).json()]
        wait_for(lambda: bool(value(samples(), "argus_iteration_last_step", rank="0")), "a step")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: "argus_nccl_ras_absent_processes" in of_ras(), "NCCL's word")
        assert value(samples(), "argus_nccl_ras_absent_processes", rank="0", absence="dead") == 1
        assert value(samples(), "argus_nccl_ras_answer_timestamp_seconds", rank="0", result="answered")
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: not of_ras(), "a job that goes on")
