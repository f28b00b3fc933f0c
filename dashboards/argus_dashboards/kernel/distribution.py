"""The kernel's durations across ranks."""

from __future__ import annotations

from typing import Final

from argus_dashboards.kernel.promql import KERNEL, OF_ROLE, P50, P99, POINTS
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import heatmap, lines, stat
from argus_dashboards.promql import JOB_LABELS, RATE, zero_if
from argus_dashboards.theme import (
    BAD,
    COUNT,
    EXACT,
    FACT,
    GOOD,
    MOST,
    NOTICE,
    RATIO,
    SECONDS,
    TICKET,
    TIMES,
    steps,
)

_SPENT = f"argus_kernel_duration_seconds_total{{{KERNEL}}}"
_SHARE = stat(
    "Share of time",
    """
    Share of wall time that the kernel takes on the average rank. It bounds what mending the kernel can gain:
    under 1 % let it be.
    """,
    f"avg(rate({_SPENT}[5m]) {OF_ROLE})",
    unit=RATIO,
    decimals=1,
)
_PUBLISH = stat(
    "Ranks that publish it",
    "Ranks where it is among the top kernels. Only some of a role: it is slow there, or they do other work.",
    f"count(count by ({JOB_LABELS}, rank) {P50})",
    unit=EXACT,
    no_value="none",
)
_SPREAD = stat(
    "Slowest rank against the median",
    "Largest p50 over the median of ranks in the same mode and stream. Under 1.03 all ranks run it alike.",
    f"max(max by (mode, stream) {P50} / quantile by (mode, stream) (0.5, {P50}))",
    unit=TIMES,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: 1.03, TICKET: 1.1, BAD: 1.5}),
)
_FLAGGED = stat(
    "Ranks flagged",
    "Ranks of this role on which L3 finds the kernel anomalous in two of three windows: listed below.",
    f"count(count by ({JOB_LABELS}, rank) (argus_l3_anomaly{{{KERNEL}}} {OF_ROLE})) or {zero_if(P50)}",
    unit=COUNT,
    thresholds=steps(GOOD, {TICKET: 1}),
)


def _quantiles(values: str, title: str, text: str) -> object:
    return lines(
        title,
        f"""
        Slowest, typical and fastest rank, by stream and mode, on a logarithmic axis. {text} Modes are
        other shapes of the same kernel: compare within one.
        """,
        [
            ("slowest, {{stream}} mode {{mode}}", f"max by (mode, stream) {values}"),
            ("median, {{stream}} mode {{mode}}", f"quantile by (mode, stream) (0.5, {values})"),
            ("fastest, {{stream}} mode {{mode}}", f"min by (mode, stream) {values}"),
        ],
        unit=SECONDS,
        points=True,
        calcs=("lastNotNull",),
        most_points=POINTS,
    )


_P50 = _quantiles(
    P50,
    "p50 across ranks",
    "The slowest leaves the median: one rank is slow. All three rise: the kernel or its input changed.",
)
_P99 = _quantiles(
    P99, "p99 across ranks", "p99 leaving while p50 stays: the rank is interrupted now and then."
)
_SPREADING = heatmap(
    "Ranks by duration against the median",
    """
    How many ranks take how many times the median p50, in steps of 2 %, all modes. One narrow band at 1 is
    healthy. A second band is a second kind of ranks: the split below says which. Single cells far out are
    stragglers.
    """,
    f"""count_values("ratio",
  round(clamp({P50} / on (mode, stream) group_left () quantile by (mode, stream) (0.5, {P50}), 0, 4), 0.02)
)""",
    legend="{{ratio}}",
    axis="p50 / median",
    unit=COUNT,
    most_points=30,  # it reads the kernel on all ranks twice
)
_EVENTS = lines(
    "Launches a window",
    "Events of each mode in a window on the median rank. A change means other work, not other speed.",
    [
        (
            "{{stream}} mode {{mode}}",
            f"quantile by (mode, stream) (0.5, argus_kernel_mode_events{{{KERNEL}}} {OF_ROLE})",
        )
    ],
    unit=COUNT,
    most_points=POINTS,
)
_TIME = lines(
    "Share of time",
    "Of the average and of the slowest rank. What a fault in this kernel costs grows with it.",
    [
        ("average", f"avg(rate({_SPENT}[{RATE}]) {OF_ROLE})"),
        ("most", f"max(rate({_SPENT}[{RATE}]) {OF_ROLE})"),
    ],
    unit=RATIO,
    colours={"average": FACT, "most": MOST},
    most_points=POINTS,
)

SECTION: Final = Section(
    1,
    "$kernel across ranks",
    [
        Line(4, [(6, _SHARE), (6, _PUBLISH), (6, _SPREAD), (6, _FLAGGED)]),
        Line(9, [(12, _P50), (12, _P99)]),
        Line(8, [(12, _SPREADING), (6, _EVENTS), (6, _TIME)]),
    ],
)
