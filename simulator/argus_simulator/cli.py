"""`argus-simulator`: play a simulated training job, alone or in front of the whole stack."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from argus_core.link import default_socket_path
from argus_core.settings import SettingsError
from argus_simulator.demo.command import demo
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fleet import command as fleet_command
from argus_simulator.player import Player
from argus_simulator.scenario import load_scenario, shipped
from argus_simulator.truth import write_truth


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: done; 1: the demo's verdict was wrong; 2: bad input or a part that does not start."""
    args = _parser().parse_args(arguments)
    try:
        status: int = args.handler(args)
    except (ArgusSimulatorError, SettingsError) as error:
        print(f"argus-simulator: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="argus-simulator", description="Plays simulated training jobs with faults against ARGUS."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="play one scenario to an exporter in real time")
    run.add_argument(
        "scenario", metavar="SCENARIO", help=f"a YAML file, or a shipped one: {', '.join(shipped())}"
    )
    run.add_argument(
        "--socket", type=Path, default=None, help=f"socket of the exporter (default: {default_socket_path()})"
    )
    run.add_argument("--seed", type=_whole, default=None, help="of all noise (default: the scenario's)")
    run.add_argument(
        "--duration", type=_seconds, default=None, metavar="SECONDS", help="(default: the scenario's)"
    )
    run.add_argument("--truth", type=Path, default=None, metavar="FILE", help="write the ground truth here")
    run.set_defaults(handler=_run)

    story = commands.add_parser(
        "demo", help="a slow rank found, routed and explained, in front of the whole stack"
    )
    story.add_argument(
        "--seed", type=_whole, default=0, help="chooses rank, phase and factor (default: %(default)s)"
    )
    story.add_argument("--keep", action="store_true", help="leave everything up until Ctrl-C")
    story.add_argument(
        "--training",
        choices=("simulated", "torch"),
        default="simulated",
        help="what to watch: the simulated job, or real PyTorch on 4 processes (default: %(default)s)",
    )
    story.add_argument(
        "--json", action="store_true", help="nothing but the last line on stdout; the story goes to stderr"
    )
    story.set_defaults(handler=_demo)

    fleet_command.add_arguments(
        commands.add_parser(
            "fleet", help="1,000 to 100,000 ranks as series, by remote write or as OpenMetrics for backfill"
        )
    )

    return parser


def _run(args: argparse.Namespace) -> int:
    scenario = load_scenario(args.scenario)
    if args.seed is not None:
        scenario = dataclasses.replace(scenario, seed=args.seed)
    duration = args.duration if args.duration is not None else scenario.duration_seconds
    if args.truth is not None:
        try:
            write_truth(args.truth, scenario.faults)
        except OSError as error:
            raise ArgusSimulatorError(f"{args.truth}: cannot write the truth: {error.strerror}") from error
    player = Player(scenario.job(), scenario.training_job, args.socket or default_socket_path())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: player.stop())
    player.play(duration)
    progress = player.progress
    print(
        f"played {progress.steps} steps of {scenario.topology.dp * scenario.topology.tp} ranks",
        file=sys.stderr,
    )
    if progress.dropped:
        print(f"{progress.dropped} records could not be delivered", file=sys.stderr)
    return 0


def _demo(args: argparse.Namespace) -> int:
    return demo(seed=args.seed, keep=args.keep, training=args.training, json_only=args.json)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
