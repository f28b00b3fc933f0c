"""L1: how long do iterations take, and since when?"""

from __future__ import annotations

from typing import Final

from argus_dashboards.job.state import STATE, STATE_CODES
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, stat, states
from argus_dashboards.promql import JOB
from argus_dashboards.theme import BAD, COUNT, FACT, GOOD, SECONDS, TICKET, TIMES, TIMESTAMP, UNKNOWN, steps

# Of one rank, which rules choose: all ranks of a job end a step together, and 10,000 say the same.
_DURATION = "job:argus_iteration_duration_seconds"
_MEAN = f"sum(rate({_DURATION}:sum{{{JOB}}}[$window])) / (sum(rate({_DURATION}:count{{{JOB}}}[$window])) > 0)"

_ITERATION_TIME = lines(
    "Iteration time",
    """
    Mean, with the shortest and the longest iteration of the trailing window. A step of all three is a
    regression; spikes of the longest alone are jitter. Compare with the dashed baseline. No mean: steps are
    longer than a third of the window, so choose a longer one above.
    """,
    [
        ("longest", f"max(job:argus_iteration_seconds:window_max{{{JOB}}})"),
        ("mean", _MEAN),
        ("shortest", f"min(job:argus_iteration_seconds:window_min{{{JOB}}})"),
        ("baseline", f"max(job:argus_iteration_seconds:baseline{{{JOB}}})"),
    ],
    unit=SECONDS,
    colours={"longest": TICKET, "mean": FACT, "shortest": GOOD, "baseline": UNKNOWN},
    dashed=["baseline"],
    calcs=("lastNotNull", "min", "max"),
)

_LOST_BY_CAUSE = lines(
    "GPUs lost by cause",
    """
    GPUs that produce nothing because the job waits, by the cause of the verdict. The highest line is the
    one to work on; lower ones may hide behind it. unexplained: the job has become slower and no rank is to
    blame, so ask what changed for the whole job.
    """,
    [("{{cause}}", f"max by (cause) (job:argus_lost_gpus:current{{{JOB}}})")],
    unit=COUNT,
    decimals=1,
    colours={"unexplained": UNKNOWN},
    filled=True,
    empty="Nothing was lost in this range",
)

_CLASS_OVER_TIME = states(
    "State of the job over time",
    "As above, by time. Compare its changes with deployments, restarts and the alerts above.",
    [("state", STATE)],
    STATE_CODES,
)

_SLOWER_SINCE = stat(
    "Slower since",
    """
    The change point: when the iteration time rose. Ask what happened then: a new configuration, a restart,
    a repaired host, other jobs on the same network.
    """,
    f"1000 * max(job:argus_iteration:regression_split_timestamp_seconds{{{JOB}}})",
    unit=TIMESTAMP,
    thresholds=steps(TICKET),
    no_value="no change point",
)

_SLOWER_BY = stat(
    "Slower by",
    "Mean iteration time after the change point over that before it, both sides steady.",
    f"max(job:argus_iteration:regression_ratio{{{JOB}}})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(TICKET, {BAD: 1.5}),
    no_value="no change point",
)

SECTION: Final = Section(
    2,
    "Iterations (L1)",
    [
        Line(8, [(14, _ITERATION_TIME), (10, _LOST_BY_CAUSE)]),
        Line(4, [(14, _CLASS_OVER_TIME), (5, _SLOWER_SINCE), (5, _SLOWER_BY)]),
    ],
)
