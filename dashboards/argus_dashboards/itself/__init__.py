"""ARGUS / Itself: does ARGUS see what it should, and what does it cost, over all jobs?

Exporters, rules and worker. A fault here makes verdicts late, weak or missing; it slows no training job.
"""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards import frame, variables
from argus_dashboards.itself import channels, exporters, rules, worker
from argus_dashboards.links import ITSELF as UID
from argus_dashboards.promql import CLUSTER

_HEALTH: Final = (
    "ArgusChannelDown|ArgusRecordsDropped|ArgusOverheadBudget|ArgusL3WorkerBehind|ArgusRankMissing"
    "|ArgusRulesBehind|ArgusJobNameClash"
)

SECTIONS: Final = (channels.SECTION, exporters.SECTION, rules.SECTION, worker.SECTION)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return frame.dashboard(
        UID,
        "ARGUS / Itself",
        "Does ARGUS see what it should, and what does it cost?",
        SECTIONS,
        [variables.datasource(), variables.cluster()],
        alerts=f'{CLUSTER}, alertname=~"{_HEALTH}"',
        tickets=True,
        slowdowns=False,
    )
