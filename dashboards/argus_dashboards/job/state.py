"""In what state is the job, and what does it cost?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.panels import stat
from argus_dashboards.promql import (
    JOB,
    JOB_LABELS,
    LOST_FLOOR,
    OF_ARGUS,
    against_healthy,
    lost_gpus,
    lost_share,
    state_of_job,
    told,
    zero_if,
)
from argus_dashboards.theme import (
    BAD,
    COUNT,
    EXACT,
    GOOD,
    NOTICE,
    RATIO,
    TICKET,
    TIMES,
    TOLD_CODES,
    state_codes,
    steps,
)

STATE: Final = state_of_job(JOB)
STATE_CODES: Final = state_codes()
_WATCHED = zero_if(f"job:argus_ranks:count{{{JOB}}}")

L1_CLASS: Final = stat(
    "State of the job",
    """
    What the job's iteration time does now. stable: look no further. slow: it does not change, but somebody
    costs the job 2 % or more; the tables below say who. uneven: single iterations take much longer; look
    for a cause that comes and goes. slower: it has become so and stays so; since when is beside it.
    stalled: no iteration ends; go to the alerts. no data: no rank reports, or the rules are not loaded.
    """,
    STATE,
    unit=COUNT,
    mappings=STATE_CODES,
    background=True,
)

AGAINST_HEALTHY: Final = stat(
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
)

LOST: Final = stat(
    "Time lost now",
    """
    Share of its time that the job loses to what is found below. Ranks that hold up the same step do so at the
    same time, so the costliest counts and not their sum. While the job stands still it loses all.
    """,
    f"max({lost_share(JOB)}) or {_WATCHED}",
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: LOST_FLOOR, TICKET: 0.05, BAD: 0.2}),
)

LOST_GPUS: Final = stat(
    "GPUs lost now",
    """
    The same share of the job's GPUs: so many produce nothing because the job waits. This number orders work
    between jobs; whether it is much for this one, the share beside it says.
    """,
    f"max({lost_gpus(JOB)}) or {_WATCHED}",
    unit=COUNT,
    decimals=1,
)

LOST_GPU_HOURS: Final = stat(
    "GPU-hours lost",
    """
    Lost GPUs integrated over the time range of the dashboard: what faults have cost so far. Times without
    rules count as no loss.
    """,
    f"sum_over_time(max({lost_gpus(JOB)})[$__range:1m]) / 60 or {_WATCHED}",
    unit=COUNT,
    decimals=1,
)

CONNECTED: Final = stat(
    "Ranks heard",
    """
    Ranks whose training process speaks to its exporter: what all shares here are of. Nothing is said of a
    group of which less than half are heard.
    """,
    f"max(job:argus_ranks:count{{{JOB}}})",
    unit=EXACT,
)

_UP: Final = f"max by ({JOB_LABELS}, rank) (argus_rank_up{{{JOB}}})"
_EXPECTED: Final = f"group:argus_ranks:expected{{{JOB}}}"
MISSING: Final = stat(
    "Ranks missing",
    """
    Ranks that ended in failure or without a word, or that the job should have and no exporter reports: the
    alert ArgusRankMissing, in the next section. The job may wait for them, or go on without them.
    """,
    f"max(max by ({JOB_LABELS}) (argus_job_world_size{{{JOB}}})"
    f" - on ({JOB_LABELS}) job:argus_ranks:count{{{JOB}}} > 0\n"
    f"or count by ({JOB_LABELS}) ({_UP} == 0)\n"
    f"or {_EXPECTED} - on ({JOB_LABELS}, group)"
    f" count by ({JOB_LABELS}, group) (argus_group_expected_ranks{{{JOB}}}) > 0)\n"
    f"or {_WATCHED}",
    unit=EXACT,
    thresholds=steps(GOOD, {TICKET: 1}),
)

TOLD: Final = stat(
    "Told as",
    """
    The loudest that fires of this job: somebody was called (page), or has it on the list (ticket). All
    alerts of a job are one message of Alertmanager; which they are is in the next section.
    """,
    f"max({told(f'{JOB}, {OF_ARGUS}')}) or {_WATCHED}",
    unit=COUNT,
    mappings=TOLD_CODES,
)
