"""ARGUS / Rank: what one rank does, and in what it differs from its peers.

From top to bottom: what ARGUS says of it, its hardware, its phases, its kernels, its host work, and whether
ARGUS sees it at all. Every query names the rank, so a job of any size costs the same.
"""

from __future__ import annotations

from typing import Any, Final

from argus_dashboards import frame, variables
from argus_dashboards.links import RANK as UID
from argus_dashboards.promql import ALERTS, JOB, RANKS
from argus_dashboards.rank import channels, hardware, host, kernels, phases, state

SECTIONS: Final = (
    state.SECTION,
    hardware.SECTION,
    phases.SECTION,
    kernels.SECTION,
    host.SECTION,
    channels.SECTION,
)


def dashboard() -> Any:
    """The dashboard, ready to be written."""
    return frame.dashboard(
        UID,
        "ARGUS / Rank",
        "What does one rank do, and in what does it differ from its peers?",
        SECTIONS,
        [
            variables.datasource(),
            variables.cluster(),
            variables.training_job(),
            variables.ranks(JOB, several=False),
            variables.gpu(RANKS),
        ],
        alerts=f'{ALERTS}, rank=~"$rank|"',
    )
