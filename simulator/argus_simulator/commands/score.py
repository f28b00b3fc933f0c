"""`argus-simulator score`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from argus_core.option_types import whole_number
from argus_core.version import installed_version
from argus_simulator.demo.progress import Reporter
from argus_simulator.engine.settings import SIGNALS
from argus_simulator.score import baselines, report
from argus_simulator.score.batches import Capacity, batches
from argus_simulator.score.field import Field
from argus_simulator.score.results import Result, ResultFile
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import held_out_seeds, playables
from argus_simulator.stack import Stack
from argus_simulator.stack.repository import find_repository

_LAST_SEED = 999
"""Those above are held out."""
RANKS_A_CORE = 80
"""Ranks that a core carries together with the stack; a player that falls behind is reported."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite",
        default="dev",
        metavar="SUITE",
        help="dev (one variant of a row a seed), all (every variant), smoke, or one scenario (default: dev)",
    )
    parser.add_argument(
        "--seed",
        type=seeds,
        default=(0,),
        metavar="N[-M]",
        help="one seed or several, 0 to 999 (default: 0)",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number(1),
        default=None,
        help="scenarios at a time (default: what this machine carries)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        default=None,
        metavar="FILE",
        help="keep finished lines here, and go on from them",
    )
    parser.add_argument(
        "--held-out",
        type=whole_number(1),
        default=0,
        metavar="SEEDS",
        help="instead of --seed: so many seeds that nobody chose, other noise, totals alone",
    )
    parser.add_argument(
        "--signals",
        choices=SIGNALS,
        default="hooks",
        help="what the producers send: hooks (as real ones do; default) or kernels (and kernels)",
    )
    parser.add_argument(
        "--json", action="store_true", help="nothing but the last line on stdout; the rest goes to stderr"
    )


def seeds(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    if (
        first.isdecimal()
        and (not last or last.isdecimal())
        and int(first) <= int(last or first) <= _LAST_SEED
    ):
        return tuple(range(int(first), int(last or first) + 1))
    raise argparse.ArgumentTypeError(f"{text!r} is not a seed, or a range of seeds, from 0 to {_LAST_SEED}")


def run(options: argparse.Namespace) -> int:
    """Play a suite and print the score; 1 where not all of it was played, or a rule failed."""
    held_out: int = options.held_out
    reporter = Reporter(sys.stderr if options.json else sys.stdout)
    scored = product()
    where = machine()
    chosen = held_out_seeds(scored, held_out) if held_out else options.seed
    playable = playables(options.suite, chosen, held_out=bool(held_out))
    scenes = [Scene(dataclasses.replace(one, signals=options.signals)) for one in playable]
    file = (
        ResultFile(options.resume, f"{scored}, signals {options.signals}")
        if options.resume is not None
        else None
    )
    known = file.done() if file is not None else {}
    results = [known[scene.key] for scene in scenes if scene.key in known]
    left = [scene for scene in scenes if scene.key not in known]
    reporter.say(
        f"ARGUS score: {len(scenes)} scenarios of suite {options.suite}, seed {', '.join(map(str, chosen))}, "
        f"signals {options.signals}"
        + (f"; {len(results)} are in {options.resume} already" if results else "")
    )
    failed: list[str] = []
    if left:
        played, failed = _play(left, _capacity(options.jobs), reporter, file, quiet=bool(held_out))
        results += played
    if not held_out:
        for line in report.table(results):
            reporter.say(line)
    for line in report.summary(results):
        reporter.say(line)
    compared = baselines.compare(results)
    for line in baselines.lines(compared):
        reporter.say(line)
    for line in failed:
        reporter.say(line)
    print(report.as_json(scored, options.signals, where, results, compared, rows=not held_out), flush=True)
    return 1 if failed else 0


def _play(
    scenes: Sequence[Scene], capacity: Capacity, reporter: Reporter, file: ResultFile | None, *, quiet: bool
) -> tuple[list[Result], list[str]]:
    """Results, and what went wrong: scenarios that could not be played, rules that failed."""
    results: list[Result] = []
    failures: list[str] = []
    began = time.monotonic()

    def finished(result: Result) -> None:
        results.append(result)
        if file is not None:
            file.add(result)
        if not quiet:
            reporter.step(report.line(result))

    def failed(scene: Scene, why: str) -> None:
        failures.append(f"{scene.name} was not played to its end; its log ends:\n{why}")
        reporter.step(failures[-1])

    def meanwhile(playing: list[str]) -> None:
        minutes = (time.monotonic() - began) / 60
        reporter.now(f"{len(results)} of {len(scenes)} done in {minutes:.1f} min; playing {len(playing)}")

    for batch in batches(scenes, capacity):
        with Stack() as stack:
            Field(stack).play(batch, finished, failed, meanwhile)
            failures += [f"rule failed: {error}" for error in stack.rule_errors()]
    return results, failures


def _capacity(jobs: int | None) -> Capacity:
    cores = len(os.sched_getaffinity(0))
    return Capacity(jobs if jobs is not None else 4 * cores, RANKS_A_CORE * cores)


def machine() -> str:
    """What it is played on, and what else that machine does: what it has no time for counts as not found."""
    return f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, load {os.getloadavg()[1]:.1f} before"


def product() -> str:
    """What is scored: the commit, with a mark where files differ from it; without git the version."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=find_repository(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"version {installed_version()}"
    return done.stdout.strip()
