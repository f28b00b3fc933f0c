"""Asks a Prometheus every query of the dashboards: which panels have data, and what does each query cost?

    PYTHONPATH=dashboards python -m argus_dashboards.probe http://127.0.0.1:9090 [DASHBOARD] [NAME=VALUE ...]

Variables have the value that Grafana would choose first, unless one is given, such as training_job=llm.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from argus_dashboards.inspection import PanelQuery, interpolate, queries, variable_expr
from argus_dashboards.theme import Json

GENERATED: Final = Path(__file__).resolve().parent.parent / "generated"
_TIMEOUT_SECONDS: Final = 120.0


class Refused(Exception):
    """Prometheus did not answer with data."""


@dataclass(frozen=True)
class Span:
    """The time range that is shown, Unix seconds."""

    end: float
    seconds: float = 3600.0
    scrape_seconds: float = 15.0

    @property
    def start(self) -> float:
        return self.end - self.seconds


@dataclass(frozen=True)
class Answer:
    """What Prometheus said to one query."""

    query: PanelQuery
    result: list[Any]
    seconds: float
    error: str = ""


class Source:
    """The HTTP API of one Prometheus, asked as Grafana asks it."""

    def __init__(self, url: str, span: Span) -> None:
        self._url, self.span = url.rstrip("/"), span

    def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer:
        """One query, over the range or at its end."""
        if query.instant:
            path = "query"
            parameters: dict[str, Any] = {"query": interpolate(query.expr, values), "time": self.span.end}
        else:
            path = "query_range"
            step = max(self.span.seconds / query.points, query.least_step)
            # Grafana's rule: no sample between two points is left out.
            rate = max(step + self.span.scrape_seconds, 4 * self.span.scrape_seconds)
            own = {"__interval": f"{step:.0f}s", "__rate_interval": f"{rate:.0f}s"}
            parameters = {"query": interpolate(query.expr, {**values, **own})}
            parameters |= {"start": self.span.start, "end": self.span.end, "step": step}
        begun = time.perf_counter()
        try:
            result = self._get(path, parameters)["result"]
        except Refused as refused:
            return Answer(query, [], time.perf_counter() - begun, str(refused))
        return Answer(query, result, time.perf_counter() - begun)

    def choices(self, variable: Json, values: Mapping[str, str]) -> list[str]:
        """What Grafana would offer for a variable of type query.

        Raises:
            Refused: the query is wrong.
        """
        selector = interpolate(variable_expr(variable["query"]), values)
        if variable["query"].startswith("label_values"):
            label = variable["query"].rstrip(")").rsplit(",", 1)[1].strip()
            asked = {"match[]": selector, "start": self.span.start, "end": self.span.end}
            return list(self._get(f"label/{label}/values", asked, post=False))
        result = self._get("query", {"query": selector, "time": self.span.end})["result"]
        shown = ["{" + ",".join(f'{k}="{v}"' for k, v in one["metric"].items()) + "}" for one in result]
        pattern = re.compile(variable["regex"].strip("/"))
        return [match[1] for text in shown if (match := pattern.search(text))]

    def _get(self, path: str, parameters: Mapping[str, Any], *, post: bool = True) -> Any:
        body = urllib.parse.urlencode(parameters)
        url = f"{self._url}/api/v1/{path}"
        request = urllib.request.Request(url, body.encode()) if post else f"{url}?{body}"
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error)["error"]) from error
        except TimeoutError as error:
            raise Refused(f"no answer within {_TIMEOUT_SECONDS:.0f} s") from error


def resolve(source: Source, dashboard: Json, given: Mapping[str, str]) -> dict[str, str]:
    """A value of every variable: the given one, or the first that Grafana would choose.

    Raises:
        Refused: the query of a variable is wrong.
    """
    scrape = source.span.scrape_seconds
    values = {  # what Grafana puts in itself
        "__interval": f"{scrape:.0f}s",
        "__rate_interval": f"{4 * scrape:.0f}s",
        "__range": f"{source.span.seconds:.0f}s",
    }
    for variable in dashboard["templating"]["list"]:
        name = variable["name"]
        if name in given:
            values[name] = given[name]
        elif variable["type"] == "query" and variable.get("allValue"):
            values[name] = variable["allValue"]
        elif variable["type"] == "query":
            offered = source.choices(variable, values)
            values[name] = "|".join(offered) if variable["includeAll"] else next(iter(offered), "")
        else:
            values[name] = (variable.get("current") or {}).get("value", "")
    return values


def load(uid: str) -> Json:
    """A generated dashboard."""
    dashboard: Json = json.loads((GENERATED / f"{uid}.json").read_text(encoding="utf-8"))
    return dashboard


def all_uids() -> list[str]:
    return sorted(file.stem for file in GENERATED.glob("*.json"))


def main(arguments: Sequence[str]) -> int:
    """0: every query was understood; 1: one was refused; 2: usage."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    chosen = [argument for argument in arguments[1:] if "=" not in argument] or all_uids()
    given = dict(argument.split("=", 1) for argument in arguments[1:] if "=" in argument)
    source, refused = Source(arguments[0], Span(time.time())), False
    for uid in chosen:
        dashboard = load(uid)
        values = resolve(source, dashboard, given)
        for query in queries(dashboard):
            answer = source.ask(query, values)
            panel = f"{uid}: {query.panel} {query.ref}"
            print(f"{panel:80} {len(answer.result):5} series {1000 * answer.seconds:7.0f} ms  {answer.error}")
            refused |= bool(answer.error)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
