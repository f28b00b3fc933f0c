"""Bytes a rank and step at each stage, on real traces, from what the profiler wrote to what is scraped.

    python -m bench.volume [--traces FOLDER] [--seed N] [--json]

Stages:

* raw JSON: the profiler's trace, uncompressed, divided by its steps;
* kernel records: 40 bytes a kernel, as on the wire and in the ring on disk;
* Perfetto: the trace file that is written when somebody wants one;
* metrics: /metrics of a host with eight ranks after a window of 16 steps, gzipped, by a scrape each 15 s and
  a step of 4 s (3.75 steps a scrape); the kernel families alone, and everything.

A host of eight ranks is resampled from each trace (durations drawn anew, the kernels of one recorded step
repeated); the eight-rank trace gives each rank its own. Compression is raw JSON, or kernel records, a rank
and step over the kernel metrics a rank and step. The last line is JSON, for the trace with the most kernel
metrics; exit status 1 where one exceeds ARGUS table 4, 2 without traces.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry
from prometheus_client.metrics_core import Metric

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.intake import records
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.kernels.streams import label_streams
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors import ALL_COLLECTORS, NoData
from argus_exporter.publish.collectors.base import Collector
from argus_exporter.publish.collectors.issue_latency import IssueLatencyCollector
from argus_exporter.publish.collectors.kernel import KernelCollector
from argus_exporter.publish.collectors.void import VoidCollector
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.replay.reader import read_files
from argus_exporter.replay.recording import RankRecording
from argus_exporter.replay.resample import resample

RANKS = 8
WINDOW_STEPS = 16
STEPS_A_SCRAPE = 15.0 / 4.0
KERNEL_LIMIT, METRIC_LIMIT = 2_700, 18_700
KERNEL_COLLECTORS: tuple[Collector, ...] = (KernelCollector(), IssueLatencyCollector(), VoidCollector())


@dataclass(frozen=True)
class Volume:
    """Bytes a rank and step. None where a stage could not be measured."""

    trace: str
    raw_json_bytes: float
    kernel_record_bytes: float
    perfetto_bytes: float | None
    kernel_bytes_per_rank_step: float
    metric_bytes_per_rank_step: float

    @property
    def compression_raw_json(self) -> float:
        return self.raw_json_bytes / self.kernel_bytes_per_rank_step

    @property
    def compression_kernel_records(self) -> float:
        return self.kernel_record_bytes / self.kernel_bytes_per_rank_step


def default_traces() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "traces"
    return Path(os.environ.get("ARGUS_TRACES", beside))


def trace_sets(folder: Path) -> dict[str, list[Path]]:
    """Name to files: ranks of one job, or repeats of a single one."""
    sets = {name: sorted((folder / name).glob("*.json.gz")) for name in ("dlrm_kineto", "resnet50_kineto")}
    sets |= {path.name.split(".")[0]: [path] for path in sorted((folder / "misc").glob("*.json.gz"))}
    return {name: files for name, files in sets.items() if files}


def measure(name: str, files: Sequence[Path], seed: int) -> Volume:
    """One set of traces.

    Raises:
        ArgusExporterError: the files hold no kernels of a rank.
    """
    recordings = [read_files([path], assume_ranks=True)[0] for path in files]
    steps = [_steps(recording) for recording in recordings]
    raw = [len(gzip.decompress(path.read_bytes())) for path in files]
    sizes = [len(recording.kernels) * KERNEL_DTYPE.itemsize for recording in recordings]
    states = [_published(recordings, name, rank, seed) for rank in range(RANKS)]
    return Volume(
        trace=name,
        raw_json_bytes=float(np.mean(np.divide(raw, steps))),
        kernel_record_bytes=float(np.mean(np.divide(sizes, steps))),
        perfetto_bytes=_perfetto(recordings[0], steps[0]),
        kernel_bytes_per_rank_step=_scraped(KERNEL_COLLECTORS, states) / RANKS / STEPS_A_SCRAPE,
        metric_bytes_per_rank_step=_scraped(ALL_COLLECTORS, states) / RANKS / STEPS_A_SCRAPE,
    )


def _steps(recording: RankRecording) -> int:
    known = recording.kernel_steps[recording.kernel_steps >= 0]
    return max(len(recording.iterations), len(np.unique(known)), 1)


def _published(recordings: Sequence[RankRecording], job: str, rank: int, seed: int) -> RankState:
    """A rank after its first window."""
    own = [recordings[rank]] if len(recordings) == RANKS else list(recordings)
    (played,) = resample(own, ranks=1, steps=WINDOW_STEPS, seed=seed + rank)
    identity = Identity(job, rank, coordinates={"dp": rank}, sizes={"dp": RANKS}, world_size=RANKS)
    state = RankState(identity, ExporterConfig(), clock=lambda: 0.0)
    names = NameTable(state.texts)
    for name_id, text in enumerate(played.texts):
        names.bind(wire.Name(name_id, wire.encode_name(text)))
    records.spans(state, own[0].spans.tobytes(), names)
    ends = (played.iterations["start_ns"] + played.iterations["duration_ns"]).tolist()
    seconds = (played.iterations["duration_ns"] / 1e9).tolist()
    for place, (end, duration) in enumerate(zip(ends, seconds, strict=True), 1):
        total, squared = sum(seconds[:place]), sum(value**2 for value in seconds[:place])
        records.iteration(state, wire.Iteration(place, end, int(duration * 1e9), place, total, squared))
    records.kernels(state, played.kernels, names)
    boundary = Boundary(WINDOW_STEPS, WINDOW_STEPS, ends[-1])
    window = ClosedWindow(
        boundary, played.kernels, dict(enumerate(played.texts)), np.array(ends[:-1], np.int64)
    )
    state.kernels.publish(state.kernels.summarise(window))
    return state


class _Families(CollectorRegistry):
    """What the given collectors say of the given ranks."""

    def __init__(self, collectors: Sequence[Collector], states: Sequence[RankState]) -> None:
        super().__init__()
        self._collectors, self._states = collectors, states

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            try:
                yield from list(collector.collect(self._states, 0.0))
            except NoData:
                continue


def _scraped(collectors: Sequence[Collector], states: Sequence[RankState]) -> int:
    return len(gzip.compress(generate_latest(_Families(collectors, states)), compresslevel=6))


def _perfetto(recording: RankRecording, steps: int) -> float | None:
    """Bytes a step of the trace file of the whole recording; None without the package perfetto."""
    try:
        from argus_exporter.traces.encode import encode
        from argus_exporter.traces.window import TraceWindow

        window = TraceWindow(
            identity=recording.identity,
            begin_ns=recording.begin_ns,
            end_ns=recording.end_ns,
            texts=dict(enumerate(recording.texts)),
            kernels=recording.kernels,
            streams=label_streams(recording.kernels, dict(enumerate(recording.texts))),
            iterations=recording.iterations,
        )
        return len(encode(window)) / steps
    except (ImportError, ArgusExporterError) as error:
        print(f"Perfetto not measured: {error}", file=sys.stderr)
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.volume", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=default_traces(), help="folder of the real traces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the JSON line alone")
    arguments = parser.parse_args()
    found: list[Volume] = []
    for name, files in trace_sets(arguments.traces).items():
        try:
            found.append(measure(name, files, arguments.seed))
        except ArgusExporterError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
    if not found:
        print(f"no traces in {arguments.traces}; name their folder with --traces", file=sys.stderr)
        return 2
    if not arguments.json:
        print_table(found)
    worst = max(found, key=lambda volume: volume.kernel_bytes_per_rank_step)
    result = dataclasses.asdict(worst) | {
        "compression_raw_json": worst.compression_raw_json,
        "compression_kernel_records": worst.compression_kernel_records,
    }
    print(json.dumps({key: round(v, 1) if isinstance(v, float) else v for key, v in result.items()}))
    kept = all(
        volume.kernel_bytes_per_rank_step <= KERNEL_LIMIT
        and volume.metric_bytes_per_rank_step <= METRIC_LIMIT
        for volume in found
    )
    return 0 if kept else 1


def print_table(found: Sequence[Volume]) -> None:
    print("Bytes a rank and step                         as scraped, gzipped      compression of")
    print(
        f"{'trace':32} {'raw JSON':>10} {'records':>9} {'Perfetto':>9}"
        f" {'kernels':>9} {'everything':>11} {'JSON':>7} {'records':>8}"
    )
    for volume in found:
        perfetto = "-" if volume.perfetto_bytes is None else f"{volume.perfetto_bytes:.0f}"
        print(
            f"{volume.trace[:32]:32} {volume.raw_json_bytes:10.0f} {volume.kernel_record_bytes:9.0f}"
            f" {perfetto:>9} {volume.kernel_bytes_per_rank_step:9.0f}"
            f" {volume.metric_bytes_per_rank_step:11.0f} {volume.compression_raw_json:6.0f}x"
            f" {volume.compression_kernel_records:7.0f}x"
        )
    print(f"{'at most (ARGUS table 4)':32} {'':10} {'':9} {'':9} {KERNEL_LIMIT:9} {METRIC_LIMIT:11}")


if __name__ == "__main__":
    sys.exit(main())
