"""Who has left the distribution of the role: shift, and W1 with its fence."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.kernel.promql import KERNEL, OF_ROLE, POINTS
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import JOB, with_place
from argus_dashboards.theme import BAD, FACT, GOOD, NOTICE, RATIO, SECONDS, steps

_SHOWN: Final = 10
_ROWS: Final = 30
_BY = "rank, stream"
_SHIFT = f"max by ({_BY}) (argus_l3_kernel_shift_ratio{{{KERNEL}}} {OF_ROLE})"
_SHIFT_LAST = f"max by ({_BY}) (argus_l3_kernel_shift_ratio{{{KERNEL}}} @ end() {OF_ROLE} @ end())"
_W1 = f"max by ({_BY}) (argus_l3_kernel_w1_seconds{{{KERNEL}}} {OF_ROLE})"
_W1_LAST = f"max by ({_BY}) (argus_l3_kernel_w1_seconds{{{KERNEL}}} @ end() {OF_ROLE} @ end())"

_FURTHEST = f"topk({_ROWS}, abs({_SHIFT}))"

_SHIFTS = lines(
    "Shift of the ranks furthest away",
    f"""
    Signed shift against the role's median, for the {_SHOWN} ranks with the largest. Steadily above 10 % the
    kernel is slow there; below 0 the rank is faster, which is no fault but may be other work. Empty while no
    rank or group of ranks has an anomaly in this kernel.
    """,
    # Whoever is furthest at the end: a choice made anew at each point would tear the lines.
    [("rank {{rank}} {{stream}}", f"{_SHIFT} and topk({_SHOWN}, abs({_SHIFT_LAST}))")],
    unit=RATIO,
    floor=None,
    limits=steps(GOOD, {NOTICE: 0.03, BAD: 0.1}),
    most_points=POINTS,
)
_W1_LINES = lines(
    "W1 of the ranks furthest away, and the fence",
    f"""
    Mean Wasserstein distance to the other ranks of the role, for the {_SHOWN} largest, with the fence of each
    role and the IQR that it is made of dashed. Above its fence a rank is an outlier. Many ranks just below:
    half the role is slow and has moved the fence; see the split below. Empty while the kernel has no anomaly.
    """,
    [
        ("rank {{rank}} {{stream}}", f"{_W1} and topk({_SHOWN}, {_W1_LAST})"),
        (
            "fence of {{role}} {{stream}}",
            f"topk({_SHOWN}, max by (role, stream)"
            f' (argus_l3_kernel_w1_fence_seconds{{{KERNEL}, role=~"$role"}}))',
        ),
        (
            "IQR of {{role}} {{stream}}",
            f"topk({_SHOWN}, max by (role, stream)"
            f' (argus_l3_kernel_w1_iqr_seconds{{{KERNEL}, role=~"$role"}}))',
        ),
    ],
    unit=SECONDS,
    dashed=["/^(fence|IQR)/"],
    most_points=POINTS,
)
_TABLE = table(
    "Ranks furthest from their role",
    f"""
    The {_ROWS} ranks with the largest shift where the kernel has an anomaly, and where they are. Ranks that
    share a host or GPU model share the cause. Click a rank for all its phases and kernels. W1 is a rank's
    mean distance to all others. All pairs are drawn by
    `argus-l3-worker matrix --training-job $training_job --kernel $kernel --out map.html`.
    """,
    [
        with_place(f"{_SHIFT} and {_FURTHEST}", JOB),
        f"{_W1} and {_FURTHEST}",
        f"max by ({_BY}) (argus_kernel_mode_p50_seconds{{{KERNEL}}} {OF_ROLE}) and {_FURTHEST}",
        f"max by ({_BY}) (argus_kernel_mode_p99_seconds{{{KERNEL}}} {OF_ROLE}) and {_FURTHEST}",
        f"max by ({_BY}, cause, verdict) (argus_l3_anomaly{{{KERNEL}}}) and on ({_BY}) {_FURTHEST}",
    ],
    {
        "rank": "Rank",
        "node": "Host",
        "gpu_uuid": "GPU",
        "stream": "Stream",
        "Value #A": columns.SHIFT,
        "Value #B": "W1",
        "Value #C": "p50",
        "Value #D": "p99",
        "verdict": "Verdict",
        "cause": "Cause",
    },
    overrides=[
        columns.RANK,
        columns.HOST,
        columns.GPU,
        columns.STREAM,
        columns.CAUSE,
        columns.SHIFT_RATIO,
        columns.value("W1", SECONDS, steps(FACT), 100),
        columns.value("p50", SECONDS, steps(FACT), 100),
        columns.value("p99", SECONDS, steps(FACT), 100),
        columns.VERDICT,
    ],
    sort=columns.SHIFT,
)

SECTION: Final = Section(
    2,
    "Who has left their role",
    [Line(9, [(12, _SHIFTS), (12, _W1_LINES)]), Line(9, [(24, _TABLE)])],
)
