"""The long proofs and all benchmarks, ending in one table: `make verify`.

    python -m bench.verify [--only NAME ...] [--demo-seeds N] [--fuzz-examples N]

Each line of the table is one gate of docs/benchmarks.md with what was measured here beside it. A benchmark
prints its own table while it runs. Exit status 1 when a promise was not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Promise:
    """One measured number against its budget."""

    what: str
    measured: str
    budget: str
    kept: bool


@dataclass(frozen=True)
class Options:
    demo_seeds: int
    fuzz_inputs: int


def at_most(what: str, value: float, limit: float, unit: str = "") -> Promise:
    return Promise(what, f"{value:g}{unit}", f"<= {limit:g}{unit}", value <= limit)


def at_least(what: str, value: float, limit: float, unit: str = "") -> Promise:
    return Promise(what, f"{value:g}{unit}", f">= {limit:g}{unit}", value >= limit)


def benchmark(module: str, *arguments: str) -> dict[str, Any]:
    """Run `python -m module`, show its output, and read the JSON of its last line."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        raise RuntimeError(f"{module} ended with status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def modes(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.modes")
    yield at_most("clustering a rank-window, compiled", result["rank_window_ms"], 25, " ms")
    twin = benchmark("bench.modes", "--numpy", "--json", "--repeats", "3")
    yield at_most("clustering a rank-window, numpy", twin["rank_window_ms"], 80, " ms")
    yield at_least("three modes counted exactly", result["exact_k"], 0.90)
    yield at_least("p25..p95 within 2 %", result["p25_p95_within_2pct"], 0.83)


def exporter(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.exporter", "--seconds", "70")
    yield at_most("exporter, 8 ranks x 1e5 events/min: share of a core", result["cpu_share"], 0.01)
    yield at_most("exporter: memory", result["rss_mb"], 250, " MB")
    yield at_most("exporter: memory growth", result["rss_growth_mb"], 5, " MB")
    yield at_most("exporter: scrape p99", result["scrape_p99_ms"], 25, " ms")
    yield at_most("all channels: bytes a rank and step", result["bytes_per_rank_step"], 18_700)


def volume(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.volume")
    yield at_most("kernels: bytes a rank and step, real traces", result["kernel_bytes_per_rank_step"], 2_700)
    yield at_most("metrics: bytes a rank and step, real traces", result["metric_bytes_per_rank_step"], 18_700)


def anatomy(_: Options) -> Iterator[Promise]:
    """GPU time of phases by what ran."""
    result = benchmark("bench.anatomy")
    yield at_most(f"anatomy: of {result['worlds']} random worlds, unlike brute force", result["different"], 0)
    share = result["error_share"]
    yield at_most(f"anatomy: error on {result['traces']} real traces", 1.0 if share is None else share, 0.01)
    yield at_most("anatomy: CPU time a kernel", result["ns_per_kernel"], 200, " ns")
    yield at_most("anatomy: series of a rank", result["series_per_rank"], 30)


def injector(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.injector")
    yield at_most("kernel injector, CPU time a record", result["ns_per_record"], 100, " ns")
    yield at_most("kernel injector, drops at 50,000 kernels/s", result["drops_at_50k"], 0)
    yield at_most("kernel injector, records lost uncounted", result["burst_uncounted"], 0)


def nccl(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.nccl", "--batches", "1250000")  # 1e8 events of each interface
    yield at_most("NCCL's plugin, CPU time a network callback, p99", result["step_ns_p99"], 50, " ns")
    yield at_most("NCCL's plugin, allocations on its threads", result["allocations"], 0)
    yield at_most("NCCL's plugin, locks on its threads", result["locks"], 0)
    yield at_most("NCCL's plugin, memory growth", result["rss_growth_mb"], 5, " MB")
    yield at_most("NCCL's plugin, events dropped", result["dropped"], 0)
    soak = "threads_call_at_once"
    yield passing_tests("NCCL's plugin, ten minutes, sanitizers too", "tests/native/test_nccl.py", "-k", soak)


def traces(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.traces")
    yield at_most("traces: CPU time for 10,000 kernels", result["ms_per_10k_events"], 20, " ms")
    yield at_most("traces: bytes a rank and step, paper's volume", result["bytes_per_rank_step"], 443_000)
    yield at_most("trace ring, 8 ranks x 1e5 events/min: share of a core", result["ring_core_share"], 0.002)


def overhead(_: Options) -> Iterator[Promise]:
    # Beside ARGUS, without a budget; where it cannot be had, its figure is null.
    subprocess.run(["make", "--no-print-directory", "traceml"], cwd=REPOSITORY, check=False)
    result = benchmark("bench.overhead", "--minutes", "10")
    yield at_most("phases: training-thread time a step", result["phases_us_per_step"], 20, " us")
    fresh = result["detail"]["back_to_back"]["added_us_95"]["low"]
    yield at_most("the same of processes with and without: at least", fresh, 20, " us")
    yield at_most("training process: memory growth in 10 minutes", result["rss_growth_mb"], 5, " MB")
    yield at_most("layers: share of a step of 1 s, 1,280 calls in it", result["layers_share"], 0.001)
    if result["stacks_core_share"] is not None:
        yield at_most("stacks of one rank, from outside: share of a core", result["stacks_core_share"], 0.01)


def torches(_: Options) -> Iterator[Promise]:
    """Real training programs on the oldest torch that is supported, and on the newest that was tried."""
    packages = (REPOSITORY / "tests" / "frameworks" / "packages.txt").read_text()
    for version in re.findall(r"^# torch==(\S+) the (?:oldest|newest)", packages, re.MULTILINE):
        command = [sys.executable, "-m", "tests.frameworks", "--torch", version]
        failed = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
        yield at_most(f"training programs on torch {version}: exit status", failed, 0)


def importers(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.importers")
    yield at_most("import of a 1 GB trace: peak memory", result["plain_peak_mb"], 500, " MB")
    yield at_most("import of a 1 GB trace, gzip: peak memory", result["gzip_peak_mb"], 500, " MB")


def fuzz(options: Options) -> Iterator[Promise]:
    """Hostile bytes into the intake and the importers."""
    result = benchmark("bench.fuzz", "--inputs", str(options.fuzz_inputs))
    yield at_least("hostile inputs into the intake", result["wire_inputs"], options.fuzz_inputs)
    yield at_least("hostile inputs into the importers", result["importer_inputs"], options.fuzz_inputs)
    yield at_most("of these: crash, hang, leak or growth", result["findings"], 0)


def blame(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.blame", "--seeds", "200")
    yield at_least("blame over 200 simulated cases", result["right_ratio"], 0.95)
    yield at_most("blame: healthy jobs accused", result["healthy_accused"], 0)


def l3(_: Options) -> Iterator[Promise]:
    result = benchmark("bench.l3", "--role-size", "8")
    yield at_most("W1, 10,000 ranks x 200 kernels", result["w1_10k_200_s"], 10, " s")
    yield at_most("EROICA, 1,000,000 ranks x 20 functions", result["eroica_1m_20_s"], 10, " s")
    yield at_most("L3 cycle, 10,000 ranks x 20 pairs", result["cycle_10k_20_s"], 60, " s")
    yield at_most("L3 cycle, 1,250 roles: CPU of the worker itself", result["worker_cpu_s"], 5, " s")
    beside = result["parse_s"] + result["compute_s"]
    yield at_most(
        "L3 cycle beside the server's answer, 10,000 ranks x 20 pairs in roles of 8", beside, 5, " s"
    )
    yield at_most("L3 judging, the same", result["judge_s"], 5, " s")
    yield at_most("L3 series of a healthy rank", result["series_per_healthy_rank"], 10)
    quality = benchmark("bench.l3_quality", "--cases")
    yield at_most("L3: healthy fleets accused", quality["false_anomalies"], 0)
    yield at_least("L3: faults found", quality["recall"], 1.0)
    day = benchmark("bench.l3_quality", "--chip", "0.03", "--role-size", "4")  # the hardest cell
    yield at_most("L3: accused in a day of 10,240 ranks, chips 3 % apart, roles of 4", day["accused"], 0)
    of_eight = benchmark("bench.l3_quality", "--role-size", "8", "--windows", "1")
    for size, found, least in ((4, day, 0.7), (8, of_eight, 0.85)):
        at = f"roles of {size}"
        yield at_least(f"L3: x1.1 found in two hours, chips 3 % apart, {at}", found["found_x110_at_3"], 0.9)
        yield at_least(
            f"L3: x1.05 found in two hours, chips 2 % apart, {at}", found["found_x105_at_2"], least
        )


def dashboards(_: Options) -> Iterator[Promise]:
    """Every query of every panel, with 1,024 ranks and with 10,240."""
    result = benchmark("bench.dashboards")
    yield at_most("dashboards: queries refused", result["errors"], 0)
    yield at_most("dashboards: panels without data that exists", result["empty"], 0)
    yield at_most("dashboards: slowest query at 10,240 ranks", result["slowest_s"], 2, " s")


def rules(_: Options) -> Iterator[Promise]:
    """What all rules cost a real Prometheus that scrapes 10,240 ranks."""
    result = benchmark("bench.rules")
    where = f"rules at 10,240 ranks, Prometheus {result['prometheus']}"
    yield at_most(f"{where}: p95 of a group", round(result["group_p95_s"], 2), 1, " s")
    yield at_most(f"{where}: all groups in 15 s", round(result["sum_s"], 1), 12, " s")
    yield at_most(f"{where}: memory", round(result["rss_gb"], 2), 2.5, " GB")


def budget(_: Options) -> Iterator[Promise]:
    """What `argus-exporter budget` forecasts, against a real Prometheus that holds the fleet."""
    result = benchmark("bench.budget", "--ranks", "1024")
    off = abs(result["series_predicted"] / result["series"] - 1)
    yield at_most("budget: series of the forecast off by", round(off, 3), 0.1)
    share = result["rss_gb"] / result["memory_predicted_gb"]
    yield at_most("budget: Prometheus' memory over its forecast", round(share, 2), 1.0)


def regression(_: Options) -> Iterator[Promise]:
    """L1 in numpy, which its rules equal: changes at each age, step and size, and healthy hours."""
    result = benchmark("bench.regression", "--seeds", "3")
    yield at_most("L1: regressions found late, of all", round(result["late"] / result["cases"], 3), 0.05)
    yield at_most("L1: holes in six hours", result["holes"], 0)
    yield at_least("L1: healthy hours", result["healthy_hours"], 360)
    yield at_most("L1: false findings in them", result["false_spells"], 0)


def passing_tests(what: str, *selected: str) -> Promise:
    """Tests in their long form (tests/long_forms.py); skipped is not passed."""
    command = [sys.executable, "-m", "pytest", "-q", *selected]
    environment = os.environ | {"ARGUS_LONG_FORMS": "1"}
    said = ""
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:  # as they come: a row may take half an hour
            print(line, end="", flush=True)
            said = line.strip() or said
    outcome = said.partition(" in ")[0]
    return Promise(
        what, outcome, "all passed", re.fullmatch(r"[1-9]\d* passed(, \d+ deselected)?", outcome) is not None
    )


def soak(_: Options) -> Iterator[Promise]:
    """An hour in which all that is watched comes and goes, and parts are killed."""
    result = benchmark("bench.soak", "--minutes", "60")
    yield at_most("soak: descriptors more than at first", result["fds_growth"], 8)
    yield at_most("soak: memory more than at first", result["rss_growth_mb"], 32, " MB")
    yield at_most("soak: series of no job more than at first", result["series_growth"], 10)
    yield at_most("soak: series of jobs that are over", result["series_left"], 0)
    yield at_most("soak: files left", result["files_left"], 0)
    yield at_most("soak: lost and not counted", result["lost_uncounted"], 0)
    yield at_most("soak: sent and not written", result["sent_not_written"], 0)


def rules_alone(_: Options) -> Iterator[Promise]:
    """What `make test` plays beside one another, each in a storage of its own."""
    yield passing_tests("rules: every story alone", "tests/rules", "-m", "beside_others")


def long_forms(_: Options) -> Iterator[Promise]:
    """What `make test` does on fewer seeds, or of several ways on one."""
    worker = ("tests/l3_worker/test_chip_spread.py", "tests/l3_worker/test_real_traces.py")
    yield passing_tests("worker: healthy chips and real traces, more seeds", *worker)
    training = ("tests/training/test_waits.py", "tests/training/test_compiled.py")
    yield passing_tests("training: all ways to compile, and to wait", *training)
    yield passing_tests("remote write 1.0 and 2.0 into Prometheus", "tests/l3_worker/test_remote_write.py")
    yield passing_tests("manifests by the reference jsonnet", "tests/deploy/test_mixin_import.py")
    yield passing_tests("the GPU day on stand-ins, all steps", "tests/bench/test_gpu_day.py")


def dist(_: Options) -> Iterator[Promise]:
    """What goes to machines without a checkout, the images too, which `make test` leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        result = benchmark("tools.dist", "--output", folder)
    older = tuple(map(int, result["glibc"].split("."))) <= (2, 28)
    yield Promise("wheel: glibc that its libraries need", result["glibc"], "<= 2.28", older)
    for what in ("chart_objects_equal", "image_serves"):
        yield Promise(f"dist: {what}", str(result[what]), "True", result[what] is True)


def play(_: Options) -> Iterator[Promise]:
    """Jobs in virtual time, against the same jobs on the real stack."""
    for seed in (0, 1):
        result = benchmark("bench.play.compare", "--seed", str(seed))
        different = result["shifted"] + result["only_live"] + result["only_fast"]
        # Ranks of a real job take a fraction of a second to appear: who is scraped then looks incomplete.
        what = f"fast play, seed {seed}: {result['alerts']} alerts, share as on the real stack"
        yield at_least(what, 1 - different / max(1, result["alerts"]), 0.95)


def hangs(_: Options) -> Iterator[Promise]:
    """Random hangs in virtual time; nothing of them was recorded from a GPU."""
    result = benchmark("bench.hangs", "--cases", "200")
    yield at_least("hangs (fake): named right", result["named_right"], 0.95)
    yield at_most("hangs (fake): ranks accused that wait", result["innocents"], 0)
    seconds = result["seconds_p95"]
    what = "hangs (fake): from stallMinSeconds to a page with proof, p95"
    yield at_most(what, float("inf") if seconds is None else seconds, 20, " s")
    yield at_most("hangs (fake): pauses told", result["pauses_told"], 0)
    yield passing_tests("hangs of a real job on gloo", "tests/e2e/test_hangs.py")


def demo(options: Options) -> Iterator[Promise]:
    """The whole chain, over seeds: which rank and phase is slow varies."""
    command = [str(Path(sys.executable).with_name("argus-simulator")), "demo", "--json", "--seed"]
    right = 0
    for seed in range(options.demo_seeds):
        done = subprocess.run([*command, str(seed)], capture_output=True, text=True, check=False)
        right += done.returncode == 0
        print(f"demo seed {seed}: {done.stdout.strip() or done.stderr.strip()[-500:]}", flush=True)
    yield Promise(
        "demo finds exactly the slow rank",
        f"{right} of {options.demo_seeds}",
        "all",
        right == options.demo_seeds,
    )


def demo_torch(_: Options) -> Iterator[Promise]:
    """The demo with PyTorch on four processes."""
    yield passing_tests("demo with real training", "tests/simulator/test_demo.py", "-k", "real_training")


def score(_: Options) -> Iterator[Promise]:
    """Every row of the fault lab by the shipped rules in virtual time, one seed."""
    command = [str(Path(sys.executable).with_name("argus-simulator")), "score", "--seed", "0", "--json"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"argus-simulator score ended with status {done.returncode}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    rows = f"{result['scenarios']} high-severity rows"
    yield at_least(f"{rows}: detected", result["detection"], 0.95)
    yield at_least(f"{rows}: rank precision", result["precision"], 0.95)
    yield at_least(f"{rows}: rank recall", result["recall"], 0.95)
    yield at_least(f"{rows}: team right", result["team"], 0.9)
    hours = f"{result['healthy_job_hours']:.1f} healthy job-hours"
    yield at_most(f"false accusations in {hours}", result["false_accusations"], 0)
    yield at_most("score of one seed", round((time.monotonic() - began) / 60, 1), 20, " min")


PROOFS: dict[str, Callable[[Options], Iterator[Promise]]] = {
    "modes": modes,
    "exporter": exporter,
    "volume": volume,
    "anatomy": anatomy,
    "injector": injector,
    "nccl": nccl,
    "overhead": overhead,
    "torches": torches,
    "importers": importers,
    "fuzz": fuzz,
    "traces": traces,
    "blame": blame,
    "l3": l3,
    "regression": regression,
    "dist": dist,
    "long_forms": long_forms,
    "rules_alone": rules_alone,
    "rules": rules,
    "budget": budget,
    "dashboards": dashboards,
    "play": play,
    "hangs": hangs,
    "soak": soak,
    "demo": demo,
    "demo_torch": demo_torch,
    "score": score,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PROOFS, default=list(PROOFS), help="run these alone")
    parser.add_argument("--demo-seeds", type=int, default=16, help="demos to play (default: %(default)s)")
    parser.add_argument(
        "--fuzz-inputs", type=int, default=100_000, help="of the intake, and as many of the importers"
    )
    args = parser.parse_args()
    promises: list[Promise] = []
    for name in args.only:
        print(f"== {name}", flush=True)
        try:
            promises += PROOFS[name](Options(args.demo_seeds, args.fuzz_inputs))
        except (RuntimeError, KeyError, ValueError) as error:
            promises.append(Promise(name, f"did not run: {error}", "runs", False))
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    width = max(len(promise.what) for promise in promises)
    measured = max(len(promise.measured) for promise in promises)
    for promise in promises:
        verdict = "kept" if promise.kept else "NOT KEPT"
        print(f"{promise.what:{width}}  {promise.measured:{measured}}  {promise.budget:24}  {verdict}")
    return 0 if all(promise.kept for promise in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
