"""In what state is the job, and what does it cost?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import stat
from argus_dashboards.promql import ALERTS, JOB, state_of_job
from argus_dashboards.theme import (
    BAD,
    COUNT,
    EXACT,
    GOOD,
    NOTICE,
    STATE_COLOURS_OF_JOB,
    TICKET,
    TIMES,
    codes,
    steps,
)

STATE: Final = state_of_job(JOB)
STATE_CODES: Final = codes(STATE_COLOURS_OF_JOB)

_L1_CLASS = stat(
    "State of the job",
    """
    What the job's iteration time does now. stable: look no further. slow: it does not change, but a culprit
    costs the job 2 % or more; the table below names it. jitter: single iterations take much longer; look for
    a cause that comes and goes. regression: it has become slower and stays so; since when is in the section
    on iterations. both: regression with jitter. stalled: no iteration ends; go to the alerts.
    """,
    STATE,
    unit=COUNT,
    mappings=STATE_CODES,
    no_value="no data",
    background=True,
)

_AGAINST_BASELINE = stat(
    "Iteration against baseline",
    """
    Iteration time now over its median in the last hour outside jitter. Above 1.05 the job is slower than it
    was. A job that was slow from its first step shows 1 here.
    """,
    f"max(job:argus_iteration_seconds:recent{{{JOB}}}) / max(job:argus_iteration_seconds:baseline{{{JOB}}})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: 1.05, TICKET: 1.2, BAD: 1.5}),
    no_value="no data",
)

_LOST_GPUS = stat(
    "GPUs lost now",
    """
    How many GPUs produce nothing because the job waits. This number orders work: fix the cause that costs
    most. Causes may delay the same step, so the costliest one counts and not their sum.
    """,
    f"max(job:argus_lost_gpus:current{{{JOB}}}) or vector(0)",
    unit=COUNT,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.5, TICKET: 2, BAD: 8}),
)

_LOST_GPU_HOURS = stat(
    "GPU-hours lost in this range",
    """
    Lost GPUs integrated over the time range of the dashboard: what faults have cost so far. Times without
    rules count as no loss.
    """,
    f"sum_over_time(max(job:argus_lost_gpus:current{{{JOB}}})[$__range:1m]) / 60 or vector(0)",
    unit=COUNT,
    decimals=1,
)

_RANKS = stat(
    "Ranks connected",
    """
    Ranks whose producer speaks to its exporter. Fewer than the job has: the others are listed as
    ArgusRankMissing, and verdicts abstain in groups below 80 %.
    """,
    f"max(job:argus_ranks:count{{{JOB}}})",
    unit=EXACT,
    no_value="0",
)

_PAGES = stat(
    "Alerts that page",
    """
    Firing ARGUS alerts with severity page. Above 0 somebody should be at work; who and on what is in the
    section "Who is to blame", with tickets and infos.
    """,
    f'count(ALERTS{{{ALERTS}, alertstate="firing", severity="page"}}) or vector(0)',
    unit=COUNT,
    thresholds=steps(GOOD, {BAD: 1}),
)

SECTION: Final = Section(
    1,
    "State and cost",
    [
        Line(
            4,
            [
                (4, _L1_CLASS),
                (4, _AGAINST_BASELINE),
                (4, _LOST_GPUS),
                (4, _LOST_GPU_HOURS),
                (4, _RANKS),
                (4, _PAGES),
            ],
        )
    ],
)
