"""dashboards/generated/*.json from the grafanalib sources in dashboards/argus_dashboards.

`python -m tools.generate_dashboards` writes them; `--check` exits 1 and names what is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.generated import write_or_check

FOLDER = Path(__file__).resolve().parent.parent / "dashboards"
# The sources are no part of the installed distribution: only this repository needs grafanalib.
sys.path.insert(0, str(FOLDER))

from grafanalib._gen import DashboardEncoder  # noqa: E402

from argus_dashboards import itself, job, jobs, kernel, links, rank  # noqa: E402

DASHBOARDS: Mapping[str, Callable[[], Any]] = {
    links.JOBS: jobs.dashboard,
    links.JOB: job.dashboard,
    links.RANK: rank.dashboard,
    links.KERNEL: kernel.dashboard,
    links.ITSELF: itself.dashboard,
}
"""File name without suffix, which is also the dashboard's uid, to what builds it."""


def render(build: Callable[[], Any]) -> str:
    """A dashboard as Grafana's provisioning reads it."""
    return json.dumps(build().to_json_data(), cls=DashboardEncoder, indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    files = {FOLDER / "generated" / f"{uid}.json": render(build) for uid, build in DASHBOARDS.items()}
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
