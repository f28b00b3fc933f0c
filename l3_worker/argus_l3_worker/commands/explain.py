"""`argus-l3-worker explain`: one card on a job: who, since when, what it costs, why, and what to do."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import TypeVar

import aiohttp

from argus_core.command_line import Prints
from argus_core.errors import UserError
from argus_core.option_types import duration, moment
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.reports import card_text
from argus_l3_worker.reports.card import explain
from argus_l3_worker.telemetry import Telemetry

RUNBOOK_URL = "https://github.com/argus-for-prometheus/argus/blob/main/docs/runbooks/%s.md"
"""As in jsonnet/config.libsonnet."""
T = TypeVar("T")
Ask = Callable[[Prometheus, Mapping[str, str], float, float], Awaitable[T]]
"""Asks for the job with these labels, from a Unix time to another."""
_STATUS = {"none": 3, "abstained": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (argus.verdict/1) instead of text")
    parser.add_argument(
        "--schema", action=Prints, text=lambda _: schema(), help="print the schema of that JSON and exit"
    )


def add_question(parser: argparse.ArgumentParser) -> None:
    """Which job, when, and what links begin with: of all commands that print cards."""
    parser.add_argument("--job", default="", metavar="NAME", help="the same as --training-job")
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="the job's, where its name alone is not enough"
    )
    parser.add_argument(
        "--since", type=duration, default=7200.0, metavar="DURATION", help="how far back (default: 2h)"
    )
    parser.add_argument("--time", type=moment, metavar="UNIX", help="end of the time (default: now)")
    parser.add_argument(
        "--runbook-url", default=RUNBOOK_URL, metavar="URL", help="URL of runbooks, %%s for the alert's name"
    )
    parser.add_argument("--dashboard-url", default="", metavar="URL", help="URL of the job's dashboard")
    parser.add_argument(
        "--traces-url", default="", metavar="URL", help="where people reach this worker's /traces"
    )
    add_flags(parser)


def answer(options: argparse.Namespace, ask: Ask[T]) -> tuple[T, card_text.Links]:
    """What `ask` finds of the job that is asked for, and the links of its cards.

    Raises:
        UserError: an option cannot be used.
        ArgusWorkerError: no such job, or Prometheus cannot be asked.
    """
    config = configuration(options)
    name = options.job or config.training_job
    if not name:
        raise UserError("--job is missing; allowed: the name of one training job")
    if options.runbook_url.count("%s") != 1 or options.runbook_url.count("%") != 1:
        raise UserError(f"--runbook-url is {options.runbook_url!r}; allowed: a URL with one %s")
    job = {"training_job": name} | ({"cluster": options.cluster} if options.cluster else {})
    end = math.floor(time.time()) if options.time is None else options.time
    if not 0.0 < options.since <= end:
        raise UserError(f"--since is {options.since:g} s; allowed: longer than 0 s, and not before 1970")

    async def asked() -> T:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(session, config.prometheus, Telemetry())
            return await ask(prometheus, job, end - options.since, end)

    links = card_text.Links(options.runbook_url, options.dashboard_url, options.traces_url)
    return asyncio.run(asked()), links


def schema() -> str:
    """The JSON schema of `argus.verdict/1`."""
    return files("argus_l3_worker.reports").joinpath("verdict.schema.json").read_text("utf-8").rstrip()


def run(options: argparse.Namespace) -> int:
    """Print the card; 0: somebody is accused, 3: nobody, 4: it was not judged. Raises: as `answer`."""
    card, links = answer(options, explain)
    if options.json:
        print(json.dumps(card_text.as_json(card, links), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        sys.stdout.write(card_text.as_text(card, links) + card_text.beside(card))
    return _STATUS.get(card.state, 0)
