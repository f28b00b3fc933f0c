"""ARGUS / Kernel: one kernel on all ranks of a role: how its durations spread, and who has left them."""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards import frame, variables
from argus_dashboards.kernel import distribution, groups, outliers
from argus_dashboards.links import KERNEL as UID
from argus_dashboards.promql import ALERTS

SECTIONS: Final = (distribution.SECTION, outliers.SECTION, groups.SECTION)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return frame.dashboard(
        UID,
        "ARGUS / Kernel",
        "How do the durations of one kernel spread over ranks, and who has left the others?",
        SECTIONS,
        [
            variables.datasource(),
            variables.cluster(),
            variables.training_job(),
            variables.role(),
            variables.kernel(),
            variables.choice(
                "coordinate",
                "Split by",
                "node, dp, tp, pp, ep",
                "node",
                "Place in cluster or job by which the last section splits the ranks.",
            ),
        ],
        alerts=f'{ALERTS}, kernel=~"$kernel|"',
    )
