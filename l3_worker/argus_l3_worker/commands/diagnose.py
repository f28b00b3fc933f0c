"""`argus-l3-worker diagnose`: one report on a job for people."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import aiohttp

from argus_core.errors import UserError
from argus_core.option_types import duration
from argus_l3_worker.config import Config
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.reports import diagnosis_report
from argus_l3_worker.reports.diagnosis import Diagnosis, diagnose
from argus_l3_worker.telemetry import Telemetry

RUNBOOK_URL = "https://github.com/argus-for-prometheus/argus/blob/main/docs/runbooks/%s.md"
"""As in jsonnet/config.libsonnet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", type=duration, default=7200.0, metavar="DURATION", help="how far back (default: 2h)"
    )
    parser.add_argument("--time", type=float, metavar="UNIX", help="end of the time (default: now)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots too")
    parser.add_argument(
        "--runbook-url", default=RUNBOOK_URL, metavar="URL", help="URL of runbooks, %%s for the alert's name"
    )
    parser.add_argument(
        "--traces-url", default="", metavar="URL", help="where people reach this worker's /traces"
    )
    add_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report.

    Raises:
        UserError: an option, or the page's file, cannot be used.
        ArgusWorkerError: no such job, or Prometheus cannot be asked.
    """
    config = configuration(options)
    if not config.training_job:
        raise UserError("--training-job is missing; allowed: the name of one training job")
    if options.runbook_url.count("%s") != 1 or options.runbook_url.count("%") != 1:
        raise UserError(f"--runbook-url is {options.runbook_url!r}; allowed: a URL with one %s")
    end = time.time() if options.time is None else options.time
    found = asyncio.run(_asked(config, end - options.since, end))
    links = options.runbook_url, options.traces_url
    if options.html is not None:
        try:
            options.html.write_text(diagnosis_report.as_html(found, *links), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {options.html}: {error.strerror}") from error
    text = diagnosis_report.as_json if options.json else diagnosis_report.as_text
    sys.stdout.write(text(found, *links).rstrip("\n") + "\n")
    return 0


async def _asked(config: Config, start: float, end: float) -> Diagnosis:
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(session, config.prometheus, Telemetry())
        return await diagnose(prometheus, config.training_job, start, end)
