"""What the worker finds and whom it wrongly accuses, on synthetic fleets of any size.

    python -m bench.l3_quality [--seed 0] [--ranks 10000] [--kernels 200] [--cycles 10] [--json]

Cases: healthy for ten windows, with and without outliers; one rank 7 % slow; one mode of one kernel 12 %
slower on one rank; one rank of which 2 % of the launches take far longer; 30 % and 50 % of the ranks slow by
12 %; a rank that is late to its collectives. A verdict needs two of three windows, as in production. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupHistory, GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.role_judgement import RoleJudgement, judge_role
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.triples import RoleTriples
from bench.l3_fleet import Faults, Fleet, fleet

CONFIG = JudgeConfig()


@dataclass(frozen=True)
class Outcome:
    """One case: what was to be found, what was found, and what was accused beside it."""

    case: str
    expected: int
    found: int
    false: int
    detail: str
    seconds: float


@dataclass
class Job:
    """A worker's memory of one job of one role."""

    ranks: History
    groups: GroupHistory

    def judge(self, window: RoleTriples) -> tuple[list[Verdict], list[GroupShift]]:
        judgement = judge_role(window, CONFIG)
        if not isinstance(judgement, RoleJudgement):
            raise RuntimeError(f"the window was not judged: {judgement}")
        self.ranks.add(judgement)
        self.groups.add(judge_groups([window], CONFIG))
        return decide("bench", [(window.role, self.ranks)]), self.groups.persistent()


def new_job() -> Job:
    return Job(
        History(CONFIG.windows, CONFIG.windows_needed, CONFIG.tail_windows),
        GroupHistory(CONFIG.windows, CONFIG.windows_needed),
    )


def play(
    of: Fleet, faults: Faults, rng: np.random.Generator, windows: int
) -> Iterator[tuple[list[Verdict], list[GroupShift]]]:
    """The verdicts after each window."""
    job, chips = new_job(), of.chips(rng)
    for number in range(1, windows + 1):
        yield job.judge(of.window(number, faults, rng, chips))


def _accused(verdicts: list[Verdict]) -> set[tuple[str, str]]:
    return {(verdict.rank, verdict.kernel) for verdict in verdicts if verdict.verdict == "culprit"}


def healthy(of: Fleet, rng: np.random.Generator, cycles: int, name: str) -> Outcome:
    begun, false = time.perf_counter(), 0
    for verdicts, groups in play(of, Faults(), rng, cycles):
        false += len(_accused(verdicts)) + len(groups)
    return Outcome(name, 0, 0, false, f"{cycles} cycles", time.perf_counter() - begun)


def slow_rank(of: Fleet, rng: np.random.Generator) -> Outcome:
    begun = time.perf_counter()
    guilty = int(rng.integers(of.ranks))
    *_, (verdicts, groups) = play(of, Faults(compute={guilty: 1.07}), rng, 3)
    accused = _accused(verdicts)
    return Outcome(
        "one rank 7 % slow",
        1,
        int((str(guilty), "all") in accused),
        sum(1 for rank, _ in accused if rank != str(guilty)) + len(groups),
        f"rank {guilty}",
        time.perf_counter() - begun,
    )


def one_mode(of: Fleet, rng: np.random.Generator) -> Outcome:
    """The kernel is drawn from those that the bars of the worker let speak: see `_speaks`."""
    begun = time.perf_counter()
    guilty = int(rng.integers(of.ranks))
    speaking = [index for index in range(len(of.kernels)) if _speaks(of, index)]
    kernel = int(rng.choice(speaking))
    *_, (verdicts, groups) = play(of, Faults(mode_of_kernel=(guilty, kernel)), rng, 3)
    accused = _accused(verdicts)
    wanted = (str(guilty), of.kernels[kernel].name)
    return Outcome(
        "one mode of one kernel 12 % slower",
        1,
        int(wanted in accused),
        len(accused - {wanted}) + len(groups),
        f"rank {guilty}, {of.kernels[kernel].name}, of {len(speaking)} kernels that could show it",
        time.perf_counter() - begun,
    )


def far_launches(of: Fleet, rng: np.random.Generator) -> Outcome:
    """An intermittent fault: every median is sound."""
    begun = time.perf_counter()
    guilty = int(rng.integers(of.ranks))
    *_, (verdicts, groups) = play(of, Faults(far={guilty: 0.02}), rng, 3)
    tails = {verdict.rank for verdict in verdicts if verdict.cause == "gpu-memory"}
    false = {rank for rank, _ in _accused(verdicts)} - {str(guilty)}
    return Outcome(
        "2 % of one rank's launches far longer",
        1,
        int(str(guilty) in tails),
        len(false) + len(groups),
        f"rank {guilty}",
        time.perf_counter() - begun,
    )


def _speaks(of: Fleet, index: int) -> bool:
    """Over 1 % of time, and a last mode whose median is known to 12 % / 5 deviations."""
    kernel = of.kernels[index]
    if kernel.stream.startswith("nccl"):
        return False
    seconds = [float((k.bank[:, :, 0] * k.bank[:, :, 1]).sum(axis=1).mean()) for k in of.kernels]
    last = (kernel.bank[:, :, 0] > 0).sum(axis=1) - 1
    rows = np.arange(len(last))
    medians, counts = kernel.bank[rows, last, 1], kernel.bank[rows, last, 0]
    noise = float(np.std(np.log(medians)))
    share = float((counts / kernel.bank[:, :, 0].sum(axis=1)).mean())
    return (
        seconds[index] > 0.012 * sum(seconds)
        and float(counts.mean()) >= 40
        and share >= 0.15
        and 5.5 * noise < 0.11
        and len(set(last.tolist())) == 1
    )


def many_slow(of: Fleet, rng: np.random.Generator, share: float) -> Outcome:
    """Whole racks are slow, as behind one cooling loop: both clusters, and the rack, are to be named."""
    begun = time.perf_counter()
    per_rack = of.ranks_per_host * of.hosts_per_rack
    racks = -(-of.ranks // per_rack)
    chosen = set(rng.choice(racks, max(1, round(share * racks)), replace=False).tolist())
    slow = {rank: 1.12 for rank in range(of.ranks) if rank // per_rack in chosen}
    *_, (_, groups) = play(of, Faults(compute=slow), rng, 3)
    named = {(shift.coordinate, shift.shift > 0) for shift in groups if shift.kernel == "all"}
    right = ("rack", True) in named and (share < 0.4 or ("rack", False) in named)
    false = sum(1 for shift in groups if shift.coordinate != "rack")
    told = ", ".join(sorted({f"{s.coordinate} {s.value} {np.expm1(s.shift):+.0%}" for s in groups})[:4])
    return Outcome(
        f"{share:.0%} of the ranks 12 % slower", 1, int(right), false, told, time.perf_counter() - begun
    )


def late_rank(of: Fleet, rng: np.random.Generator) -> Outcome:
    """A rank slow in compute enters collectives late: its are short, everybody else's long."""
    begun = time.perf_counter()
    guilty = int(rng.integers(of.ranks))
    *_, (verdicts, groups) = play(of, Faults(compute={guilty: 1.3}, collectives={guilty: 0.2}), rng, 3)
    late = {v.rank for v in verdicts if v.cause == "collective-late"}
    false = {rank for rank, _ in _accused(verdicts)} - {str(guilty)}
    return Outcome(
        "late to its collectives",
        1,
        int(late == {str(guilty)}),
        len(false) + len(groups),
        f"rank {guilty}, culprit of collectives: {', '.join(sorted(late)) or 'none'}",
        time.perf_counter() - begun,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.l3_quality", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=10, help="windows of a healthy fleet")
    parser.add_argument("--json", action="store_true", help="print only the JSON line")
    options = parser.parse_args(argv)

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    outcomes: list[Outcome] = []
    for outliers in (False, True):
        made = fleet(options.ranks, options.kernels, options.seed, outliers=outliers, progress=say)
        rng = np.random.default_rng([options.seed, outliers])
        suffix = ", 0.3 % outliers" if outliers else ""
        say(f"healthy{suffix}")
        outcomes.append(healthy(made, rng, options.cycles, f"healthy{suffix}"))
        if outliers:
            for case in (slow_rank, one_mode, far_launches, late_rank):
                say(case.__name__)
                outcomes.append(case(made, rng))
            for share in (0.3, 0.5):
                say(f"{share:.0%} slow")
                outcomes.append(many_slow(made, rng, share))
    say("")
    if not options.json:
        print(f"{options.ranks} ranks, {options.kernels} kernels, seed {options.seed}")
        print(f"{'case':38} {'found':>7} {'false':>6} {'s':>6}  detail")
        for one in outcomes:
            ratio = f"{one.found}/{one.expected}" if one.expected else "-"
            print(f"{one.case:38} {ratio:>7} {one.false:>6} {one.seconds:6.0f}  {one.detail}")
    found, expected = sum(one.found for one in outcomes), sum(one.expected for one in outcomes)
    false = sum(one.false for one in outcomes)
    result = {
        "false_anomalies": sum(one.false for one in outcomes if not one.expected),
        "precision": round(found / max(found + false, 1), 4),
        "recall": round(found / expected, 4),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
