"""The worker's speed: judging a window, W1 and EROICA alone, and a whole cycle against a real Prometheus.

    python -m bench.l3 [--ranks 10000] [--role-size 8] [--kernels 200] [--pairs 20] [--skip-cycle] [--json]

Compute alone is CPU time of one core. numpy's share is measured on a few kernels and scaled up. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from argus_core import catalogue, native, remote_write
from argus_l3_worker import cross_checks
from argus_l3_worker import job as job_module
from argus_l3_worker.config import Config
from argus_l3_worker.cross_checks import CrossChecks
from argus_l3_worker.cycle import CycleReport, Worker
from argus_l3_worker.job import Found, find
from argus_l3_worker.judge import eroica
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.wasserstein import Mixtures, mean_distances
from argus_l3_worker.read import fetch, prometheus
from argus_l3_worker.read.assemble import JobWindow, assemble
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.mode_columns import concatenate, decode_modes
from argus_l3_worker.roles import coordinates_of
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples, Window
from argus_l3_worker.write import results
from bench.servers import PrometheusServer, process_metric

GRID = 256
_NUMPY_KERNELS = 2
_SERIES_A_REQUEST = 20_000


def cpu_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def mixtures(ranks: int, rng: np.random.Generator) -> Mixtures:
    """Two modes 10x apart, sigma 3 %, GPUs half a percent apart."""
    mu = np.log([1e-4, 1e-3]) + 0.005 * rng.standard_normal((ranks, 1))
    return Mixtures(np.tile([0.7, 0.3], (ranks, 1)), mu, np.full((ranks, 2), 0.03))


def points(of: Mixtures) -> Floats:
    """G = 256 points over both modes."""
    half = np.linspace(-0.17, 0.17, GRID // 2)
    centres = np.median(of.mu, axis=0)
    return np.concatenate((centres[0] + half, centres[1] + half))


def w1_seconds(ranks: int, kernels: int, rng: np.random.Generator) -> float:
    of = mixtures(ranks, rng)
    grid = points(of)

    def all_kernels() -> None:
        for _ in range(kernels):
            mean_distances(of, grid)

    return cpu_seconds(all_kernels)


def without_native(work: Callable[[], float]) -> float:
    os.environ["ARGUS_NO_NATIVE"] = "1"
    try:
        return work()
    finally:
        del os.environ["ARGUS_NO_NATIVE"]


def eroica_seconds(ranks: int, functions: int, rng: np.random.Generator) -> float:
    patterns = np.clip(np.array([0.2, 0.6, 0.1]) * (1.0 + 0.05 * rng.standard_normal((ranks, 3))), 0.0, 1.0)

    def all_functions() -> None:
        for _ in range(functions):
            eroica.distances(patterns, "compute")

    return cpu_seconds(all_functions)


def place_of(rank: int, ranks: int, role_size: int) -> dict[str, str]:
    """Where a rank is: roles of one size one after the other, up to eight tensor indices a stage."""
    role = rank // role_size
    stage, tensor = divmod(role, min(8, max(1, ranks // role_size)))
    place = {"pp": str(stage), "tp": str(tensor), "dp": str(rank % role_size), "node": f"host{rank // 8}"}
    return {**place, "role": f"pp{stage}.tp{tensor}", "gpu_uuid": f"GPU-{rank}"}


def judged_window(ranks: int, pairs: int, role_size: int, rng: np.random.Generator) -> JobWindow:
    """What is published, see there, as it is judged."""
    chips = np.exp(0.005 * rng.standard_normal((ranks, 1)))
    events, medians = np.array([210.0, 90.0]), np.array([1e-4, 1e-3])
    tables = []
    for pair in range(pairs):
        noise = 1.0 + 0.03 * 1.25 / np.sqrt(events) * rng.standard_normal((ranks, 2))
        tables.append(medians * (1 + pair / 7) * chips * noise)
    roles = []
    for begin in range(0, ranks, role_size):
        of = [place_of(rank, ranks, role_size) for rank in range(begin, min(begin + role_size, ranks))]
        own = slice(begin, begin + len(of))
        everyone: Ints = np.arange(len(of), dtype=np.intp)
        roles.append(
            RoleTriples(
                "bench",
                of[0]["role"],
                Window(64, 64),
                tuple(map(str, range(own.start, own.stop))),
                tuple(
                    PairTriples(
                        f"kernel_{pair}",
                        "compute0",
                        everyone,
                        np.tile(events, (len(of), 1)),
                        table[own],
                        table[own] * 1.072,
                    )
                    for pair, table in enumerate(tables)
                ),
                np.full(len(of), np.nan),
                coordinates_of(of, ("pp", "tp", "dp", "node")),
                rng.poisson(pairs, len(of)).astype(float),
                gpus=tuple(one["gpu_uuid"] for one in of),
            )
        )
    return JobWindow(tuple(roles), (), (), {})


def series_of(found: Found) -> int:
    """Series that a cycle writes of a healthy job: shifts, and the rhythm of each rank."""
    judgements = [one for one in found.outcomes.values() if isinstance(one, RoleJudgement)]
    rhythm = CrossChecks("bench", dict.fromkeys(found.ranks, 0.0), {})
    written = [series for one in judgements for series in results.of_ranks(one, "")]
    return len(written) + len(list(cross_checks.series_of(rhythm, "")))


def published(
    ranks: int, pairs: int, role_size: int, stamp: int, rng: np.random.Generator
) -> Iterator[bytes]:
    """Series of one scrape of all ranks: identity, window, and two modes a pair."""
    chips = np.exp(0.005 * rng.standard_normal(ranks))
    for rank in range(ranks):
        base = {"training_job": "bench", "rank": str(rank)}

        def one(family: catalogue.Family, value: float, **labels: str) -> bytes:
            named = remote_write.labels_of(family.name, **base, **labels)  # noqa: B023, called at once
            return remote_write.encode_series(named, value, stamp)

        yield one(catalogue.RANK_INFO, 1.0, **place_of(rank, ranks, role_size))
        yield one(catalogue.KERNEL_WINDOW_LAST_STEP, 64.0)
        yield one(catalogue.KERNEL_WINDOW_STEPS, 64.0)
        yield one(catalogue.KERNEL_CUTOFF, 0.002)
        yield one(catalogue.KERNEL_COVERAGE, 0.9)
        for pair in range(pairs):
            for mode, (median, events) in enumerate(((1e-4, 210.0), (1e-3, 90.0))):
                p50 = median * (1 + pair / 7) * chips[rank]
                noise = 1.0 + 0.03 * 1.25 / np.sqrt(events) * rng.standard_normal()
                pair_labels = {"kernel": f"kernel_{pair}_128x128", "stream": "compute0"}
                if mode == 0:
                    yield one(catalogue.KERNEL_TAIL_EVENTS, float(rng.poisson(1.0)), **pair_labels)
                where = {**pair_labels, "mode": str(mode)}
                yield one(catalogue.KERNEL_MODE_EVENTS, events, **where)
                yield one(catalogue.KERNEL_MODE_P50, float(f"{p50 * noise:.6g}"), **where)
                yield one(catalogue.KERNEL_MODE_P99, float(f"{p50 * noise * 1.072:.6g}"), **where)


class Stopwatch:
    """Where the time of a cycle goes: wraps what decodes and what computes, both by CPU time.

    Decoding overlaps with queries in flight, so only the rest of the cycle is waiting for Prometheus.
    """

    def __init__(self) -> None:
        self.parse = 0.0
        self.compute = 0.0

    def install(self) -> None:
        for module, function, what in (
            (fetch, decode_modes, "parse"),
            (fetch, concatenate, "parse"),
            (job_module, assemble, "parse"),
            (job_module, find, "compute"),
        ):
            setattr(module, function.__name__, self._timed(function, what))

    def _timed(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*arguments)
            finally:
                setattr(self, what, getattr(self, what) + time.thread_time() - begun)

        return timed


async def one_cycle(url: str, at: float) -> CycleReport:
    config = Config(prometheus=PrometheusConfig(url=url, timeout_seconds=300.0))
    telemetry = Telemetry()
    async with aiohttp.ClientSession() as session:
        worker = Worker(prometheus.Prometheus(session, config.prometheus, telemetry), None, config, telemetry)
        return await worker.cycle(at, at)


def whole_cycle(ranks: int, pairs: int, role_size: int, say: Callable[[str], None]) -> dict[str, float]:
    """One window of a fleet in a real Prometheus, judged by a worker that knows nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        server = PrometheusServer(Path(folder)).start()
        try:
            now = float(int(time.time()))
            pending: list[bytes] = []
            for number, series in enumerate(
                published(ranks, pairs, role_size, round(now * 1000), np.random.default_rng(0))
            ):
                pending.append(series)
                if len(pending) == _SERIES_A_REQUEST:
                    server.write(pending)
                    pending = []
                    say(f"{number + 1} series written")
            server.write(pending)
            say("cycle")
            watch = Stopwatch()
            watch.install()
            spent = process_metric(server, "process_cpu_seconds_total")
            begun, own = time.perf_counter(), time.process_time()
            report = asyncio.run(one_cycle(server.url, now))
            seconds, own = time.perf_counter() - begun, time.process_time() - own
            spent = process_metric(server, "process_cpu_seconds_total") - spent
        finally:
            server.stop()
    if sum(len(judgement.ranks) for judgement in report.judgements) != ranks:
        raise RuntimeError(f"the cycle judged something else: {report.abstentions} {report.not_judged[:3]}")
    return {
        "cycle": seconds,
        "query": seconds - watch.parse - watch.compute,
        "parse": watch.parse,
        "compute": watch.compute,
        "worker_cpu": own,
        "prometheus_cpu": spent,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.l3", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--role-size", type=int, help="ranks of a role; left out: one role")
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=20, help="pairs a rank of the cycle")
    parser.add_argument("--skip-cycle", action="store_true", help="compute alone, no Prometheus")
    parser.add_argument("--json", action="store_true", help="print only the JSON line")
    options = parser.parse_args(argv)
    rng = np.random.default_rng(0)

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    rows: list[tuple[str, float]] = []

    def measure(what: str, work: Callable[[], float]) -> float:
        say(what)
        seconds = work()
        rows.append((what, seconds))
        return seconds

    ranks, kernels = options.ranks, options.kernels
    has_native = native.library() is not None
    plain = measure(
        f"W1, {ranks} ranks x {kernels} kernels, G {GRID}, numpy (scaled from {_NUMPY_KERNELS} kernels)",
        lambda: without_native(lambda: w1_seconds(ranks, _NUMPY_KERNELS, rng)) * kernels / _NUMPY_KERNELS,
    )
    small = measure(
        f"W1, {ranks} ranks x {kernels} kernels, G {GRID}, {'compiled' if has_native else 'numpy'}",
        lambda: w1_seconds(ranks, kernels, rng),
    )
    large = measure(f"W1, {10 * ranks} ranks x 20 kernels, G {GRID}", lambda: w1_seconds(10 * ranks, 20, rng))
    patterns = measure("EROICA, 1,000,000 ranks x 20 functions", lambda: eroica_seconds(1_000_000, 20, rng))
    role_size = options.role_size or ranks
    window = judged_window(ranks, options.pairs, role_size, rng)
    judged: list[Found] = []
    where = f"{ranks} ranks in roles of {role_size} x {options.pairs} pairs"
    judge = measure(
        f"judging, {where}", lambda: cpu_seconds(lambda: judged.append(find(window, Config().judge)))
    )
    whole = {} if options.skip_cycle else whole_cycle(ranks, options.pairs, role_size, say)
    rows += [(f"cycle, {where}: {what}", whole[what]) for what in whole]
    say("")
    if not options.json:
        for what, seconds in rows:
            print(f"{what:76} {seconds:8.2f} s")
    print(
        json.dumps(
            {
                "w1_10k_200_s": round(small, 2),
                "w1_10k_200_numpy_s": round(plain, 2),
                "w1_100k_20_s": round(large, 2),
                "eroica_1m_20_s": round(patterns, 2),
                "judge_s": round(judge, 2),
                "series_per_healthy_rank": round(series_of(judged[0]) / ranks, 2),
                **{
                    f"{key}_10k_20_s" if key == "cycle" else f"{key}_s": round(whole[key], 2)
                    for key in ("cycle", "query", "parse", "compute", "worker_cpu", "prometheus_cpu")
                    if key in whole
                },
                "rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
