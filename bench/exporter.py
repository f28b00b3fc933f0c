"""The exporter under the load of a GPU host: CPU, memory, scrape latency, bytes.

    python -m bench.exporter [--seconds 60] [--ranks 8] [--events-per-minute 100000] [--json]

A real `argus-exporter serve` process, real sockets: each rank sends one step a second with its phases and
its share of kernel records over 100 (kernel, stream) pairs. While CPU and memory of the exporter process are
measured (/proc), two scrapers ask for /metrics every 15 s, gzipped, as a pair of Prometheus replicas does;
then, under the same load, one asks 200 times for the latency. The last line is JSON.
"""

import argparse
import gzip
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_core.link import Link
from argus_core.version import installed_version

PAIRS = 100
PHASES = (
    "data",
    "forward",
    "backward",
    "optimizer",
    *(f"layer{index}" for index in range(6)),
    "dp-allreduce",
    "gc",
)
# What the gates of docs/benchmarks.md mean: the paper's step and Prometheus' scrape interval.
STEP_S, SCRAPE_S = 4.0, 15.0
LATENCY_SCRAPES = 200
_TICKS = os.sysconf("SC_CLK_TCK")


class Rank:
    """One training process: a step is a batch of kernel records drawn anew from 100 pairs."""

    def __init__(self, socket: Path, rank: int, ranks: int, events: int, rng: np.random.Generator) -> None:
        hello = wire.hello(
            pid=os.getpid(),
            rank=rank,
            world_size=ranks,
            training_job="bench",
            monotonic_ns=time.monotonic_ns(),
            realtime_ns=time.time_ns(),
        )
        self._link = Link(socket, lambda: hello, patience_s=5.0)
        self._rng = rng
        share = 1.0 / np.arange(1, PAIRS + 1)
        self._pair = rng.choice(PAIRS, events, p=share / share.sum())
        self._median = np.exp(rng.uniform(np.log(5e3), np.log(5e5), PAIRS))  # ns
        self._names = np.array([self._link.name_id(f"kernel_{index}_{'x' * 40}") for index in range(PAIRS)])
        self._phases = [self._link.name_id(phase) for phase in PHASES]
        self._step, self._seconds = 0, 0.0

    def step(self) -> None:
        now = time.time_ns()
        self._step += 1
        self._seconds += 1.0
        for phase in self._phases:
            self._link.add(wire.Span(now, 20_000_000 + self._step % 7, self._step, phase, 0, 0, 1, 0))
        payload = self._kernels(now).tobytes()
        limit = wire.records_per_message(wire.Kernel) * wire.Kernel.FORMAT.size
        for start in range(0, len(payload), limit):
            self._link.add_packed(wire.MessageType.KERNELS, payload[start : start + limit])
        self._link.add(wire.Iteration(self._step, now, 10**9, self._step, self._seconds, self._seconds))
        self._link.flush()

    def close(self) -> None:
        self._link.close(0)

    @property
    def dropped(self) -> int:
        return self._link.dropped

    def _kernels(self, now: int) -> KernelArray:
        records = np.zeros(len(self._pair), KERNEL_DTYPE)
        records["start_ns"] = now - np.arange(len(self._pair))[::-1] * 1000
        noise = np.exp(self._rng.normal(0, 0.03, len(self._pair)))
        records["duration_ns"] = (self._median[self._pair] * noise).astype(np.uint64)
        records["issue_ns"] = -1
        records["name_id"] = self._names[self._pair]
        records["stream"] = 7 + self._pair % 3
        return records


class Process:
    """The exporter process, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "exporter.sock"
        log = folder / "exporter.log"
        command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(self.socket)]
        with log.open("w") as stream:
            self.process = subprocess.Popen([*command, "--web.listen-address", "127.0.0.1:0"], stderr=stream)
        deadline = time.monotonic() + 20
        while (found := re.search(r"url=(\S+)/metrics", log.read_text())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the exporter did not start: {log.read_text()}")
            time.sleep(0.05)
        self._connection = http.client.HTTPConnection(urlsplit(found[1]).netloc, timeout=30)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")

    def scrape(self) -> tuple[float, int, int]:
        """Milliseconds, bytes on the wire (gzip), bytes of the exposition."""
        began = time.perf_counter()
        self._connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        body = self._connection.getresponse().read()
        return 1e3 * (time.perf_counter() - began), len(body), len(gzip.decompress(body))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="how long the measured load lasts (default 60)"
    )
    parser.add_argument("--ranks", type=int, default=8, help="ranks on the host (default 8)")
    parser.add_argument("--events-per-minute", type=int, default=100_000, help="kernel records a rank")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="argus-bench-") as folder:
        exporter = Process(Path(folder))
        try:
            result = _measure(exporter, args.ranks, args.events_per_minute // 60, args.seconds, rng)
        finally:
            exporter.process.terminate()
            exporter.process.wait(timeout=10)
    if not args.json:
        print(
            f"argus-exporter {installed_version()}, {args.ranks} ranks x {args.events_per_minute} events/min"
        )
        for key, value in result.items():
            print(f"  {key:28} {value}")
    print(json.dumps(result))
    return 0


def _measure(
    exporter: Process, ranks: int, events_per_step: int, seconds: int, rng: np.random.Generator
) -> dict[str, float]:
    """Warm up until every rank's first window is published, then measure for `seconds`."""
    processes = [Rank(exporter.socket, rank, ranks, events_per_step, rng) for rank in range(ranks)]
    latencies: list[float] = []
    memory: list[float] = []
    on_wire = plain = 0
    warm_steps = 130  # the first complete window of 64 steps ends at step 128; before it there are no modes
    began = time.monotonic()
    for step in range(warm_steps):
        for process in processes:
            process.step()
        if step % 16 == 0:  # warming up need not take real time, but must let the exporter keep up
            exporter.scrape()
    cpu, started = exporter.cpu_seconds(), time.monotonic()
    for second in range(seconds):
        for process in processes:
            process.step()
        if second % SCRAPE_S in (3, 10):
            exporter.scrape()
        memory.append(exporter.rss_mb())
        time.sleep(max(0.0, started + second + 1 - time.monotonic()))
    elapsed = time.monotonic() - started
    cpu_share = (exporter.cpu_seconds() - cpu) / elapsed
    cpu = exporter.cpu_seconds()
    for index in range(LATENCY_SCRAPES):
        if index % 10 == 0:
            for process in processes:
                process.step()
        milliseconds, on_wire, plain = exporter.scrape()
        latencies.append(milliseconds)
        time.sleep(0.1)
    scrape_cpu = (exporter.cpu_seconds() - cpu) / LATENCY_SCRAPES
    for process in processes:
        process.close()
    third = max(1, len(memory) // 3)
    return {
        "cpu_share": round(cpu_share, 4),
        "rss_mb": round(max(memory), 1),
        "rss_growth_mb": round(median(memory[-third:]) - median(memory[:third]), 1),
        "scrape_p50_ms": round(float(np.quantile(latencies, 0.5)), 2),
        "scrape_p99_ms": round(float(np.quantile(latencies, 0.99)), 2),
        # With its share of the load's own work: what other processes on the cores do not disturb.
        "scrape_cpu_ms": round(1e3 * scrape_cpu, 2),
        "scrape_bytes": plain,
        "scrape_gzip_bytes": on_wire,
        "bytes_per_rank_step": round(on_wire / ranks / (SCRAPE_S / STEP_S), 1),
        "records_dropped": sum(process.dropped for process in processes),
        "seconds": round(elapsed, 1),
        "warm_up_seconds": round(started - began, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
