"""The first day on a GPU.

    tools/gpu_day.sh --list                 what each step proves, its prediction and its limit
    tools/gpu_day.sh STEP                   run one
    tools/gpu_day.sh --all [--again]        all in order; outcomes of this source are kept
    tools/gpu_day.sh --dry-run [STEP]       on the CPU, with stand-ins: proves the script only

Results: gpu-day/STEP.json and STEP.log. Exit status: 0 ok, 1 failed, 2 wrong command line, 3 not run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.gpu_day.machine import REPOSITORY, commit, machine
from bench.gpu_day.result import STATUS, WORST_FIRST
from bench.gpu_day.runner import Runner
from bench.gpu_day.step import TURNS_S
from bench.gpu_day.steps import STEPS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    by_name = {step.name: step for step in STEPS}
    parser.add_argument("step", nargs="?", choices=by_name, metavar="STEP", help="name of a step")
    parser.add_argument("--list", action="store_true", help="list the steps")
    parser.add_argument("--all", action="store_true", help="run all steps in order")
    parser.add_argument("--again", action="store_true", help="with --all: also those that have an outcome")
    parser.add_argument("--dry-run", action="store_true", help="with stand-ins, on the CPU")
    parser.add_argument(
        "--turns-s",
        type=float,
        default=TURNS_S,
        metavar="SECONDS",
        help="what turns of a step on overhead may take: less gives fewer blocks and wider intervals "
        "(default: %(default)g)",
    )
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "gpu-day", help="default: %(default)s")
    options = parser.parse_args(argv)
    if options.list:
        for step in STEPS:
            print(f"{step.name}, at most {step.limit_s:.0f} s\n  proves:    {step.proves}")
            gates = ", ".join(f"{name} {limit}" for name, limit in step.gates.items())
            print(f"  predicted: {step.prediction}\n  gates:     {gates}")
        return 0
    if options.all and options.step:
        parser.error("--all runs every step: name none")
    if options.step:
        chosen = [by_name[options.step]]
    elif options.all or options.dry_run:
        chosen = list(STEPS)
    else:
        parser.error("name a step, or --all, --dry-run or --list")
    runner = Runner(options.folder, machine(), commit(), dry=options.dry_run, turns_s=options.turns_s)
    results = [runner.run(chosen[0])] if options.step else runner.run_all(chosen, again=options.again)
    outcomes = {result.outcome for result in results}
    worst = next(outcome for outcome in WORST_FIRST if outcome in outcomes)
    return STATUS[worst]


if __name__ == "__main__":
    sys.exit(main())
