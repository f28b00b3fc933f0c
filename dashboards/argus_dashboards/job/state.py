"""In what state is the job, and what does it cost?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import stat
from argus_dashboards.promql import (
    ALERTS,
    JOB,
    LOST_FLOOR,
    against_healthy,
    lost_gpus,
    lost_share,
    state_of_job,
)
from argus_dashboards.theme import (
    BAD,
    COUNT,
    EXACT,
    GOOD,
    NOTICE,
    RATIO,
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
    What the job's iteration time does now. stable: look no further. slow: it does not change, but somebody
    costs the job 2 % or more; the table below says who. jitter: single iterations take much longer; look for
    a cause that comes and goes. regression: it has become slower and stays so; since when is in the section
    on iterations. both: regression with jitter. stalled: no iteration ends; go to the alerts.
    """,
    STATE,
    unit=COUNT,
    mappings=STATE_CODES,
    no_value="no data",
    background=True,
)

_AGAINST_HEALTHY = stat(
    "Against healthy",
    """
    Time of an iteration (of a unit of work, where the job counts its work) over that before the job became
    slower; 1 where it did not. Held until the job recovers or starts anew. A job that was slow from its first
    step shows 1 here: look at the time lost beside it. Much more here than there: something is not found.
    """,
    f"max({against_healthy(JOB)})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: 1.035, TICKET: 1.2, BAD: 1.5}),
    no_value="no data",
)

_LOST = stat(
    "Time lost now",
    """
    Share of its time that the job loses to what is found below. Ranks that hold up the same step do so at the
    same time, so the costliest counts and not their sum. While the job stands still it loses all.
    """,
    f"max({lost_share(JOB)}) or vector(0)",
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: LOST_FLOOR, TICKET: 0.05, BAD: 0.2}),
)

_LOST_GPUS = stat(
    "GPUs lost now",
    """
    The same share of the job's GPUs: so many produce nothing because the job waits. This number orders work
    between jobs.
    """,
    f"max({lost_gpus(JOB)}) or vector(0)",
    unit=COUNT,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.5, TICKET: 2, BAD: 8}),
)

_LOST_GPU_HOURS = stat(
    "GPU-hours lost",
    """
    Lost GPUs integrated over the time range of the dashboard: what faults have cost so far. Times without
    rules count as no loss.
    """,
    f"sum_over_time(max({lost_gpus(JOB)})[$__range:1m]) / 60 or vector(0)",
    unit=COUNT,
    decimals=1,
)

_RANKS = stat(
    "Ranks connected",
    """
    Ranks whose producer speaks to its exporter. Fewer than the job has: the others are listed as
    ArgusRankMissing, and nothing is said of a group of which less than half report.
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
                (4, _LOST),
                (4, _LOST_GPUS),
                (3, _AGAINST_HEALTHY),
                (3, _LOST_GPU_HOURS),
                (3, _RANKS),
                (3, _PAGES),
            ],
        )
    ],
)
