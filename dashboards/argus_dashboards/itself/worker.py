"""The L3 worker."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.itself.channels import POINTS
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import CLUSTER, JOB_LABELS, LAST_SUCCESS_AGE, RATE
from argus_dashboards.theme import (
    BAD,
    BYTES,
    COUNT,
    FACT,
    GOOD,
    PER_SECOND,
    SECONDS,
    TICKET,
    VERDICT_COLOURS,
    steps,
)

_UNSCRAPED: Final = "No worker is scraped (port 9878)"

_CYCLE = lines(
    "Cycle",
    """
    How long a cycle takes, and how old the newest results are. An age beyond 5 minutes: the worker is behind
    or down, and kernel anomalies are old or missing.
    """,
    [
        ("age of last success", LAST_SUCCESS_AGE),
        ("cycle", "max(argus_l3_worker_cycle_duration_seconds)"),
    ],
    unit=SECONDS,
    limits=steps(GOOD, {BAD: 300}),
    most_points=POINTS,
    empty="No worker writes here, and none is scraped (port 9878)",
)
_CYCLES = lines(
    "Cycles and queries",
    "By result, a second. Failures: Prometheus refuses or does not answer; the worker's log says what.",
    [
        ("cycles: {{result}}", f"sum by (result) (rate(argus_l3_worker_cycles_total[{RATE}]))"),
        ("queries: {{result}}", f"sum by (result) (rate(argus_l3_worker_queries_total[{RATE}]))"),
    ],
    unit=PER_SECOND,
    decimals=3,
    empty=_UNSCRAPED,
)
_DELIVERY = lines(
    "Delivery",
    """
    Samples by result, and requests lost from the spool. refused: Prometheus would not take them, often for
    their age. Lost from the spool: it was away for longer than the spool holds.
    """,
    [
        ("{{result}}", f"sum by (result) (rate(argus_l3_worker_samples_total[{RATE}]))"),
        ("lost from the spool", f"sum(rate(argus_l3_worker_spool_dropped_requests_total[{RATE}]))"),
    ],
    unit=PER_SECOND,
    decimals=1,
    colours={"lost from the spool": BAD, "refused": TICKET, "written": FACT},
    empty=_UNSCRAPED,
)
_SPOOL = lines(
    "Spool",
    "Bytes that wait for Prometheus. It should be 0 but for an outage, and fall back after it.",
    [("waiting", "max(argus_l3_worker_spooled_bytes)")],
    unit=BYTES,
    empty=_UNSCRAPED,
)
_ANOMALIES = lines(
    "Verdicts of a cycle",
    "Anomalies that the worker holds, by verdict. Many at once without a slow job: look for a false alarm.",
    [("{{verdict}}", "max by (verdict) (argus_l3_worker_anomalies)")],
    unit=COUNT,
    colours=VERDICT_COLOURS,
    empty="No verdict in this range, or no worker is scraped (port 9878)",
)
_ABSTAIN = table(
    "Not judged",
    """
    Roles that the worker did not judge in its last cycle, and why. small_role: too few ranks to compare;
    windows: ranks do not agree on a window; budget: kernels left out for lack of time.
    """,
    [f"topk(30, max by ({JOB_LABELS}, role, reason) (argus_l3_abstain{{{CLUSTER}}}))"],
    {"training_job": "Job", "cluster": "Cluster", "role": "Role", "reason": "Reason", "Value": "Now"},
    overrides=[columns.value("Now", COUNT, steps(FACT), 70, 0)],
    empty="Every role is judged",
)

SECTION: Final = Section(
    4,
    "L3 worker",
    [
        Line(8, [(6, _CYCLE), (6, _CYCLES), (6, _DELIVERY), (6, _SPOOL)]),
        Line(7, [(12, _ANOMALIES), (12, _ABSTAIN)]),
    ],
)
