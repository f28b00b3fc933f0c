"""L3: which kernels have left the distribution of their role?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.current import column
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import CULPRITS_SHOWN, JOB, RANKS, with_kernel_name
from argus_dashboards.theme import GOOD, NOTICE, RATIO, SECONDS, steps

# Two workers publish under `worker`; the aggregations drop it.
_LABELS = "rank, kernel, stream, cause, verdict, team"
# "all" is the worker's word for a GPU on which every kernel is slow, and no kernel to look at.
_ALL = f'max by ({_LABELS}) (argus_l3_anomaly{{{JOB}, verdict!="victim", kernel!="all"}})'
_WORST = f"{_ALL}\nand topk({CULPRITS_SHOWN}, abs({_ALL}))"
# Of the rank: what its kernels lose together, on each of its rows.
_LOST = f'max by (rank) (rank:argus_evidence:lost_ratio{{{JOB}, cause="kernel"}})'
_COST = f"({_WORST}) ^ 0\n* on (rank) group_left () {_LOST}"

_ANOMALIES = table(
    "Kernel anomalies",
    """
    Kernels whose durations have left those of the rank's role; collectives in which it only waits are left
    out. Shift: how much slower (negative: faster). Wall time lost, by all of the rank's kernels together,
    tells whether it matters: a large shift of a rare kernel does not. One rank with many kernels: its GPU.
    Many ranks with one kernel: the kernel, or its input. How slow a GPU is as a whole is below. Empty: none,
    or the worker does not run (last section).
    """,
    [with_kernel_name(_WORST), with_kernel_name(_COST)],
    {
        "rank": "Rank",
        "kernel": "Kernel",
        "name": "Name",
        "stream": "Stream",
        "cause": "Cause",
        "verdict": "Verdict",
        "team": "Team",
        "Value #A": columns.SHIFT,
        "Value #B": columns.LOST,
    },
    overrides=[
        columns.RANK,
        columns.KERNEL,
        columns.STREAM,
        columns.CAUSE,
        columns.VERDICT,
        columns.TEAM,
        columns.SHIFT_RATIO,
        columns.LOST_SHARE,
    ],
    sort=columns.LOST,
    empty="No kernel has left the distribution of its role",
)

_RANK_SHIFT = lines(
    "All compute kernels of a rank against its role",
    """
    Time-weighted shift over the rank's compute kernels, for the ranks chosen above. Steadily above 3 %:
    this GPU is slow as a whole (clocks, power, heat).
    """,
    [("rank {{rank}}", f"max by (rank) (argus_l3_rank_shift_ratio{{{RANKS}}})")],
    unit=RATIO,
    floor=None,
    limits=steps(GOOD, {NOTICE: 0.03}),
)

_W1 = lines(
    "W1 of flagged kernels, its fence and IQR",
    """
    Mean Wasserstein distance to the other ranks of the role, for kernels with an anomaly, or the costliest of
    a GPU that is slow as a whole. Above its fence the rank is an outlier of its role. Below it and still
    flagged: many ranks are bad at once and moved the fence, which lies three interquartile ranges (IQR) above
    the third quartile.
    """,
    [
        (
            "rank {{rank}} {{kernel}} {{stream}}",
            f"topk(10, max by (rank, kernel, stream) (argus_l3_kernel_w1_seconds{{{RANKS}}}))",
        ),
        (
            "fence {{kernel}} {{stream}}",
            f"topk(10, max by (kernel, stream) (argus_l3_kernel_w1_fence_seconds{{{JOB}}}))",
        ),
        (
            "IQR {{kernel}} {{stream}}",
            f"topk(10, max by (kernel, stream) (argus_l3_kernel_w1_iqr_seconds{{{JOB}}}))",
        ),
    ],
    unit=SECONDS,
    dashed=["/^(fence|IQR)/"],
    empty="No kernel of these ranks is flagged",
)

_GROUP_SHIFTS = table(
    "Shifts between groups of ranks",
    """
    One kernel is slower on a whole part of a role, and this coordinate divides the two parts: what the slow
    ranks share (host, link, rail) is the place to look.
    """,
    [f"topk(20, max by (kernel, cause, team, coordinate, value) (argus_l3_group_shift{{{JOB}}}))"],
    {
        "coordinate": "Place",
        "value": "Slow at",
        "Value": columns.SHIFT,
        "cause": "Cause",
        "team": "Team",
        "kernel": "Kernel",
    },
    overrides=[
        column("Place", custom__width=70),
        column("Slow at", custom__width=80),
        columns.SHIFT_RATIO,
        columns.TEAM,
        columns.CAUSE,
        columns.KERNEL,
    ],
    sort=columns.SHIFT,
    empty="No part of a role differs from the others",
)

_RHYTHM = lines(
    "Cross-check: rhythm (KAIR)",
    """
    Mean Kolmogorov-Smirnov distance of the rank's completions over five minutes to those of its role, the
    ten farthest. It makes no verdict: one rank far above the others agrees that it is behind, all close
    together do not excuse it. Empty: `witness.enabled` of the worker is off, as it is by default.
    """,
    [("rank {{rank}}", f"topk(10, max by (rank) (argus_l3_rhythm_divergence{{{JOB}}}))")],
    unit=RATIO,
    empty="Off (witness.enabled), or too few ranks",
)

_PATTERNS = table(
    "Cross-check: what GPU time consists of (EROICA)",
    """
    Ranks whose GPU spends its time otherwise than its role's, in shares of compute, copies, communication
    that nothing hides, and idle, with the utilisation that dcgm-exporter has beside. It makes no verdict, and
    sees only what differs by 40 % in one of them, or in their sum. Empty: none, or `witness.enabled` is off.
    """,
    [f"topk(20, max by (rank, part) (argus_l3_pattern_distance{{{JOB}}}))"],
    {"rank": "Rank", "part": "Part", "Value": "Unlike peers"},
    overrides=[columns.RANK, column("Part", custom__width=110), column("Unlike peers", unit=RATIO)],
    sort="Unlike peers",
    empty="No rank is unlike its peers, or off (witness.enabled)",
)

SECTION: Final = Section(
    7,
    "Kernels (L3)",
    [
        Line(9, [(24, _ANOMALIES)]),
        Line(9, [(7, _RANK_SHIFT), (7, _W1), (10, _GROUP_SHIFTS)]),
        Line(7, [(12, _RHYTHM), (12, _PATTERNS)]),
    ],
    folded=True,
)
