"""`argus-simulator score`."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from argus_core.errors import UserError
from argus_core.option_types import whole_number
from argus_core.version import installed_version
from argus_simulator.contract import LEVELS
from argus_simulator.demo.progress import Reporter
from argus_simulator.fast_play.score import Batch, Engine, play_all
from argus_simulator.fast_play.worker import METHODS, Method
from argus_simulator.lab import shipped
from argus_simulator.score import baselines, report
from argus_simulator.score.batches import Capacity, batches
from argus_simulator.score.field import Field
from argus_simulator.score.results import Result, ResultFile
from argus_simulator.score.scene import COMPRESSED, SHIPPED, Pace, Scene
from argus_simulator.score.suites import held_out_seeds, playables
from argus_simulator.stack import Stack
from argus_simulator.stack.repository import find_repository, rule_files

_LAST_SEED = 999
"""Those above are held out."""
_CHANGED = "-dirty-"
_PLAYED = ("rules", "alertmanager", "simulator", "exporter", "l3_worker")
"""Folders of which a new file may change what is scored."""
RANKS_A_CORE = 80
"""Ranks that a core carries together with the stack; a player that falls behind is reported."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_choice(parser)
    parser.add_argument(
        "--live",
        action="store_true",
        help="a sample: in real time on the real stack at ten times its pace, not in virtual time",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number(1),
        default=None,
        help="with --live: scenarios at a time (default: what this machine carries)",
    )
    parser.add_argument(
        "--judge-method",
        choices=METHODS,
        default="modes",
        help="judge.method of the L3 worker, which judges where signals have kernels (default: modes)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        default=None,
        metavar="FILE",
        help="keep finished lines here, and go on from them",
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """What is played, and how it is told."""
    parser.add_argument(
        "--suite",
        nargs="+",
        default=["dev"],
        metavar="SUITE",
        help="dev (one variant of a row a seed), all (every variant), smoke, or scenarios (default: dev)",
    )
    parser.add_argument(
        "--seed",
        type=seeds,
        default=(0,),
        metavar="N[-M]",
        help="one seed or several, 0 to 999 (default: 0)",
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
        choices=LEVELS,
        default="hooks",
        help="what the producers send: hooks (as real ones do; default), kernels or nccl besides",
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
    if options.live and options.judge_method != "modes":
        raise UserError("--judge-method is for virtual time: leave --live out, whose worker judges by modes")
    reporter, where = Reporter(sys.stderr if options.json else sys.stdout), machine()
    scored = product()  # as it is now: whoever commits meanwhile scores what was there before
    scenes = chosen(options, COMPRESSED if options.live else SHIPPED)
    way = "live" if options.live else "virtual time"
    by = "" if options.judge_method == "modes" else f", judged by {options.judge_method}"
    file = (
        ResultFile(options.resume, f"{scored}{files(scenes)}, signals {options.signals}, {way}{by}")
        if options.resume is not None
        else None
    )
    known = file.done() if file is not None else {}
    results = [known[scene.key] for scene in scenes if scene.key in known]
    left = [scene for scene in scenes if scene.key not in known]
    reporter.say(
        f"ARGUS score, {way}: {len(scenes)} scenarios, signals {options.signals}{by}"
        + (f"; {len(results)} are in {options.resume} already" if results else "")
    )

    def finished(result: Result) -> None:
        results.append(result)
        if file is not None:
            file.add(result)

    failures: list[str] = []
    quiet = bool(options.held_out)
    if left and options.live:
        failures = _live(left, _capacity(options.jobs), reporter, finished, quiet=quiet)
    elif left:
        failures = _fast(left, options.judge_method, reporter, finished, quiet=quiet)
    print(json.dumps(told(options, scored, where, results, failures, reporter)), flush=True)
    return 1 if failures else 0


def chosen(options: argparse.Namespace, pace: Pace) -> list[Scene]:
    """What is to be played.

    Raises:
        UserError: there is no such scenario.
    """
    held_out = bool(options.held_out)
    numbers = options.seed
    if held_out:  # no file that is touched draws others
        numbers = held_out_seeds(product().partition(_CHANGED)[0], options.held_out)
    found = [one for suite in options.suite for one in playables(suite, numbers, held_out=held_out)]
    return [Scene(dataclasses.replace(one, signals=options.signals), pace) for one in dict.fromkeys(found)]


def told(
    options: argparse.Namespace,
    scored: str,
    where: str,
    results: Sequence[Result],
    failures: Sequence[str],
    reporter: Reporter,
) -> dict[str, Any]:
    """The last line, after what it says in words. `scored`: the product when it began to be played."""
    compared = baselines.compare(results)
    held_out = bool(options.held_out)
    for line in (
        *(() if held_out else report.table(results)),
        *report.summary(results),
        *baselines.lines(compared),
        *failures,
    ):
        reporter.say(line)
    content = report.content(scored, options.signals, where, results, compared, held_out=held_out)
    return content | {"judge_method": getattr(options, "judge_method", "modes")}


def _fast(
    scenes: Sequence[Scene],
    method: Method,
    reporter: Reporter,
    finished: Callable[[Result], None],
    *,
    quiet: bool,
) -> list[str]:
    """Play in virtual time; what went wrong: rules that failed."""
    repository, cores = find_repository(), len(os.sched_getaffinity(0))
    engine = Engine(
        tuple(rule_files(repository / "rules")),
        repository / "alertmanager" / "alertmanager.yaml",
        method=method,
    )
    failures: set[str] = set()
    for batch in play_all(scenes, engine, cores):
        tell(batch, reporter, quiet=quiet)
        failures |= set(batch.failures)
        for result in batch.results:
            finished(result)
    return sorted(failures)


def tell(batch: Batch, reporter: Reporter, *, quiet: bool) -> None:
    """The story of each scenario of a batch, and how long it took."""
    for first, *rest in [] if quiet else batch.stories:
        reporter.step(first)
        for line in rest:
            reporter.say(f"      {line}")
    reporter.step(
        f"{len(batch.results)} scenarios more: {batch.job_seconds / 60:.0f} job-minutes, "
        f"{batch.record_s:.0f} s to play them, {batch.judge_s:.0f} s of the worker, "
        f"{batch.evaluate_s:.0f} s to evaluate"
    )


def _live(
    scenes: Sequence[Scene],
    capacity: Capacity,
    reporter: Reporter,
    finished: Callable[[Result], None],
    *,
    quiet: bool,
) -> list[str]:
    """Play on the real stack; what went wrong: scenarios that could not be played, rules that failed."""
    failures: list[str] = []
    done = 0
    began = time.monotonic()

    def ended(result: Result) -> None:
        nonlocal done
        done += 1
        finished(result)
        if not quiet:
            reporter.step(report.line(result))

    def failed(scene: Scene, why: str) -> None:
        failures.append(f"{scene.name} was not played to its end; its log ends:\n{why}")
        reporter.step(failures[-1])

    def meanwhile(playing: list[str]) -> None:
        minutes = (time.monotonic() - began) / 60
        reporter.now(f"{done} of {len(scenes)} done in {minutes:.1f} min; playing {len(playing)}")

    for batch in batches(scenes, capacity):
        with Stack() as stack:
            Field(stack).play(batch, ended, failed, meanwhile)
            failures += [f"rule failed: {error}" for error in stack.rule_errors()]
    return failures


def _capacity(jobs: int | None) -> Capacity:
    cores = len(os.sched_getaffinity(0))
    return Capacity(jobs if jobs is not None else 4 * cores, RANKS_A_CORE * cores)


def machine() -> str:
    """What it is played on, and what else that machine does: what it has no time for counts as not found."""
    return f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, load {os.getloadavg()[1]:.1f} before"


def product() -> str:
    """What is scored: the commit, with a digest of what differs from it; without git the version."""
    folder = find_repository()

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True).stdout

    try:
        commit = git("rev-parse", "HEAD").decode().strip()
        changed = git("diff", "--binary", "HEAD")
        # New ones too, but for what a score itself may write beside them.
        added = git("ls-files", "-z", "--others", "--exclude-standard", "--", *_PLAYED).decode()
    except (OSError, subprocess.CalledProcessError):
        return f"version {installed_version()}"
    new = [name for name in added.split("\0") if name]
    if not changed and not new:
        return commit
    content = (part for name in new for part in (name.encode(), (folder / name).read_bytes()))
    return f"{commit}{_CHANGED}{_digest(changed, *content)}"


def files(scenes: Sequence[Scene]) -> str:
    """A digest of the scenario files that are no part of the product; nothing where all are."""
    own = sorted({scene.playable.name for scene in scenes} - set(shipped()))
    return f", files {_digest(*(Path(name).read_bytes() for name in own))}" if own else ""


def _digest(*content: bytes) -> str:
    found = hashlib.sha256()
    for part in content:
        found.update(b"%d " % len(part) + part)
    return found.hexdigest()[:12]
