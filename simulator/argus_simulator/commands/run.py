"""`argus-simulator run`: play one scenario to an exporter."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from argus_core.link import default_socket_path
from argus_core.option_types import number, whole_number
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.lab.scenario import MAGNITUDES, Scenario, load_scenario, shipped, variants
from argus_simulator.lab.truth import write_truth
from argus_simulator.player import Player, Progress

_PROGRESS_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        help="a YAML file, or a shipped one; without --socket's exporter: --check",
    )
    parser.add_argument(
        "--socket", type=Path, default=None, help=f"socket of the exporter (default: {default_socket_path()})"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(),
        default=None,
        help="of noise and of the ranks that are hit (default: the scenario's)",
    )
    parser.add_argument(
        "--magnitude", choices=MAGNITUDES, default="", help="(default: mid, where there is one)"
    )
    parser.add_argument("--topology", default="", metavar="NAME", help="(default: the scenario's first)")
    parser.add_argument(
        "--duration",
        type=number(zero=False),
        default=None,
        metavar="SECONDS",
        help="(default: the scenario's)",
    )
    parser.add_argument(
        "--speed", type=number(zero=False), default=1.0, metavar="FACTOR",
        help="divide every duration by this: more steps a second, each with all its records (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--truth", type=Path, default=None, metavar="FILE", help="write the ground truth here"
    )
    parser.add_argument("--check", action="store_true", help="check the file and every variant; play nothing")
    parser.epilog = "shipped scenarios: " + ", ".join(shipped())


def run(options: argparse.Namespace) -> int:
    """Play it; raises UserError where there is nothing to play."""
    if options.check:
        return _check(options.scenario)
    scenario = load_scenario(
        options.scenario, seed=options.seed, magnitude=options.magnitude, topology=options.topology
    ).compressed(options.speed)
    if options.truth is not None:
        try:
            write_truth(options.truth, scenario.truth)
        except OSError as error:
            raise ArgusSimulatorError(f"{options.truth}: cannot write the truth: {error.strerror}") from error
    duration = options.duration if options.duration is not None else scenario.duration_seconds
    shown = _Shown(duration)
    player = Player(
        scenario.job(), scenario.training_job, options.socket or default_socket_path(), on_step=shown.step
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: player.stop())
    print(_describe(scenario), file=sys.stderr)
    player.play(duration)
    shown.end()
    progress = player.progress
    print(f"played {progress.steps} steps of {scenario.topology.build().ranks} ranks", file=sys.stderr)
    if progress.hung:
        print("the job hung: no further step", file=sys.stderr)
    if progress.dropped:
        print(f"{progress.dropped} records could not be delivered", file=sys.stderr)
    return 0


def _check(name: str) -> int:
    for variant in variants(name):
        scenario = load_scenario(name, magnitude=variant.magnitude, topology=variant.topology)
        job = scenario.job()
        job.next_step()
        which = " ".join(part for part in (variant.topology, variant.magnitude) if part) or "as it stands"
        print(f"{which}: {_describe(scenario)}")
    return 0


def _describe(scenario: Scenario) -> str:
    at = scenario.topology
    sizes = " ".join(
        f"{name}{getattr(at, name)}" for name in ("dp", "tp", "pp", "ep") if getattr(at, name) > 1
    )
    faults = ", ".join(fault.mechanism or "" for fault in scenario.faults.values()) or "nothing"
    return (
        f"{scenario.training_job}: {at.build().ranks} ranks ({sizes or 'alone'}), steps of "
        f"{scenario.step_seconds:g} s, seed {scenario.seed}; faults: {faults}"
    )


class _Shown:
    """One line on a terminal, rewritten each second; nothing where stderr is a file."""

    def __init__(self, duration_s: float) -> None:
        self._duration = duration_s
        self._began = time.monotonic()
        self._said = 0.0
        self._terminal = sys.stderr.isatty()

    def step(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._terminal or now - self._said < _PROGRESS_S:
            return
        self._said = now
        late = f", {progress.lag_seconds:.1f} s behind" if progress.lag_seconds > _PROGRESS_S else ""
        state = "hung" if progress.hung else f"step {progress.steps}"
        print(f"\r{state}, {now - self._began:.0f} of {self._duration:g} s{late}   ", end="", file=sys.stderr)

    def end(self) -> None:
        if self._terminal and self._said:
            print(file=sys.stderr)
