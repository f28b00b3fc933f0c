"""`argus-l3-worker diagnose`: one report on a job for people."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from argus_core.errors import UserError
from argus_l3_worker.commands.explain import add_question, answer
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.reports import diagnosis_report
from argus_l3_worker.reports.card import Card, cards_of
from argus_l3_worker.reports.diagnosis import Diagnosis, diagnose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots too")


def run(options: argparse.Namespace) -> int:
    """Print the report.

    Raises:
        UserError: an option, or the page's file, cannot be used; jobs of several clusters have the name.
        ArgusWorkerError: no such job, or Prometheus cannot be asked.
    """
    told, links = answer(options, _with_cards)
    if options.html is not None:
        try:
            options.html.write_text(diagnosis_report.as_html(*told, links), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {options.html}: {error.strerror}") from error
    text = diagnosis_report.as_json if options.json else diagnosis_report.as_text
    sys.stdout.write(text(*told, links).rstrip("\n") + "\n")
    return 0


async def _with_cards(
    prometheus: Prometheus, job: Mapping[str, str], start: float, end: float
) -> tuple[Diagnosis, list[Card]]:
    found = await diagnose(prometheus, job, start, end)
    if len(found.clusters) > 1:
        raise UserError(
            f"jobs of several clusters are called {found.training_job} ({', '.join(found.clusters)}); "
            "say which by --cluster"
        )
    return found, await cards_of(prometheus, found, diagnosis_report.MOST_CARDS)
