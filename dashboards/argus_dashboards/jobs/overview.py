"""All jobs as they are now."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.current import column
from argus_dashboards.layout import Line, Section
from argus_dashboards.links import JOB, to_dashboard
from argus_dashboards.panels import stat, table
from argus_dashboards.promql import (
    CLUSTER,
    HANGING,
    JOB_LABELS,
    OF_ARGUS,
    RECENT,
    against_healthy,
    lost_gpus,
    lost_share,
    onset,
    state_of_job,
    told,
    with_labels,
    zero_if,
)
from argus_dashboards.theme import (
    BAD,
    COUNT,
    EXACT,
    FACT,
    GOOD,
    NOTICE,
    RATIO,
    SECONDS,
    TICKET,
    TIMES,
    TIMESTAMP,
    TOLD_CODES,
    state_codes,
    steps,
)

JOBS_SHOWN: Final = 200
_FIRING = f'ALERTS{{{CLUSTER}, alertname=~"Argus.*", alertstate="firing", severity=~"page|ticket"}}'
_LOST = lost_gpus(CLUSTER)
_RANKS = f"max by ({JOB_LABELS}) (job:argus_ranks:count{{{CLUSTER}}})"
_WATCHED = zero_if(f"job:argus_ranks:count{{{CLUSTER}}}")

STATE: Final = state_of_job(CLUSTER)
STATE_CODES: Final = state_codes()

_JOBS = stat(
    "Jobs",
    "Training jobs whose ranks report. Fewer than you started: an exporter is missing, or it is not scraped.",
    f"count(count by ({JOB_LABELS}) (job:argus_ranks:count{{{CLUSTER}}}))",
    unit=COUNT,
)
_GPUS = stat(
    "GPUs watched",
    "Ranks of all jobs. What the losses beside it are to be compared with.",
    f"sum({_RANKS})",
    unit=EXACT,
)
_SLOW = stat(
    "Jobs not well",
    "Jobs that are not stable, or lose 2 % or more. The table says which; begin with what loses most.",
    f"count(({STATE}) > 0) or {_WATCHED}",
    unit=COUNT,
    thresholds=steps(GOOD, {TICKET: 1}),
)
_LOST_NOW = stat(
    "GPUs lost now",
    """
    GPUs that produce nothing because their job waits, over all jobs; of each job the costliest rank counts.
    Compare it with the price of a GPU-hour before you decide how fast to act.
    """,
    f"sum({_LOST}) or {_WATCHED}",
    unit=COUNT,
    decimals=1,
)
_LOST_SHARE = stat(
    "Share of GPUs lost now",
    "The same of all GPUs watched. One job of ten that loses a fifth is 2 % here: see the table.",
    f"(sum({_LOST}) or {_WATCHED}) / sum({_RANKS})",
    unit=RATIO,
    decimals=1,
    thresholds=columns.LOSSES,
)
_LOST_HOURS = stat(
    "GPU-hours lost in this range",
    "Lost GPUs of all jobs over the time range: what faults have cost. Choose a week for a report.",
    f"sum(sum_over_time(({_LOST})[$__range:1m])) / 60 or {_WATCHED}",
    unit=COUNT,
    decimals=1,
)
_INCIDENTS = stat(
    "Open incidents",
    "Jobs with an ARGUS alert that pages or is a ticket. Alertmanager sends one notification for each.",
    f"count(count by ({JOB_LABELS}) ({_FIRING})) or {_WATCHED}",
    unit=COUNT,
    thresholds=steps(GOOD, {TICKET: 1}),
)

PACE: Final = f'max by ({JOB_LABELS}) ({RECENT}{{{CLUSTER}, total="count"}})'
_WHOSE = f"{JOB_LABELS}, rank, set, group, cause, team"

_COSTLIEST = (
    f"topk by ({JOB_LABELS}) (1, max by ({_WHOSE}) (rank:argus_finding:lost_ratio{{{CLUSTER}}}\n"
    f"  or rank:argus_verdict:active{{{CLUSTER}, {HANGING}}}))"
)
_COSTLIEST_NAMED = f'label_replace({_COSTLIEST}, "number", "rank $1", "rank", "(.+)")'
_PLACE = f"rank:argus_finding:place{{{CLUSTER}}}"
_WHOM = with_labels("node", f"{JOB_LABELS}, rank", _COSTLIEST_NAMED, _PLACE)

_EXPRESSIONS = [
    f"topk({JOBS_SHOWN}, {STATE})",
    PACE,
    against_healthy(CLUSTER),
    lost_share(CLUSTER),
    _LOST,
    f"sum_over_time(({_LOST})[$__range:1m]) / 60",
    told(f"{CLUSTER}, {OF_ARGUS}"),
    _RANKS,
    f'label_join({_WHOM}, "whom", "", "number", "set", "group")',
    f"1000 * ({onset(CLUSTER, f'{JOB_LABELS}, rank, set, group, cause', _COSTLIEST)})",
]
_JOB_LINK = to_dashboard(
    JOB,
    "Open job ${__value.raw}",
    "cluster=${__data.fields.Cluster}",
    "training_job=${__value.raw}",
    keep_job=False,
)

_TABLE = table(
    "Training jobs",
    f"""
    One row a job; click its name to see why. Sorted by GPUs lost: that is the order to work in; the team of
    the costliest cause acts, on the host that is named. Since: when that was first seen. Told: as what.
    Against healthy above 1.035 the job is slower than it was; a job that was slow from its first step shows 1
    there, so look at what it loses too. At most {JOBS_SHOWN} jobs.
    """,
    _EXPRESSIONS,
    {
        "training_job": "Job",
        "cluster": "Cluster",
        "Value #A": "State",
        "Value #D": "Time lost",
        "Value #E": "GPUs lost",
        "Value #J": "Since",
        "whom": "To blame",
        "node": "Host",
        "cause": "Costliest cause",
        "team": "Team",
        "Value #G": "Told",
        "Value #C": "Against healthy",
        "Value #B": "Iteration",
        "Value #F": "GPU-hours lost",
        "Value #H": "Ranks",
    },
    overrides=[
        column("Job", links=[_JOB_LINK]),
        columns.coded("State", STATE_CODES, 120, "color-background"),
        columns.value("Iteration", SECONDS, steps(FACT), 100),
        columns.value("Against healthy", TIMES, steps(GOOD, {NOTICE: 1.035, TICKET: 1.2, BAD: 1.5}), 140, 2),
        columns.value("Time lost", RATIO, columns.LOSSES, 100),
        columns.value("GPUs lost", COUNT, steps(FACT), 100),
        columns.value("GPU-hours lost", COUNT, steps(FACT), 130),
        column("Since", unit=TIMESTAMP, custom__width=150, color={"mode": "fixed", "fixedColor": "text"}),
        columns.HOST,
        columns.TEAM,
        columns.coded("Told", TOLD_CODES),
        columns.value("Ranks", EXACT, steps(FACT), 90, 0),
    ],
    sort="GPUs lost",
    empty="No job reports: is an exporter scraped, and are the rules loaded?",
)

SECTION: Final = Section(
    1,
    "All jobs now",
    [
        Line(
            4,
            [
                (3, _JOBS),
                (3, _GPUS),
                (3, _SLOW),
                (4, _LOST_SHARE),
                (4, _LOST_NOW),
                (4, _LOST_HOURS),
                (3, _INCIDENTS),
            ],
        ),
        Line(8, [(24, _TABLE)]),
    ],
)
