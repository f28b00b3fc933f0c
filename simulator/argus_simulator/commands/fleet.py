"""`argus-simulator fleet`: what the user may ask for, and what it says while it runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from argus_core.option_types import duration
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fleet import faults
from argus_simulator.fleet.openmetrics import OpenMetricsFile
from argus_simulator.fleet.play import CHANNELS, Fleet, FleetPlan, Written, history, layout, play
from argus_simulator.fleet.remote import RemoteWrite
from argus_simulator.fleet.sinks import Sink

_EPILOG = f"""
faults, as --fault mechanism=kernels,ranks=77,phases=*-backward,factor=1.6,onset=30m (may be repeated):
mechanisms and keys of the fault lab. ranks: numbers, ranges and places (pp3, dp17, ep2, host4) joined by +.
onset and end: times (90s, 30m, 2h), which become steps
{faults.described()}

examples:
  argus-simulator fleet --ranks 10240 --tp 4 --pp 4 --remote-write http://127.0.0.1:9090/api/v1/write \\
      --history 1h --fault mechanism=kernels,ranks=77,phases=*-backward,factor=1.5,onset=30m
  argus-simulator fleet --ranks 1024 --openmetrics fleet.om --history 2h \\
      --fault mechanism=kernels,ranks=pp1,kernels='*flash*',factor=1.2
  promtool tsdb create-blocks-from openmetrics fleet.om DATA_FOLDER
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("--ranks", type=int, default=1024, help="(default: %(default)s)")
    parser.add_argument("--tp", type=int, default=4, help="tensor-parallel ranks (default: %(default)s)")
    parser.add_argument("--pp", type=int, default=4, help="pipeline stages (default: %(default)s)")
    parser.add_argument("--ep", type=int, default=1, help="expert-parallel ranks (default: %(default)s)")
    parser.add_argument("--ranks-per-host", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--job", default="fleet", help="training_job label (default: %(default)s)")
    parser.add_argument("--step", type=duration, default=4.0, help="healthy step time (default: 4s)")
    parser.add_argument("--seed", type=int, default=0, help="of all noise (default: %(default)s)")
    parser.add_argument("--fault", action="append", default=[], metavar="KEY=VALUE,...", help="see below")
    parser.add_argument(
        "--channels", default=",".join(CHANNELS), help="comma-separated (default: %(default)s)"
    )
    parser.add_argument(
        "--pairs", type=int, default=20, help="(kernel, stream) pairs a rank publishes (default: %(default)s)"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="a target label, such as cluster=a"
    )
    parser.add_argument("--history", type=duration, default=3600.0, help="time before now (default: 1h)")
    parser.add_argument("--every", type=duration, default=15.0, help="between samples (default: 15s)")
    parser.add_argument(
        "--live", type=duration, default=0.0, help="then go on in real time so long (default: not)"
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--remote-write", metavar="URL", help="send to this Prometheus, /api/v1/write")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of remote write, such as X-Scope-OrgID=team-a for a tenant",
    )
    target.add_argument(
        "--openmetrics", type=Path, metavar="FILE", help="write a file for promtool's backfill"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(options: argparse.Namespace) -> int:
    """Play it.

    Raises:
        ArgusSimulatorError: values that cannot be, or a destination that does not take the samples.
    """
    plan = _plan(options)
    if options.every <= 0 or options.history < 0:
        raise ArgusSimulatorError(f"--every is {options.every:g} s; allowed: above 0")
    if options.openmetrics is not None and options.live:
        raise ArgusSimulatorError("--live goes with --remote-write only: a file is complete at once")
    if options.openmetrics is not None and options.header:
        raise ArgusSimulatorError("--header goes with --remote-write only")
    times = history(time.time(), options.history, options.every, options.live)
    sink: Sink = (
        OpenMetricsFile(options.openmetrics)
        if options.openmetrics
        else RemoteWrite(options.remote_write, dict(map(_header, options.header)))
    )
    _note(options.quiet, f"{plan.topology.ranks} ranks: playing the replicas that differ")
    fleet = Fleet(plan, times)
    series = sum(block.size for block in fleet.blocks)
    _note(options.quiet, f"at most {series} series, {len(times)} samples of each")
    say = _silent if options.quiet else _progress(time.monotonic())
    sink.open(fleet.blocks)
    for written in play(fleet, sink):
        say(written)
    sink.close()
    _note(options.quiet, "\ndone")
    return 0


def _plan(options: argparse.Namespace) -> FleetPlan:
    try:
        topology = layout(
            options.ranks, tp=options.tp, pp=options.pp, ep=options.ep, ranks_per_host=options.ranks_per_host
        )
        return FleetPlan(
            topology,
            options.job,
            options.step,
            options.seed,
            tuple(options.fault),
            tuple(options.channels.split(",")),
            options.pairs,
            dict(map(_label, options.label)),
        )
    except ValueError as error:
        raise ArgusSimulatorError(str(error)) from error


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ValueError(f"--label {text}: allowed: NAME=VALUE, such as cluster=a")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ArgusSimulatorError(f"--header {text}: allowed: NAME=VALUE, such as X-Scope-OrgID=team-a")
    return name, value


def _note(quiet: bool, text: str) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def _silent(written: Written) -> None:
    """Nothing."""


def _progress(began: float) -> Callable[[Written], None]:
    def say(written: Written) -> None:
        spent = time.monotonic() - began
        print(
            f"\rsample {written.number} of {written.of}: {written.series} series, {spent:.0f} s",
            end="",
            file=sys.stderr,
            flush=True,
        )

    return say
