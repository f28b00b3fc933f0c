"""L1: how long do iterations take, and since when?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.job.state import STATE, STATE_CODES
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, stat, states
from argus_dashboards.promql import HEALTHY, JOB, JOB_LABELS, RECENT
from argus_dashboards.theme import (
    BAD,
    COUNT,
    FACT,
    LEAST,
    MOST,
    SECONDS,
    TICKET,
    TIMES,
    TIMESTAMP,
    UNKNOWN,
    steps,
)

# Of one rank, which rules choose: all ranks of a job end a step together, and 10,000 say the same.
_TOTALS = "job:argus_iteration_scan:total"
_MEAN = (
    f'sum(rate({_TOTALS}{{{JOB}, total="seconds"}}[$window]))'
    f' / (sum(rate({_TOTALS}{{{JOB}, total="count"}}[$window])) > 0)'
)
# Those of the first host, for the same reason.
_EXTREME = f'argus_iteration_window_%s_seconds{{{JOB}, rank=~"[0-7]"}}'
# What was needed before the job became slower; infinite for a moment after the job has started anew.
_HEALTHY = f'{HEALTHY}{{{JOB}, total="count"}} < Inf'
_PACE = f'{RECENT}{{{JOB}, total="count"}}'

ITERATION_TIME: Final = lines(
    "Iteration time",
    """
    Mean, with the shortest and the longest iteration of the trailing window. A step of all three: the
    job has become slower; spikes of the longest alone: it is uneven. Dashed: what the job needs while it is
    healthy; that stays where it is while the job is held to be slower. No mean: steps are longer than a
    third of the window, so choose a longer one above.
    """,
    [
        ("longest", f"max({_EXTREME % 'max'})"),
        ("mean", _MEAN),
        ("shortest", f"min({_EXTREME % 'min'})"),
        ("healthy", f"max({_HEALTHY} or {_PACE})"),
    ],
    unit=SECONDS,
    colours={"longest": MOST, "mean": FACT, "shortest": LEAST, "healthy": UNKNOWN},
    dashed=["healthy"],
    calcs=("lastNotNull", "max"),
    legend="right",
)

LOST_BY_CAUSE: Final = lines(
    "GPUs lost by cause",
    """
    GPUs that produce nothing because the job waits, by cause. The highest line is the one to work on; lower
    ones may hide behind it. unexplained: the job is slower, on all ranks alike, so ask what changed for the
    whole job. stalled: it stands still, and loses all.
    """,
    [
        ("{{cause}}", f"max by (cause) (job:argus_lost_gpus:current{{{JOB}}})"),
        ("stalled", f"max(job:argus_ranks:count{{{JOB}}}) and max(job:argus_stalled:seconds{{{JOB}}})"),
    ],
    unit=COUNT,
    decimals=1,
    colours={"unexplained": UNKNOWN, "stalled": BAD},
    filled=True,
    calcs=("max",),
    legend="right",
    empty="Nothing was lost in this range",
)

_CLASS_OVER_TIME = states(
    "State of the job over time",
    "As at the top, by time. Compare its changes with deployments, restarts and the alerts above.",
    [("state", STATE)],
    STATE_CODES,
)

_REGRESSION = f'rank:argus_evidence:lost_ratio{{{JOB}, cause="regression"}}'
SLOWER_SINCE: Final = stat(
    "Slower since",
    """
    When it was first found, in this time range, that the job needs longer than it did: a minute or two after
    the change. Ask what happened then: a new configuration, a restart, a repaired host, other jobs on the
    same network.
    """,
    f"1000 * min(min_over_time(timestamp({_REGRESSION})[$__range:1m]) or timestamp({_REGRESSION}))"
    f" and max({_REGRESSION})",
    unit=TIMESTAMP,
    thresholds=steps(TICKET),
    no_value="not slower",
)

_SLOWER_BY = stat(
    "Slower by",
    """
    Time of an iteration (of a unit of work) over that before it: held until the job has needed no more for
    ten minutes, or starts anew.
    """,
    f"max(job:argus_iteration:regression_ratio{{{JOB}}} and on ({JOB_LABELS}) {_REGRESSION})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(TICKET, {BAD: 1.5}),
    no_value="not slower",
)

SECTION: Final = Section(
    2,
    "The job's state over time (L1)",
    [
        Line(4, [(19, _CLASS_OVER_TIME), (5, _SLOWER_BY)]),
        Line(6, [(24, LOST_BY_CAUSE)]),
    ],
    folded=True,
)
