"""Variables that several dashboards have, each defined once.

They stay usable at 10,000 ranks: each is a set of label values or a top-k, never a list of all ranks.
"""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards.current import DATA_SOURCE, Variable
from argus_dashboards.promql import CLUSTER, JOB, MEDIAN, RANKS_SHOWN, ranks_of_interest

_ON_TIME_RANGE_CHANGE: Final = 2
_SORT_ALPHABETICALLY: Final = 1
_SORT_NUMERICALLY: Final = 3
_HIDDEN: Final = 2


def datasource() -> Any:
    return Variable(
        name="datasource",
        label="Prometheus",
        type="datasource",
        query="prometheus",
        description="The Prometheus that scrapes the exporters and evaluates the ARGUS rules.",
    )


def cluster() -> Any:
    return Variable(
        name="cluster",
        label="Cluster",
        dataSource=DATA_SOURCE,
        query="label_values(argus_rank_up, cluster)",
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_SORT_ALPHABETICALLY,
        includeAll=True,
        allValue=".*",
        description="Where several clusters share the data source and have a label `cluster`; else: All.",
    )


def training_job() -> Any:
    return Variable(
        name="training_job",
        label="Job",
        dataSource=DATA_SOURCE,
        query=f"label_values(argus_rank_up{{{CLUSTER}}}, training_job)",
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_SORT_ALPHABETICALLY,
        description="The training job.",
    )


def phases() -> Any:
    return Variable(
        name="phase",
        label="Phase",
        dataSource=DATA_SOURCE,
        query=f"label_values({MEDIAN}{{{JOB}}}, phase)",
        refresh=_ON_TIME_RANGE_CHANGE,
        multi=True,
        includeAll=True,
        allValue=".+",
        description="Phases to show.",
    )


def one_phase() -> Any:
    return Variable(
        name="map_phase",
        label="Map: phase",
        dataSource=DATA_SOURCE,
        query=f"label_values({MEDIAN}{{{JOB}}}, phase)",
        refresh=_ON_TIME_RANGE_CHANGE,
        description="The phase that the maps of ranks show.",
    )


def ranks(phases: str, *, several: bool) -> Any:
    many = f"All: the {RANKS_SHOWN} that matter most, culprits first. " if several else ""
    return Variable(
        name="rank",
        label="Ranks" if several else "Rank",
        dataSource=DATA_SOURCE,
        # On one line: Grafana does not recognise a query_result that spans several.
        query=f"query_result({' '.join(ranks_of_interest(phases).split())})",
        regex='/rank="([^"]+)"/',
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_SORT_NUMERICALLY if several else 0,
        multi=several,
        includeAll=several,
        description=f"{many}The {RANKS_SHOWN} that matter most are offered; any other may be typed in.",
    )


def role() -> Any:
    return Variable(
        name="role",
        label="Role",
        dataSource=DATA_SOURCE,
        query=f"label_values(argus_rank_info{{{JOB}}}, role)",
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_SORT_ALPHABETICALLY,
        description="Ranks that should run the same kernels: only they can be compared.",
    )


def kernel() -> Any:
    return Variable(
        name="kernel",
        label="Kernel",
        dataSource=DATA_SOURCE,
        query=f"label_values(argus_kernel_info{{{JOB}}}, kernel)",
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_SORT_ALPHABETICALLY,
        description="The kernel; its full name is in the table of ranks.",
    )


def gpu(ranks: str) -> Any:
    """Of the chosen rank: not shown, as it follows from the rank."""
    return Variable(
        name="gpu",
        dataSource=DATA_SOURCE,
        query=f"label_values(argus_rank_info{{{ranks}}}, gpu_uuid)",
        refresh=_ON_TIME_RANGE_CHANGE,
        hide=_HIDDEN,
        description="GPU of the rank.",
    )


def hidden(name: str, query: str, label: str) -> Any:
    """A label of the first sample of a query, which nobody chooses; empty where there is none."""
    return Variable(
        name=name,
        dataSource=DATA_SOURCE,
        query=f"query_result({query})",
        regex=f'/{label}="([^"]+)"/',
        refresh=_ON_TIME_RANGE_CHANGE,
        hide=_HIDDEN,
        description=f"The card: {label} of what costs the job most.",
    )


def choice(name: str, label: str, values: str, default: str, description: str) -> Any:
    """A list that is fixed: `text : value, ...` or plain values."""
    return Variable(
        name=name, label=label, type="custom", query=values, default=default, description=description
    )


def text(name: str, label: str, value: str, description: str) -> Any:
    return Variable(
        name=name, label=label, type="textbox", query=value, default=value, description=description
    )
