"""ARGUS / Jobs: every training job with its state, what it loses, and who has been called.

Everything here is recorded by job, so its cost does not depend on how many ranks the jobs have.
"""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards import frame, variables
from argus_dashboards.jobs import over_time, overview
from argus_dashboards.links import JOBS as UID

SECTIONS: Final = (overview.SECTION, over_time.SECTION)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return frame.dashboard(
        UID,
        "ARGUS / Jobs",
        "Which training jobs are slow, and what does that cost?",
        SECTIONS,
        [variables.datasource(), variables.cluster()],
        alerts=frame.OF_ALL,
        slowdowns=False,
    )
