"""From one dashboard to the next: jobs, job, rank, kernel."""

from __future__ import annotations

from typing import Final

from argus_dashboards.theme import Json

JOBS: Final = "argus-jobs"
JOB: Final = "argus-job"
"""Alerts link here (`dashboardUrl` in jsonnet/config.libsonnet), with var-training_job and var-rank."""
RANK: Final = "argus-rank"
KERNEL: Final = "argus-kernel"
ITSELF: Final = "argus-itself"


def to_dashboard(uid: str, title: str, *variables: str, keep_job: bool = True) -> Json:
    """A data link that keeps data source, cluster, job and time range; `variables` are `name=value`.

    `keep_job`: whether `variables` leave out which job it is, and so of which cluster.
    """
    kept = ["datasource", *(["cluster", "training_job"] if keep_job else [])]
    parts = [f"${{{name}:queryparam}}" for name in kept]
    query = "&".join((*parts, "${__url_time_range}", *(f"var-{variable}" for variable in variables)))
    return {"title": title, "url": f"/d/{uid}/{uid}?{query}", "targetBlank": False}


def all_dashboards() -> Json:
    """The menu at the top of every dashboard."""
    return {
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": ["argus"],
        "targetBlank": False,
        "title": "ARGUS",
        "tooltip": "Other ARGUS dashboards, with the same job and time",
        "type": "dashboards",
        "url": "",
    }
