"""`argus-simulator demo`."""

from __future__ import annotations

import sys
import time
from typing import Literal

from argus_simulator.demo.plan import plan
from argus_simulator.demo.progress import Reporter
from argus_simulator.demo.story import Story
from argus_simulator.demo.telling import lines
from argus_simulator.demo.torch_training import TorchTraining
from argus_simulator.demo.training import SimulatedTraining, Training
from argus_simulator.stack import Stack, StackOptions


def demo(*, seed: int, keep: bool, training: Literal["simulated", "torch"], json_only: bool) -> int:
    """Run the demo and tell it; 0 only where exactly the culprit was found.

    Args:
        seed: chooses what goes wrong.
        keep: leave the stack up, and the job going, until Ctrl-C.
        training: what to watch.
        json_only: stdout carries nothing but the last line; the story goes to stderr.
    """
    reporter = Reporter(sys.stderr if json_only else sys.stdout)
    job = _training(training, seed)
    reporter.say(f"ARGUS demo, seed {seed}: {job.description}; one rank will become slow.")
    with Stack(StackOptions(say=reporter.step)) as stack:
        reporter.step("starting the job")
        try:
            job.start(stack)
            outcome = Story(stack, job, reporter).watch()
            for line in lines(outcome, stack, job):
                reporter.say(line)
            print(outcome.as_json(), flush=True)
            if keep:
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
