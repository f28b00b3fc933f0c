"""`argus-l3-worker once`: one cycle, and what it found."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from argus_core.option_types import moment
from argus_l3_worker.errors import DeliveryError
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.reports import report
from argus_l3_worker.serve import once
from argus_l3_worker.telemetry import Telemetry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time",
        type=moment,
        metavar="UNIX",
        help="judge what Prometheus held at this Unix time (default: now)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--write", action="store_true", help="write it back, too, in place of a worker that serves"
    )
    add_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was found.

    Raises:
        ArgusWorkerError: Prometheus cannot be asked, or does not take the results.
    """
    at = float(int(time.time())) if options.time is None else options.time
    found = asyncio.run(once(configuration(options), at, Telemetry(), write=options.write))
    sys.stdout.write(report.as_json(found) + "\n" if options.json else report.table(found))
    if found.delivered is False:
        raise DeliveryError("nothing was written back, see the log above")
    return 0
