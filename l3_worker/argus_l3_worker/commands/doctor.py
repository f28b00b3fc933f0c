"""`argus-l3-worker doctor`: is all there that the worker needs."""

from __future__ import annotations

import argparse
import asyncio
import sys

from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.reports import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was checked; 1 where something is missing."""
    checks = asyncio.run(doctor.examine(configuration(options)))
    sys.stdout.write(doctor.as_json(checks) + "\n" if options.json else doctor.table(checks))
    return 0 if doctor.healthy(checks) else 1
