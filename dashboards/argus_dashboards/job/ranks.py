"""Single ranks: the few that matter most, or those that the reader chose."""

from __future__ import annotations

from typing import Final

from argus_dashboards.columns import GPU, HOST, PLACES, RANK, RANK_LINK, ROLE
from argus_dashboards.current import column
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import history, lines, matrix, table
from argus_dashboards.promql import COMM, NOT_COMM, RANKS, RANKS_SHOWN, to_median
from argus_dashboards.theme import (
    BAD,
    CULPRIT_RATIO,
    FAST_RATIO,
    GOOD,
    NOTICE,
    NOTICE_RATIO,
    SECONDS,
    TICKET,
    TIMES,
    Json,
    steps,
)

_SLOWER_IS_WORSE = steps(GOOD, {NOTICE: NOTICE_RATIO, TICKET: CULPRIT_RATIO, BAD: FAST_RATIO})
# A collective ends together, so the rank that comes late is short in it.
_SHORTER_IS_WORSE = steps(BAD, {TICKET: 1 / FAST_RATIO, NOTICE: 1 / CULPRIT_RATIO, GOOD: 1 / NOTICE_RATIO})

_COMM_COLUMNS: Json = {
    "matcher": {"id": "byRegexp", "options": "/ \\*$/"},
    "properties": [{"id": "thresholds", "value": {"mode": "absolute", "steps": _SHORTER_IS_WORSE}}],
}
_RANK_COLUMN = column(
    "rank\\column",  # the name that Grafana's matrix gives to its first column
    displayName="Rank",
    unit="string",
    links=[RANK_LINK],
    custom__cellOptions={"type": "auto"},
    custom__width=90,
)

_RANK_BY_PHASE = matrix(
    "Rank by phase: duration against the group's median",
    """
    1 is like its peers. Red in a compute or host phase: the rank is slow there itself. Red in a collective
    (marked *), where values below 1 are the bad ones: it arrives late because of what it did before, so look
    at its other phases. Red in a collective and nowhere else: work that no phase covers.
    """,
    f"""label_replace(max by (rank, phase) ({to_median(NOT_COMM)}), "column", "$1", "phase", "(.*)")
or label_replace(min by (rank, phase) ({to_median(COMM)}), "column", "$1 *", "phase", "(.*)")""",
    rows="rank",
    columns="column",
    numbered=("rank",),
    unit=TIMES,
    thresholds=_SLOWER_IS_WORSE,
    overrides=[_COMM_COLUMNS, _RANK_COLUMN],
)

_WHO = table(
    "Who these ranks are",
    """
    Place of each rank in the cluster and in the job. Slow ranks that share a node or a coordinate share
    their cause.
    """,
    [f"max by (rank, node, gpu_uuid, role, dp, tp, pp, ep) (argus_rank_info{{{RANKS}}})"],
    {
        "rank": "Rank",
        "node": "Host",
        "role": "Role",
        "dp": "dp",
        "tp": "tp",
        "pp": "pp",
        "ep": "ep",
        "gpu_uuid": "GPU",
    },
    overrides=[RANK, HOST, ROLE, PLACES, GPU],
    sort={"Rank": False},  # as beside it
)

_RANK_OVER_TIME = history(
    "Worst compute or host phase by rank over time",
    """
    Each row is a rank, each cell its largest duration over the group's median. A red row that begins at one
    time is a fault that began then; cells that come and go are bursts; rows that turn red together share a
    cause.
    """,
    [("{{rank}}", f"max by (rank) ({to_median(NOT_COMM)})")],
    unit=TIMES,
    thresholds=_SLOWER_IS_WORSE,
)

_LONGEST_SPAN = lines(
    "Longest span by phase",
    """
    Longest single span of these ranks in the trailing window: rare spikes that a mean hides. A host phase
    far above its typical duration: garbage collection, compilation or data loading.
    """,
    [("{{phase}}", f'max by (phase) (argus_phase_window_max_seconds{{{RANKS}, phase=~"$phase"}})')],
    unit=SECONDS,
    by_phase=True,
)

SECTION: Final = Section(
    5,
    f"Ranks (the {RANKS_SHOWN} that matter most, or those chosen above)",
    [
        Line(12, [(14, _RANK_BY_PHASE), (10, _WHO)]),
        Line(10, [(14, _RANK_OVER_TIME), (10, _LONGEST_SPAN)]),
    ],
    folded=True,
)
