"""How fast `argus-simulator score` plays, and whether the real stack says the same: `python -m bench.play`.

The same play, judge and options; beside them any folder of rules, rules that see recorded series late, and
steps of any length. Prints what the score prints, and ends in one line of JSON: that of the score, and in it

    rules, late     what was evaluated, and whether recorded series were seen late
    job_minutes     played, healthy runs before included
    machine_s       that it took, all cores together working on it
    days_per_hour   job-days in an hour at this speed
    equal_to_live   of the seeds of --live, whether four jobs have the same alerts on the real stack, in real
                    time (bench.play.compare); null where none was asked for
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from argus_core.errors import UserError
from argus_core.option_types import whole_number
from argus_simulator.commands import score
from argus_simulator.demo.progress import Reporter
from argus_simulator.fast_play.evaluate import LATE
from argus_simulator.fast_play.rules import read_rules, stages
from argus_simulator.fast_play.score import Batch, Engine, play_all
from argus_simulator.score.scene import SHIPPED, Scene
from argus_simulator.stack.repository import rule_files
from argus_simulator.stack.signals import StopSignals
from bench.play.compare import compare

_ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.play", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    score.add_choice(parser)
    parser.add_argument(
        "--rules", type=Path, default=_ROOT / "rules", help="folder of rule files (default: rules)"
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
        type=whole_number(1),
        default=len(os.sched_getaffinity(0)),
        help="batches at a time (default: cores)",
    )
    parser.add_argument(
        "--live",
        type=score.seeds,
        default=(),
        metavar="N[-M]",
        help="compare with the real stack afterwards, eleven minutes a seed",
    )
    options = parser.parse_args(argv)
    try:
        engine = Engine(tuple(rule_files(options.rules)), options.alertmanager, options.late)
        stages(read_rules(engine.rules))  # refuses what cannot be played, before anything is
        scenes = score.chosen(options, dataclasses.replace(SHIPPED, step_s=options.step_seconds))
    except UserError as error:
        parser.error(str(error))
    return _play(options, engine, scenes)


def _play(options: argparse.Namespace, engine: Engine, scenes: list[Scene]) -> int:
    reporter = Reporter(sys.stderr if options.json else sys.stdout)
    reporter.say(
        f"{len(scenes)} scenarios, signals {options.signals}, rules {options.rules}, late {engine.late}"
    )
    scored, where, began = score.product(), score.machine(), time.monotonic()
    played: list[Batch] = []
    for batch in play_all(scenes, engine, options.processes):
        score.tell(batch, reporter, quiet=bool(options.held_out))
        played.append(batch)
    machine_s = time.monotonic() - began
    results = [result for batch in played for result in batch.results]
    failures = sorted({failure for batch in played for failure in batch.failures})
    minutes = sum(batch.job_seconds for batch in played) / 60
    line = score.told(options, scored, where, results, failures, reporter)
    reporter.say(f"\n{minutes:.0f} job-minutes in {machine_s:.0f} s: {minutes / machine_s:.2f} a second")
    line |= {
        "rules": str(options.rules),
        "late": options.late,
        "job_minutes": round(minutes, 1),
        "machine_s": round(machine_s, 1),
        "days_per_hour": round(minutes / 1440 / (machine_s / 3600), 2),
        "equal_to_live": _equal_to_live(options, engine, reporter),
    }
    print(json.dumps(line), flush=True)
    return 1 if failures else 0


def _equal_to_live(options: argparse.Namespace, engine: Engine, reporter: Reporter) -> bool | None:
    """Each alert of the real stack, pending or firing, and no other, on every seed."""
    if not options.live:
        return None
    StopSignals().raise_them()  # so that no server is left behind
    return all(
        compare(engine.rules, seed=seed, signals=options.signals, say=reporter.say)["equal_to_live"]
        for seed in options.live
    )


if __name__ == "__main__":
    sys.exit(main())
