"""What all dashboards have: tags, links, refresh, and the annotations that mark alerts and slowdowns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from grafanalib import core as grafana

from argus_dashboards.current import DATA_SOURCE, SCHEMA_VERSION, Dashboard
from argus_dashboards.layout import Section, place
from argus_dashboards.links import all_dashboards
from argus_dashboards.promql import ALERTS, CLUSTER, JOB, JOB_LABELS, OF_ARGUS
from argus_dashboards.theme import BAD, NOTICE, TICKET, Json

_ALERTS_MARKED: Final = 20

OF_JOB: Final = ALERTS
OF_ALL: Final = f"{CLUSTER}, {OF_ARGUS}"


def dashboard(
    uid: str,
    title: str,
    question: str,
    sections: Sequence[Section],
    variables: Sequence[Any],
    *,
    alerts: str = OF_JOB,
    tickets: bool = False,
    slowdowns: bool = True,
) -> Any:
    """A dashboard, ready to be written.

    `alerts`: matchers of the alerts that are marked in its graphs. `tickets`: these too, not pages alone.
    """
    marks = [
        _alerts("Alerts", alerts, "page", BAD),
        # One fault of a job may raise dozens: whoever looks for them switches them on.
        _alerts("Tickets", alerts, "ticket", NOTICE) | {"enable": tickets},
        *([_slowdowns()] if slowdowns else []),
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
    labels = f"{JOB_LABELS}, alertname, severity, team, cause, rank, set, group, phase"
    return _annotation(
        name,
        f'topk({_ALERTS_MARKED}, max by ({labels}) (ALERTS{{{matchers}, alertstate="firing",'
        f' severity="{severity}"}}))',
        colour,
        "{{alertname}}",
        "{{severity}} to {{team}}: {{training_job}} {{cluster}}"
        " {{cause}} {{rank}} {{set}} {{group}} {{phase}}",
    )


def _slowdowns() -> Json:
    """While the job needs longer than it did, from when that was found."""
    expr = f'max(rank:argus_evidence:lost_ratio{{{JOB}, cause="regression"}})'
    return _annotation("Slowdowns", expr, TICKET, "Iterations are slower than before", "regression (L1)")


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
