"""What all dashboards have: tags, links, refresh, and the annotations that mark alerts and change points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from grafanalib import core as grafana

from argus_dashboards.current import DATA_SOURCE, SCHEMA_VERSION, Dashboard
from argus_dashboards.layout import Section, place
from argus_dashboards.links import all_dashboards
from argus_dashboards.promql import ALERTS, JOB
from argus_dashboards.theme import BAD, NOTICE, TICKET, Json

_ALERTS_MARKED: Final = 20

OF_JOB: Final = ALERTS
OF_ALL: Final = 'alertname=~"Argus.*"'


def dashboard(
    uid: str,
    title: str,
    question: str,
    sections: Sequence[Section],
    variables: Sequence[Any],
    *,
    alerts: str = OF_JOB,
    tickets: bool = False,
    change_points: bool = True,
) -> Any:
    """A dashboard, ready to be written.

    `alerts`: matchers of the alerts that are marked in its graphs. `tickets`: these too, not pages alone.
    """
    marks = [
        _alerts("Alerts", alerts, "page", BAD),
        # One fault of a job may raise dozens: whoever looks for them switches them on.
        _alerts("Tickets", alerts, "ticket", NOTICE) | {"enable": tickets},
        *([_change_points()] if change_points else []),
    ]
    return Dashboard(
        title=title,
        uid=uid,
        description=f"{question} Generated from dashboards/argus_dashboards: edit there, not here.",
        tags=["argus"],
        schemaVersion=SCHEMA_VERSION,
        graphTooltip=grafana.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh="30s",
        timezone="browser",
        time=grafana.Time("now-1h", "now"),
        templating=grafana.Templating(list(variables)),
        annotations=grafana.Annotations(marks),
        links=[all_dashboards()],
        panels=place(sections),
    )


def _alerts(name: str, matchers: str, severity: str, colour: str) -> Json:
    labels = "alertname, team, cause, rank, phase"
    return _annotation(
        name,
        f'topk({_ALERTS_MARKED}, max by ({labels}) (ALERTS{{{matchers}, alertstate="firing",'
        f' severity="{severity}"}}))',
        colour,
        "{{alertname}}",
        f"{severity} to {{{{team}}}}: {{{{cause}}}} rank {{{{rank}}}} {{{{phase}}}}",
    )


def _change_points() -> Json:
    """Marked where the change was, not where it was found: the value is the time of the split."""
    expr = f"1000 * max(job:argus_iteration:regression_split_timestamp_seconds{{{JOB}}})"
    return _annotation("Change points", expr, TICKET, "Iterations became slower", "change point (L1)") | {
        "useValueForTime": True
    }


def _annotation(name: str, expr: str, colour: str, title: str, text: str) -> Json:
    return {
        "name": name,
        "datasource": DATA_SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "team,cause",
        "useValueForTime": False,
    }
