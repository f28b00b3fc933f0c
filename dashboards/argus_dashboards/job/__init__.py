"""ARGUS / Job: is one training job slow, since when, whose fault is it, and what does it cost?

Read from top to bottom: state and cost, the job's iterations (L1), verdicts and alerts, phases (L2), single
ranks, kernels (L3), and last whether ARGUS itself sees what it should.

At 10,000 ranks no panel may draw a series per rank, and few may read one. So panels are aggregates, or a
top-k, or read the ranks of the variable `rank` only: one instant query finds those that matter most, and the
index of Prometheus does the rest.
"""

from __future__ import annotations

from typing import Any, Final

from grafanalib import core as grafana

from argus_dashboards.current import DATA_SOURCE, SCHEMA_VERSION, Dashboard, Variable
from argus_dashboards.job import health, iterations, kernels, phases, ranks, state, verdicts
from argus_dashboards.job.columns import UID
from argus_dashboards.job.promql import JOB, MEDIAN, RANKS_OF_INTEREST, RANKS_SHOWN
from argus_dashboards.layout import place

_ON_TIME_RANGE_CHANGE: Final = 2
_SORT_NUMERICALLY: Final = 3

SECTIONS: Final = (
    state.SECTION,
    iterations.SECTION,
    verdicts.SECTION,
    phases.SECTION,
    ranks.SECTION,
    kernels.SECTION,
    health.SECTION,
)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return Dashboard(
        title="ARGUS / Job",
        uid=UID,
        description="Is one training job slow, since when, whose fault is it, and what does it cost?"
        " Generated from dashboards/argus_dashboards/job: edit there, not here.",
        tags=["argus"],
        schemaVersion=SCHEMA_VERSION,
        graphTooltip=grafana.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh="30s",
        timezone="browser",
        time=grafana.Time("now-1h", "now"),
        templating=grafana.Templating(_variables()),
        panels=place(SECTIONS),
    )


def _variables() -> list[Any]:
    return [
        Variable(
            name="datasource",
            label="Prometheus",
            type="datasource",
            query="prometheus",
            description="The Prometheus that scrapes the exporters and evaluates the ARGUS rules.",
        ),
        Variable(
            name="training_job",
            label="Job",
            dataSource=DATA_SOURCE,
            query="label_values(argus_rank_up, training_job)",
            refresh=_ON_TIME_RANGE_CHANGE,
            description="The training job.",
        ),
        Variable(
            name="phase",
            label="Phase",
            dataSource=DATA_SOURCE,
            query=f"label_values({MEDIAN}{{{JOB}}}, phase)",
            refresh=_ON_TIME_RANGE_CHANGE,
            multi=True,
            includeAll=True,
            allValue=".+",
            description="Phases to show.",
        ),
        Variable(
            name="rank",
            label="Ranks",
            dataSource=DATA_SOURCE,
            # On one line: Grafana does not recognise a query_result that spans several.
            query=f"query_result({' '.join(RANKS_OF_INTEREST.split())})",
            regex='/rank="([^"]+)"/',
            refresh=_ON_TIME_RANGE_CHANGE,
            sort=_SORT_NUMERICALLY,
            multi=True,
            includeAll=True,
            description=f"Ranks to show one by one. All: the {RANKS_SHOWN} that matter most, culprits first."
            " Any other rank may be typed in.",
        ),
        Variable(
            name="window",
            label="Window",
            type="custom",
            query="2m,10m,30m",
            default="2m",
            description="Window of the mean iteration time: at least three iterations.",
        ),
    ]
