"""Asks a Prometheus every query of a dashboard: which panels would have data, and what does each query cost?

    PYTHONPATH=dashboards python -m argus_dashboards.probe http://127.0.0.1:9090 JOB [RANKS]

RANKS is a regular expression; without it the ranks are those that the dashboard's own variable chooses.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from argus_dashboards.inspection import PanelQuery, interpolate, queries

DASHBOARD: Final = Path(__file__).resolve().parent.parent / "generated" / "argus-job.json"
_RANGE_S: Final = 3600


@dataclass(frozen=True)
class Answer:
    """What Prometheus said to one query."""

    query: PanelQuery
    series: int
    seconds: float
    error: str = ""


def ask(url: str, query: PanelQuery, values: Mapping[str, str]) -> tuple[list[Any], str]:
    """Result and error of one query, over the last hour or at this moment."""
    now = time.time()
    parameters: dict[str, Any] = {"query": interpolate(query.expr, values)}
    if query.instant:
        path = "query"
        parameters["time"] = now
    else:
        path = "query_range"
        parameters |= {"start": now - _RANGE_S, "end": now, "step": _RANGE_S / query.points}
    body = urllib.parse.urlencode(parameters).encode()
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", body, timeout=60) as response:
            return json.load(response)["data"]["result"], ""
    except urllib.error.HTTPError as error:
        return [], json.load(error)["error"]


def probe(url: str, dashboard: dict[str, Any], job: str, ranks: str = "") -> list[Answer]:
    """One answer a query, in the dashboard's order."""
    values = {
        "training_job": job,
        "phase": ".+",
        "rank": ranks,
        "window": "2m",
        "__rate_interval": "1m",
        "__range": "1h",
    }
    asked = list(queries(dashboard))
    if not ranks:
        [choice] = [query for query in asked if query.panel == "variable rank"]
        values["rank"] = "|".join(series["metric"]["rank"] for series in ask(url, choice, values)[0])
    answers = []
    for query in asked:
        start = time.perf_counter()
        result, error = ask(url, query, values)
        answers.append(Answer(query, len(result), time.perf_counter() - start, error))
    return answers


def main(arguments: Sequence[str]) -> int:
    """0: every query was understood; 1: one was refused; 2: usage."""
    if not 2 <= len(arguments) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    answers = probe(arguments[0], json.loads(DASHBOARD.read_text()), *arguments[1:])
    for answer in answers:
        panel = f"{answer.query.panel} {answer.query.ref}"
        print(f"{panel:56} {answer.series:5} series {1000 * answer.seconds:7.0f} ms  {answer.error}")
    return 1 if any(answer.error for answer in answers) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
