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


def _asked(name: str, query: str, description: str, **more: Any) -> Any:
    """Values that the data source is asked for, again whenever the time range changes."""
    return Variable(
        name=name,
        dataSource=DATA_SOURCE,
        query=query,
        refresh=_ON_TIME_RANGE_CHANGE,
        description=description,
        **more,
    )


def cluster() -> Any:
    return _asked(
        "cluster",
        "label_values(argus_rank_up, cluster)",
        "Where several clusters share the data source and have a label `cluster`; else: All.",
        label="Cluster",
        sort=_SORT_ALPHABETICALLY,
        includeAll=True,
        allValue=".*",
    )


def training_job() -> Any:
    query = f"label_values(argus_rank_up{{{CLUSTER}}}, training_job)"
    return _asked("training_job", query, "The training job.", label="Job", sort=_SORT_ALPHABETICALLY)


_PHASES = f"label_values({MEDIAN}{{{JOB}}}, phase)"


def phases() -> Any:
    shown = {"label": "Phase", "multi": True, "includeAll": True, "allValue": ".+"}
    return _asked("phase", _PHASES, "Phases to show.", **shown)


def one_phase() -> Any:
    return _asked("map_phase", _PHASES, "The phase that the maps of ranks show.", label="Map: phase")


def ranks(phases: str, *, several: bool) -> Any:
    many = f"All: the {RANKS_SHOWN} that matter most, culprits first. " if several else ""
    return _asked(
        "rank",
        # On one line: Grafana does not recognise a query_result that spans several.
        f"query_result({' '.join(ranks_of_interest(phases).split())})",
        f"{many}The {RANKS_SHOWN} that matter most are offered; any other may be typed in.",
        label="Ranks" if several else "Rank",
        regex='/rank="([^"]+)"/',
        sort=_SORT_NUMERICALLY if several else 0,
        multi=several,
        includeAll=several,
    )


def role() -> Any:
    query = f"label_values(argus_rank_info{{{JOB}}}, role)"
    description = "Ranks that should run the same kernels: only they can be compared."
    return _asked("role", query, description, label="Role", sort=_SORT_ALPHABETICALLY)


def kernel() -> Any:
    query = f"label_values(argus_kernel_info{{{JOB}}}, kernel)"
    description = "The kernel; its full name is in the table of ranks."
    return _asked("kernel", query, description, label="Kernel", sort=_SORT_ALPHABETICALLY)


def gpu(ranks: str) -> Any:
    """Of the chosen rank: not shown, as it follows from the rank."""
    return _asked(
        "gpu", f"label_values(argus_rank_info{{{ranks}}}, gpu_uuid)", "GPU of the rank.", hide=_HIDDEN
    )


def hidden(name: str, query: str, label: str) -> Any:
    """A label of the first sample of a query, which nobody chooses; empty where there is none."""
    description = f"The card: {label} of what costs the job most."
    return _asked(name, f"query_result({query})", description, regex=f'/{label}="([^"]+)"/', hide=_HIDDEN)


def choice(name: str, label: str, values: str, default: str, description: str) -> Any:
    """A list that is fixed: `text : value, ...` or plain values."""
    return Variable(
        name=name, label=label, type="custom", query=values, default=default, description=description
    )


def text(name: str, label: str, value: str, description: str) -> Any:
    return Variable(
        name=name, label=label, type="textbox", query=value, default=value, description=description
    )
