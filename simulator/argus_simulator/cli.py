"""`argus-simulator`: play a simulated training job, alone or in front of the whole stack."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from argus_core.settings import SettingsError
from argus_simulator.demo.command import demo
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fleet import command as fleet_command
from argus_simulator.lab import command as run_command
from argus_simulator.score import command as score_command


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
    run_command.add_arguments(run)

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

    score_command.add_arguments(
        commands.add_parser("score", help="play the fault catalogue against the whole stack, and judge it")
    )

    return parser


def _demo(args: argparse.Namespace) -> int:
    return demo(seed=args.seed, keep=args.keep, training=args.training, json_only=args.json)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)
