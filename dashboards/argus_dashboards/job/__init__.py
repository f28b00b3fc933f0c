"""ARGUS / Job: is one training job slow, since when, whose fault is it, and what does it cost?

The first screen answers; what is below it is folded, and asks nothing before somebody opens it: why not
another rank, the job's state over time (L1), phases (L2), single ranks, where they sit, kernels (L3), and
last whether ARGUS itself sees what it should.

At 10,000 ranks no panel may draw a series per rank, and few may read one. So panels are aggregates, or a
top-k, or read the ranks of the variable `rank` only: one instant query finds those that matter most, and the
index of Prometheus does the rest.
"""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards import frame, variables
from argus_dashboards.job import (
    card,
    findings,
    first_screen,
    health,
    iterations,
    kernels,
    maps,
    phases,
    ranks,
)
from argus_dashboards.links import JOB as UID
from argus_dashboards.promql import PHASES

_FOLDED: Final = (
    findings.SECTION,
    iterations.SECTION,
    phases.SECTION,
    ranks.SECTION,
    maps.SECTION,
    kernels.SECTION,
    health.SECTION,
)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return frame.dashboard(
        UID,
        "ARGUS / Job",
        "Is one training job slow, since when, whose fault is it, and what does it cost?",
        [first_screen.section(), *_FOLDED],
        [
            variables.datasource(),
            variables.cluster(),
            variables.training_job(),
            variables.phases(),
            variables.ranks(PHASES, several=True),
            variables.choice(
                "window",
                "Window",
                "2m,10m,30m",
                "2m",
                "Window of the mean iteration time: at least three iterations.",
            ),
            variables.one_phase(),
            variables.choice(
                "map_statistic",
                "Map: statistic",
                ", ".join(f"{text} : {name}" for text, name in maps.STATISTICS.items()),
                next(iter(maps.STATISTICS.values())),
                "What the maps of ranks show.",
            ),
            variables.choice(
                "map_step",
                "Map: DP indices a row",
                ", ".join(f"{text} : {digits}" for text, digits in maps.STEPS.items()),
                maps.STEPS["1"],
                "More in a row for jobs with hundreds of data-parallel replicas.",
            ),
            *card.hidden_variables(),
            variables.text(
                "traces",
                "Traces at",
                "http://argus-l3-worker:9878",
                "Where the L3 worker serves traces: the links of suspects lead there.",
            ),
        ],
    )
