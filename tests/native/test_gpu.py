"""On a GPU: what the injector sees is what torch.profiler sees of the same steps. Skips without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from argus_core import wire
from native import recording
from native.builds import Build
from native.listener import Connection, listening

pytestmark = pytest.mark.gpu
PROGRAM = "bench.gpu_day.program"
"""Its parts `before`, `window`, `after` and `graph`; without a GPU tests/bench/test_gpu_day.py runs it."""


@dataclass(frozen=True)
class Observed:
    """One run of the program: its own words, what came over the wire, and the recording."""

    told: dict[str, Any]
    connection: Connection
    recording: Path

    def durations_us(self, stretch: str) -> dict[str, list[float]]:
        begin, end = self.told["stretches"][stretch]
        durations: dict[str, list[float]] = defaultdict(list)
        for row in self.connection.kernels:
            if begin <= row["start_ns"] <= end:
                durations[self.connection.names[int(row["name_id"])]].append(row["duration_ns"] / 1e3)
        return durations


@pytest.fixture(scope="module")
def observed(plain: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    folder = tmp_path_factory.mktemp("gpu")
    with listening(folder / "exporter.sock") as listener:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
            env={
                "PATH": plain.environment()["PATH"],
                "PYTHONPATH": ":".join(path for path in sys.path if path),
                "CUDA_INJECTION64_PATH": str(plain.library),
                "RANK": "0",
                "ARGUS_DEBUG": "1",
                "ARGUS_ISSUE_LATENCY": "1",
                "ARGUS_SOCKET": str(folder / "exporter.sock"),
                "ARGUS_RECORD": str(folder / "run"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (connection,) = listener.wait_ended()
    print(done.stderr)
    yield Observed(json.loads(done.stdout.strip().splitlines()[-1]), connection, folder / "run.rank0")


def test_counts_are_the_profilers(observed: Observed) -> None:
    """The same steps outside its window: as many of every kernel, copy and set."""
    counts = {wire.encode_name(n).decode(): len(d) for n, d in observed.told["profiler"].items()}
    assert {name: len(d) for name, d in observed.durations_us("before").items()} == counts


def test_median_durations_are_the_profilers(observed: Observed) -> None:
    """Over all kernels within 1 %, as the medians of many."""
    ours = observed.durations_us("before")
    ratios = [
        median(ours[wire.encode_name(name).decode()]) / median(durations)
        for name, durations in observed.told["profiler"].items()
        if len(durations) >= observed.told["steps"]
    ]
    assert median(ratios) == pytest.approx(1.0, abs=0.01)


def test_records_come_again_after_a_window(observed: Observed) -> None:
    """As many as before it; none of the window itself."""
    before, after = observed.durations_us("before"), observed.durations_us("after")
    assert {n: len(d) for n, d in after.items()} == {n: len(d) for n, d in before.items()}
    assert observed.told["statistics"]["pauses"] == observed.told["statistics"]["rearms"] == 1
    assert not observed.durations_us("window")


def test_a_graphs_replays_are_seen(observed: Observed) -> None:
    """Every replay runs at least the 8 matrix products; at most one kernel of a replay has a latency."""
    begin, end = observed.told["stretches"]["graph"]
    kernels = observed.connection.kernels
    replayed = kernels[(kernels["start_ns"] >= begin) & (kernels["start_ns"] <= end)]
    assert len(replayed) >= 8 * observed.told["steps"]
    assert (replayed["issue_ns"] >= 0).sum() <= observed.told["steps"]


def test_launches_are_found(observed: Observed) -> None:
    """Before the window nearly every kernel knows when it was launched."""
    begin, end = observed.told["stretches"]["before"]
    kernels = observed.connection.kernels
    mine = kernels[
        (kernels["start_ns"] >= begin) & (kernels["start_ns"] <= end) & (kernels["operation"] == 0)
    ]
    assert (mine["issue_ns"] >= 0).mean() > 0.99


def test_nothing_was_dropped(observed: Observed) -> None:
    statistics = observed.told["statistics"]
    assert [statistics[f"dropped_{where}"] for where in ("socket", "cupti", "buffers", "invalid")] == [0] * 4


def test_the_recording_is_whole(observed: Observed) -> None:
    """Readable, with a name for every kernel: fit to become a fixture."""
    read = recording.read(observed.recording)
    assert read.cupti_version == observed.told["statistics"]["cupti_version"]
    assert len(read.kernels()) > 1_000
