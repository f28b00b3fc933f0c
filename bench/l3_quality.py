"""What the worker finds and whom it wrongly accuses, on synthetic fleets of any size.

    python -m bench.l3_quality [--chip 0.02] [--role-size 8] [--windows 1440] [--seed 0] [--json]
    python -m bench.l3_quality --method modes w1-iqr eroica nvrx --role-size 8 --ranks 640

A cell is a day of healthy GPUs that differ (l3_varying.py; each ingredient is a flag), and how many are
accused; and how many of the GPUs that become 1.1 and 1.05 times slower are named within two hours, where
chips differ by 3 and by 2 %. Each core plays one at a time. `--chip` and `--role-size` choose the cell.
Without both all cells are played, and the cases of one large role of like chips, which `--cases` plays
alone: healthy for ten windows, with and without outliers; one rank 7 % slow; one mode of one kernel 12 %
slower on one rank; one rank of which 2 % of the launches take far longer; 30 % and 50 % of the ranks slow by
12 %; a rank that is late to its collectives. A verdict needs two of three windows, as in production.
`--method` has other methods look at the same windows, and makes one table of what each accuses and finds
(docs/evidence/methods.md). The last line is JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupHistory, GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.triples import RoleTriples
from bench.l3_cells import EVENTS, METHODS, a_day, cells, compared, found_share
from bench.l3_fleet import Faults, Fleet, fleet
from bench.l3_tables import judge_role
from bench.l3_varying import Varying

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
        self.groups.add(judge_groups(JobTriples([window]), CONFIG))
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
    """An intermittent fault: every median is sound. It may take all windows that tails are looked for in."""
    begun = time.perf_counter()
    guilty = int(rng.integers(of.ranks))
    told, false, windows = 0, set[str](), 0
    for verdicts, groups in play(of, Faults(far={guilty: 0.02}), rng, CONFIG.tail_windows):
        windows += 1
        told = int(str(guilty) in {verdict.rank for verdict in verdicts if verdict.cause == "gpu-memory"})
        false |= {rank for rank, _ in _accused(verdicts)} - {str(guilty)}
        false |= {f"{shift.coordinate} {shift.value}" for shift in groups}
        if told:
            break
    return Outcome(
        "2 % of one rank's launches far longer",
        1,
        told,
        len(false),
        f"rank {guilty}, after {windows} windows",
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


def cases(ranks: int, kernels: int, cycles: int, seed: int, say: Callable[[str], None]) -> list[Outcome]:
    """One large role of chips that are nearly alike, and what may be wrong with it."""
    outcomes: list[Outcome] = []
    for outliers in (False, True):
        made = fleet(ranks, kernels, seed, outliers=outliers, progress=say)
        rng = np.random.default_rng([seed, outliers])
        suffix = ", 0.3 % outliers" if outliers else ""
        say(f"healthy{suffix}")
        outcomes.append(healthy(made, rng, cycles, f"healthy{suffix}"))
        if outliers:
            for case in (slow_rank, one_mode, far_launches, late_rank):
                say(case.__name__)
                outcomes.append(case(made, rng))
            for share in (0.3, 0.5):
                say(f"{share:.0%} slow")
                outcomes.append(many_slow(made, rng, share))
    return outcomes


def of_cases(outcomes: list[Outcome]) -> dict[str, float]:
    """What they come to."""
    found, expected = sum(one.found for one in outcomes), sum(one.expected for one in outcomes)
    false = sum(one.false for one in outcomes)
    return {
        "false_anomalies": sum(one.false for one in outcomes if not one.expected),
        "precision": round(found / max(found + false, 1), 4),
        "recall": round(found / expected, 4),
    }


def arguments() -> argparse.ArgumentParser:
    """Each ingredient of a cell is a flag."""
    parser = argparse.ArgumentParser(prog="bench.l3_quality", description=__doc__.splitlines()[0])
    usual = Varying()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chip", type=float, help="deviation of the GPUs' speeds of the healthy cell")
    parser.add_argument("--role-size", type=int, help="ranks of a role")
    parser.add_argument("--ranks", type=int, default=usual.ranks)
    parser.add_argument("--windows", type=int, default=1440, help="of a healthy fleet; 1,440 are a day")
    parser.add_argument(
        "--interaction", type=float, default=usual.interaction, help="chip x kernel, of --chip"
    )
    parser.add_argument("--noise", type=float, default=usual.noise, help="from window to window")
    parser.add_argument("--freedom", type=float, default=usual.freedom, help="of Student's t of noise, > 2")
    parser.add_argument("--temperature", type=float, default=usual.temperature)
    parser.add_argument("--memory", type=float, default=usual.memory, help="of the temperature, a window")
    parser.add_argument("--outliers", type=float, default=usual.outliers, help="share of launches")
    parser.add_argument("--weights", type=float, default=usual.weights, help="of second modes, between ranks")
    parser.add_argument("--one-model", action="store_true", help="no second model of GPUs")
    parser.add_argument(
        "--without", nargs="*", default=[], choices=sorted(EVENTS), help="events that stay away"
    )
    parser.add_argument("--skip-found", action="store_true", help="the healthy fleet alone")
    parser.add_argument(
        "--method", nargs="+", choices=METHODS, help="a table of these in place of the shipped judge alone"
    )
    parser.add_argument("--cases", action="store_true", help="one large role, and no cell")
    parser.add_argument("--kernels", type=int, default=200, help="of the cases")
    parser.add_argument("--cycles", type=int, default=10, help="windows of a healthy fleet of the cases")
    parser.add_argument("--json", action="store_true", help="print only the JSON line")
    return parser


def say(text: str) -> None:
    """How far it is, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:76}", end="", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    options = arguments().parse_args(argv)

    def tell(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    if options.method:
        print(json.dumps(compare_methods(options, tell)))
        return 0
    result: dict[str, float] = {}
    one_cell = options.chip is not None or options.role_size is not None
    if options.cases or not one_cell:
        outcomes = cases(options.ranks, options.kernels, options.cycles, options.seed, say)
        tell(f"{options.ranks} ranks, {options.kernels} kernels, seed {options.seed}")
        tell(f"{'case':38} {'found':>7} {'false':>6} {'s':>6}  detail")
        for one in outcomes:
            ratio = f"{one.found}/{one.expected}" if one.expected else "-"
            tell(f"{one.case:38} {ratio:>7} {one.false:>6} {one.seconds:6.0f}  {one.detail}")
        result |= of_cases(outcomes)
    if not options.cases:
        result |= play_cells(options, tell)
    print(json.dumps(result))
    return 0


def _fleet_of(options: argparse.Namespace) -> Varying:
    return Varying(
        ranks=options.ranks,
        interaction=options.interaction,
        noise=options.noise,
        temperature=options.temperature,
        memory=options.memory,
        freedom=options.freedom,
        outliers=options.outliers,
        weights=options.weights,
        models=not options.one_model,
    )


FACTORS = (1.05, 1.1, 1.5)
"""That GPUs become slower by in the table of methods; the last is beyond NVRx's threshold, 1 / 0.75."""


def compare_methods(options: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """What each method accuses wrongly, and finds, at the spread of each cell."""
    like, found = _fleet_of(options), {}
    heads = [f"found x{factor}" for factor in FACTORS]
    tell(f"{'chip':>5} {'roles of':>8} {'method':8} {'accused':>8} {'groups':>7} " + " ".join(heads))
    for chip, size in cells(options.chip, options.role_size):
        of = replace(like, chip=chip, role_size=size)
        for method, one in compared(of, FACTORS, options.seed, options.method, say).items():
            shown = " ".join(
                f"{one.found[at]:{len(head)}.2f}" for at, head in zip(FACTORS, heads, strict=True)
            )
            tell(f"{chip:5.1%} {size:8} {method:8} {one.accused:8} {one.groups:7} {shown}")
            found[f"{method} {chip:g} {size}"] = {"accused": one.accused, "groups": one.groups} | {
                f"found_x{factor:g}": share for factor, share in one.found.items()
            }
    return found


def play_cells(options: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, float]:
    """The sum of all who are accused in the cells, and the worst share that is found; a cell a core."""
    like = _fleet_of(options)
    events = sorted(set(EVENTS) - set(options.without))
    accused, found = 0, {"found_x110_at_3": 1.0, "found_x105_at_2": 1.0}
    chosen = list(cells(options.chip, options.role_size))
    sizes = dict.fromkeys(size for _, size in chosen)
    # A window makes a hundred thousand containers: the collector's default walks them again and again.
    with concurrent.futures.ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), initializer=gc.set_threshold, initargs=(50_000, 20, 50)
    ) as pool:
        days = [
            pool.submit(
                a_day, replace(like, chip=chip, role_size=size), options.windows, options.seed, events, say
            )
            for chip, size in chosen
        ]
        shares = [
            (key, factor, of, pool.submit(found_share, of, factor, options.seed, say))
            for size in (sizes if not options.skip_found else ())
            for key, factor, chip in (("found_x110_at_3", 1.1, 0.03), ("found_x105_at_2", 1.05, 0.02))
            for of in (replace(like, chip=chip, role_size=size),)
        ]
        for day in days:
            cell = day.result()
            accused += cell.accused + cell.groups
            of_whom = f"{cell.accused} ranks and {cell.groups} groups accused"
            tell(f"chip {cell.chip:.1%}, roles of {cell.role_size}: {of_whom}")
            for name in cell.names[:20]:
                tell(f"    {name}")
        for key, factor, of, share in shares:
            found[key] = min(found[key], share.result())
            told = f"{share.result():.2f} named within two hours"
            tell(f"x{factor}, chip {of.chip:.0%}, roles of {of.role_size}: {told}")
    return {"accused": accused} | ({} if options.skip_found else found)


if __name__ == "__main__":
    sys.exit(main())
