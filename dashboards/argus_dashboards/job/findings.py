"""Who or what costs the job time, who may be meant, who is excused by whom, and who has been told?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.current import column
from argus_dashboards.job import exclusions
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import states, table
from argus_dashboards.promql import (
    ALERTS,
    CULPRITS_SHOWN,
    JOB,
    WHOSE,
    WITH_RANK,
    WITHOUT_RANK,
    filled,
    findings,
    named_phases,
    with_labels,
    with_place,
)
from argus_dashboards.theme import EXACT, FACT, SECONDS, SEVERITY_COLOURS, STATE_COLOURS, codes, steps

_TRACE = "max by (rank, suspect, trace_key) (argus_l3_trace_info"
_TRACES = f'2 * {_TRACE}{{{JOB}, suspect="true"}}) or {_TRACE}{{{JOB}}})'
_FIRING = f'ALERTS{{{ALERTS}, alertstate="firing"}}'


def _in_words(found: str) -> str:
    """With the costliest phase and the row of the table of causes."""
    return with_labels("row, phase", WHOSE, found, named_phases(JOB))


def _told(expr: str, of: str) -> str:
    """With the alert that tells of it."""
    alerted = with_labels("alertname, severity", WHOSE, expr, _FIRING, of=of)
    return filled(alerted, "alertname", columns.ALL_RUNBOOKS)


_RANKS_FOUND = f"topk({CULPRITS_SHOWN},\n{findings(JOB + WITH_RANK)}\n)"
_FOUND = f"topk({CULPRITS_SHOWN},\n{findings(JOB + WITHOUT_RANK)}\n)"
_ABSTAINING = f'0 * max by (phase, group, cause) (rank:argus_verdict:active{{{JOB}, verdict="abstain"}})'

RANKS: Final = table(
    "Whose fault it is: ranks",
    f"""
    The costliest first: the share of its time that the job loses to this rank, in all of its phases together;
    the costliest phase is named. The team acts, on this host, by the runbook; told says how loud it was told,
    where it was. Click a rank for all that is known of it. At most {CULPRITS_SHOWN}.
    """,
    [_told(with_place(_in_words(_RANKS_FOUND), JOB, of=_RANKS_FOUND), of=_RANKS_FOUND)],
    {
        "Value": columns.LOST,
        "rank": "Rank",
        "node": "Host",
        "row": "What it is",
        "severity": "Told",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
    },
    overrides=[
        columns.LOST_SHARE,
        columns.RANK,
        columns.HOST,
        columns.words("What it is", 240),
        columns.text("Told", SEVERITY_COLOURS, 60),
        columns.TEAM,
        columns.RUNBOOK,
    ],
    sort=columns.LOST,
    empty="No rank: none that was seen costs the job time, or something else explains it",
)

_TOLD = _told(
    f'{_in_words(_FOUND)}\nor label_replace({_ABSTAINING}, "row", "$1", "cause", "(.*)")',
    of=f"{_FOUND}\nor {_ABSTAINING}",
)
OTHERS: Final = table(
    "Whose fault it is: links, sets, or the whole job",
    f"""
    What is no single rank's: a group's link, one of a set of ranks, or the job as a whole. A share of 0:
    nothing is said of this phase and group, or of the job, and why. At most {CULPRITS_SHOWN}.
    """,
    [filled(f'label_join({_TOLD}, "where", "", "set", "group")', "where", "the whole job")],
    {
        "Value": columns.LOST,
        "where": "Where",
        "row": "What it is",
        "severity": "Told",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
    },
    overrides=[
        columns.LOST_SHARE,
        column("Where", custom__width=130),
        columns.words("What it is", 175),
        columns.text("Told", SEVERITY_COLOURS, 60),
        columns.TEAM,
        columns.RUNBOOK,
    ],
    sort=columns.LOST,
    empty="Nothing: what the job loses, if anything, is a rank's",
)

_TRACE_TABLE = table(
    "Timelines",
    """
    What suspects (true) and ranks to compare them with did when it was slow, as traces: click one to open
    it in the Perfetto UI. Of a job that is slow as a whole: two ranks of each pipeline stage.
    """,
    [f"topk(20, {_TRACES})"],
    {"rank": "Rank", "suspect": "Suspect", "trace_key": "Trace"},
    overrides=[columns.RANK, column("Suspect", custom__width=80), columns.TRACE],
    sort="Suspect",
    empty="No trace: the worker asks for them once somebody is accused, where exporters keep them",
)

_LOUD = f'{ALERTS}, severity=~"page|ticket"'
_ALERT_LABELS = "alertname, alertstate, severity, team, cause"

_ALERTS = table(
    "ARGUS alerts",
    """
    Alerts of this job, and those of ARGUS itself that name no job, one row a kind: how many there are, and
    how long the oldest has lasted. Start with page, then ticket: the oldest is nearest to the cause. pending:
    becomes an alert if it persists. Click a name for its runbook.
    """,
    [
        f"topk(50, max by ({_ALERT_LABELS}) (ALERTS{{{_LOUD}}}"
        f" * ignoring (alertstate) group_left () (time() - ALERTS_FOR_STATE{{{_LOUD}}})))",
        f"count by ({_ALERT_LABELS}) (ALERTS{{{_LOUD}}})",
    ],
    {
        "alertname": "Alert",
        "severity": "Severity",
        "alertstate": "State",
        "cause": "Cause",
        "team": "Team",
        "Value #B": "Alerts",
        "Value #A": "For",
    },
    overrides=[
        columns.ALERT,
        columns.text("State", STATE_COLOURS, 90),
        columns.text("Severity", SEVERITY_COLOURS, 90),
        columns.TEAM,
        columns.CAUSE,
        columns.value("Alerts", EXACT, steps(FACT), 70, 0),
        columns.value("For", SECONDS, steps(FACT), 90),
    ],
    sort={"Severity": False, "For": True},  # page, then ticket
    empty="No page and no ticket",
)

_RISING_SEVERITY = dict(reversed(SEVERITY_COLOURS.items()))
_SEVERITY = " or ".join(
    f'{code} * ALERTS{{{ALERTS}, alertstate="firing", severity="{name}"}}'
    for code, name in enumerate(_RISING_SEVERITY)
)

_ALERTS_OVER_TIME = states(
    "Alerts over time",
    """
    Highest severity of each alert while it fired. Alerts that began together usually have one cause; the
    one that began first is nearest to it.
    """,
    [("{{alertname}}", f"max by (alertname) ({_SEVERITY})")],
    codes(_RISING_SEVERITY),
    empty="No alert fired in this range",
)

SECTION: Final = Section(
    3,
    "Why not another rank, who was told, and timelines",
    [
        Line(9, [(24, exclusions.OF_RANKS)]),
        Line(9, [(11, _ALERTS), (7, _ALERTS_OVER_TIME), (6, _TRACE_TABLE)]),
    ],
    folded=True,
)
