"""`argus-simulator demo`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Literal

from argus_core.option_types import whole_number
from argus_simulator.demo.plan import plan
from argus_simulator.demo.progress import Reporter
from argus_simulator.demo.story import Story
from argus_simulator.demo.summary import lines
from argus_simulator.demo.torch_training import TorchTraining
from argus_simulator.demo.training import SimulatedTraining, Training
from argus_simulator.stack import Stack, StackOptions
from argus_simulator.stack.pace import SECOND_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed",
        type=whole_number(),
        default=0,
        help="chooses rank, phase and factor (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="leave everything up until Ctrl-C")
    parser.add_argument(
        "--training",
        choices=("simulated", "torch"),
        default="simulated",
        help="what to watch: the simulated job, or real PyTorch on 4 processes (default: %(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="nothing but the last line on stdout; the story goes to stderr"
    )


def run(options: argparse.Namespace) -> int:
    """Run the demo and tell it; 0 only where exactly the culprit was found."""
    reporter = Reporter(sys.stderr if options.json else sys.stdout)
    job = _training(options.training, options.seed)
    reporter.say(f"ARGUS demo, seed {options.seed}: {job.description}; one rank will become slow.")
    reporter.say(f"Scrapes, rules and windows are {1 / SECOND_S:g} times as fast as in production.")
    with Stack(StackOptions(say=reporter.step)) as stack:
        reporter.step("starting the job")
        try:
            job.start(stack)
            outcome = Story(stack, job, reporter).watch()
            for line in lines(outcome, stack, job):
                reporter.say(line)
            print(outcome.as_json(), flush=True)
            if options.keep:
                _stay(stack, job)
        finally:
            job.stop()
    return 0 if outcome.ok else 1


def _training(kind: Literal["simulated", "torch"], seed: int) -> Training:
    if kind == "torch":
        return TorchTraining(seed)
    return SimulatedTraining(plan(seed))


def _stay(stack: Stack, job: Training) -> None:
    print("Everything stays up until Ctrl-C.", file=sys.stderr, flush=True)
    try:
        while True:
            stack.check()
            job.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        print(file=sys.stderr)
