"""What ARGUS says of the rank, and who it is."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import stat, table
from argus_dashboards.promql import ALERTS, NOT_COMM, RANKS, against_peers, with_labels
from argus_dashboards.theme import (
    BAD,
    COUNT,
    CULPRIT_RATIO,
    FACT,
    GOOD,
    NOTICE,
    RATIO,
    ROBUST_RATIO,
    TICKET,
    TIMES,
    codes,
    steps,
)

_VERDICT = stat(
    "Verdict",
    """
    culprit: this rank makes the job wait; act on it. victim: it waits for another one; leave it alone. none:
    it costs the job less than 2 %.
    """,
    f'max(2 * rank:argus_verdict:active{{{RANKS}, verdict="culprit"}}'
    f' or rank:argus_verdict:active{{{RANKS}, verdict="victim"}}) or vector(0)',
    unit=COUNT,
    mappings=codes({"none": GOOD, "victim": FACT, "culprit": BAD}),
    background=True,
)
_LOST = stat(
    "Wall time lost",
    "Share of the job's time that it waits for this rank. Times the number of GPUs: what the rank costs.",
    f'max(rank:argus_verdict:lost_ratio{{{RANKS}, verdict="culprit"}}) or vector(0)',
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.02, TICKET: 0.05, BAD: 0.2}),
)
_WORST_PHASE = stat(
    "Slowest phase against peers",
    """
    Largest duration of a compute or host phase over its group's median. Near 1 the rank works like its peers
    and what is slow is elsewhere.
    """,
    f"max({against_peers(f'{RANKS}, {NOT_COMM}')})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: 1.05, TICKET: CULPRIT_RATIO, BAD: ROBUST_RATIO}),
    no_value="no data",
)
_SHIFT = stat(
    "All compute kernels against the role",
    """
    Time-weighted shift of the rank's compute kernels. Above 3 % the GPU is slow as a whole: look at clocks
    and heat below. Near 0 with one slow kernel: that kernel or its input.
    """,
    f"max(argus_l3_rank_shift_ratio{{{RANKS}}})",
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.03, BAD: 0.1}),
    no_value="no verdict",
)
_UP = stat(
    "Producer",
    """
    connected: the training process speaks to its exporter. lost: it ended without saying so. no data: the
    exporter is away, or the rank left orderly.
    """,
    f"max(argus_rank_up{{{RANKS}}})",
    unit=COUNT,
    mappings=codes({"lost": BAD, "connected": GOOD}),
    no_value="no data",
    background=True,
)

_WHO = table(
    "Who it is",
    "Place in the cluster and in the job. Ranks that share a node or a coordinate share its faults.",
    [
        "max by (rank, node, gpu_uuid, role, dp, tp, pp, ep) (argus_rank_info{" + RANKS + "})",
    ],
    {
        "rank": "Rank",
        "node": "Host",
        "gpu_uuid": "GPU",
        "role": "Role",
        "dp": "dp",
        "tp": "tp",
        "pp": "pp",
        "ep": "ep",
    },
    overrides=[columns.GPU],
    empty="No rank of this number reports",
)

_LABELS = "rank, phase, cause, team, verdict, level"
_FIRING = f'topk by (rank, phase, cause) (1, ALERTS{{{ALERTS}, rank=~"$rank", alertstate="firing"}})'
_VERDICTS = table(
    "What ARGUS says of it",
    """
    Every active verdict on this rank with its cause, what it costs, and the alert whose runbook says what to
    do. Several verdicts at once are usually one fault seen by several channels: begin with the costliest.
    """,
    [
        with_labels(
            "alertname",
            "rank, phase, cause",
            f"topk by ({_LABELS}) (1, max by ({_LABELS}, kernel) (rank:argus_verdict:lost_ratio{{{RANKS}}}))",
            _FIRING,
        )
    ],
    {
        "Value": columns.LOST,
        "verdict": "Verdict",
        "cause": "Cause",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
        "level": "Level",
        "kernel": "Kernel",
    },
    overrides=[columns.LOST_SHARE, columns.VERDICT, columns.TEAM, columns.RUNBOOK, columns.KERNEL],
    sort=columns.LOST,
    empty="Nothing: this rank costs the job no time",
)

SECTION: Final = Section(
    1,
    "Rank $rank",
    [
        Line(4, [(5, _VERDICT), (5, _LOST), (5, _WORST_PHASE), (5, _SHIFT), (4, _UP)]),
        Line(6, [(9, _WHO), (15, _VERDICTS)]),
    ],
)
