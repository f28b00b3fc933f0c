"""Rules scored on the fault lab's jobs in virtual time: `python -m bench.play --rules rules`.

The catalogue, its truth and the judge are those of `argus-simulator score`. The rules are the files as they
are shipped, at their own intervals: jobs have steps of 4 s, and what the exporters' state says of them is
scraped every 15 s; a Prometheus on 127.0.0.1 answers for the rules (docs/fault-lab.md, "Fast play"). Prints
each scenario as it is judged, the table, and ends in one line of JSON: that of `argus-simulator score`, and
beside it

    rules, late     what was evaluated, and whether recorded series were seen late
    job_minutes     played, healthy runs before included
    machine_s       that it took, all cores together working on it
    days_per_hour   job-days in an hour at this speed
    equal_to_live   of the seeds of --live, whether four jobs have the same alerts on the real stack, in real
                    time (bench.play.compare); null where none was asked for
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import sys
import time
from pathlib import Path

from argus_core.settings import SettingsError
from argus_simulator.commands.score import machine, product, seeds
from argus_simulator.demo.progress import Reporter
from argus_simulator.engine.settings import SIGNALS
from argus_simulator.score import baselines, report
from argus_simulator.score.batches import Capacity, batches
from argus_simulator.score.scene import SHIPPED, Scene
from argus_simulator.score.suites import Playable, held_out_seeds, playables
from argus_simulator.stack.signals import StopSignals
from bench.play.compare import compare
from bench.play.evaluate import LATE
from bench.play.players import players, until_stopped
from bench.play.rules import UnplayableRules, read_rules, stages
from bench.play.score import Batch, Engine, play

_ROOT = Path(__file__).resolve().parents[2]
_JOBS, _RANKS = 8, 160
"""That share a Prometheus at most: more of them cost less each, and come later."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.play", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rules", type=Path, default=_ROOT / "rules", help="folder of rule files (default: rules)"
    )
    parser.add_argument(
        "--suite",
        nargs="+",
        default=["dev"],
        metavar="SUITE",
        help="dev (one variant of a row a seed), all (every variant), smoke, or scenarios (default: dev)",
    )
    parser.add_argument(
        "--seed", type=seeds, default=(0,), metavar="N[-M]", help="one or several (default: 0)"
    )
    parser.add_argument(
        "--held-out", type=int, default=0, metavar="SEEDS", help="instead of --seed: totals of so many seeds"
    )
    parser.add_argument(
        "--signals", choices=SIGNALS, default="hooks", help="what producers send (default: hooks)"
    )
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=SHIPPED.step_s,
        metavar="S",
        help=f"of healthy steps: faults begin and end at the same steps (default: {SHIPPED.step_s})",
    )
    parser.add_argument(
        "--late",
        nargs="?",
        choices=LATE,
        const="all",
        default="none",
        help="see recorded series one evaluation late, as vmalert and a stateless Thanos ruler do: all "
        "rules, or each at random (default: none; without a word: all)",
    )
    parser.add_argument(
        "--alertmanager",
        type=Path,
        default=_ROOT / "alertmanager" / "alertmanager.yaml",
        metavar="FILE",
        help="whose inhibitions count (default: the shipped one)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="batches at a time (default: cores)",
    )
    parser.add_argument(
        "--live",
        type=seeds,
        default=(),
        metavar="N[-M]",
        help="compare with the real stack afterwards, eleven minutes a seed",
    )
    parser.add_argument("--json", action="store_true", help="nothing but the last line on stdout")
    options = parser.parse_args(argv)
    engine = Engine(tuple(sorted(options.rules.glob("*.yaml"))), options.alertmanager, options.late)
    try:
        if not stages(read_rules(engine.rules)):
            parser.error(f"no rules in {options.rules}")
        chosen = _playables(options)
    except (UnplayableRules, SettingsError) as error:
        parser.error(str(error))
    pace = dataclasses.replace(SHIPPED, step_s=options.step_seconds)
    return _score(options, engine, [Scene(one, pace) for one in chosen])


def _playables(options: argparse.Namespace) -> list[Playable]:
    held_out = held_out_seeds(product(), options.held_out) if options.held_out else options.seed
    found = [
        one for suite in options.suite for one in playables(suite, held_out, held_out=bool(options.held_out))
    ]
    return [dataclasses.replace(one, signals=options.signals) for one in dict.fromkeys(found)]


def _score(options: argparse.Namespace, engine: Engine, scenes: list[Scene]) -> int:
    reporter = Reporter(sys.stderr if options.json else sys.stdout)
    reporter.say(
        f"{len(scenes)} scenarios, signals {options.signals}, rules {options.rules}, late {engine.late}"
    )
    where, began = machine(), time.monotonic()
    played: list[Batch] = []
    with players(options.processes) as pool:
        capacity = Capacity(min(_JOBS, math.ceil(len(scenes) / options.processes)), _RANKS)
        running = [pool.submit(until_stopped, play, batch, engine) for batch in batches(scenes, capacity)]
        for done in concurrent.futures.as_completed(running):
            played.append(done.result())
            _tell(played[-1], reporter, quiet=bool(options.held_out))
    return _report(options, where, time.monotonic() - began, played, reporter)


def _tell(batch: Batch, reporter: Reporter, *, quiet: bool) -> None:
    for first, *rest in [] if quiet else batch.stories:
        reporter.step(first)
        for line in rest:
            reporter.say(f"      {line}")
    reporter.step(
        f"{len(batch.results)} scenarios more: {batch.job_seconds / 60:.0f} job-minutes, "
        f"{batch.record_s:.0f} s to play them, {batch.evaluate_s:.0f} s to evaluate"
    )


def _report(
    options: argparse.Namespace, where: str, machine_s: float, played: list[Batch], reporter: Reporter
) -> int:
    results = [result for batch in played for result in batch.results]
    failures = sorted({failure for batch in played for failure in batch.failures})
    compared = baselines.compare(results)
    minutes = sum(batch.job_seconds for batch in played) / 60
    for line in (
        *(() if options.held_out else report.table(results)),
        *report.summary(results),
        *baselines.lines(compared),
        *failures,
        f"\n{minutes:.0f} job-minutes in {machine_s:.0f} s: {minutes / machine_s:.2f} a second",
    ):
        reporter.say(line)
    score = json.loads(
        report.as_json(product(), options.signals, where, results, compared, rows=not options.held_out)
    )
    score |= {
        "rules": str(options.rules),
        "late": options.late,
        "job_minutes": round(minutes, 1),
        "machine_s": round(machine_s, 1),
        "days_per_hour": round(minutes / 1440 / (machine_s / 3600), 2),
        "equal_to_live": _equal_to_live(options, reporter),
    }
    print(json.dumps(score), flush=True)
    return 1 if failures else 0


def _equal_to_live(options: argparse.Namespace, reporter: Reporter) -> bool | None:
    """Each alert of the real stack, pending or firing, and no other, on every seed."""
    if not options.live:
        return None
    StopSignals().raise_them()  # so that no server is left behind
    files = sorted(options.rules.glob("*.yaml"))
    return all(
        compare(files, seed=seed, signals=options.signals, say=reporter.say)["equal_to_live"]
        for seed in options.live
    )


if __name__ == "__main__":
    sys.exit(main())
