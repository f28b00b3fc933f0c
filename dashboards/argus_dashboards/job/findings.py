"""Who or what costs the job time, who may be meant, who is excused by whom, and who has been told?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.job import card, exclusions
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import states, table
from argus_dashboards.promql import (
    ALERTS,
    CULPRITS_SHOWN,
    JOB,
    WHOSE,
    findings,
    named_phases,
    with_labels,
    with_place,
)
from argus_dashboards.theme import EXACT, FACT, SECONDS, SEVERITY_COLOURS, STATE_COLOURS, codes, steps

_FOUND = f"topk({CULPRITS_SHOWN},\n{findings(JOB)}\n)"
_ABSTAINING = f'0 * max by (phase, group, cause) (rank:argus_verdict:active{{{JOB}, verdict="abstain"}})'
_ALL = f"{_FOUND}\nor {_ABSTAINING}"
_FIRING = f'ALERTS{{{ALERTS}, alertstate="firing"}}'
_TRACES = f'argus_l3_trace_info{{{JOB}, suspect="true"}}'
_IN_WORDS = (
    f"{with_labels('row, phase', WHOSE, _FOUND, named_phases(JOB))}\n"
    f'or label_replace({_ABSTAINING}, "row", "$1", "cause", "(.*)")'
)
_FINDINGS_AND_ALERTS = with_labels(
    "trace_key",
    "rank",
    with_labels("alertname, severity", WHOSE, with_place(_IN_WORDS, JOB, of=_ALL), _FIRING, of=_ALL),
    _TRACES,
    of=_ALL,
)

_FINDINGS = table(
    "Whose fault it is",
    f"""
    The costliest first: the share of its time that the job loses to this rank (or to one of this set, to
    this group's link, to the whole job), in all of its phases together; the costliest phase is named. The
    team acts, on this host and GPU, by the runbook; severity says how loud it was told. Without a share:
    nothing is said of this phase and group, or of the job, and why. At most {CULPRITS_SHOWN}.
    """,
    [_FINDINGS_AND_ALERTS],
    {
        "Value": columns.LOST,
        "severity": "Told",
        "rank": "Rank",
        "set": "One of set",
        "group": "Group",
        "node": "Host",
        "row": "What it is",
        "cause": "Cause",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
        "level": "Level",
        "trace_key": "Trace",
        "gpu_uuid": "GPU",
    },
    overrides=[
        columns.LOST_SHARE,
        columns.text("Told", SEVERITY_COLOURS, 80),
        columns.RANK,
        columns.words("What it is"),
        columns.TEAM,
        columns.RUNBOOK,
        columns.TRACE,
        columns.GPU,
    ],
    sort=columns.LOST,
    empty="Nobody: nothing that was seen costs the job time, or something else explains it",
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
        columns.value("Alerts", EXACT, steps(FACT), 80, 0),
        columns.value("For", SECONDS, steps(FACT), 90),
    ],
    sort="For",
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
    "Who is to blame",
    [
        card.LINE,
        Line(9, [(24, _FINDINGS)]),
        Line(8, [(11, exclusions.BY_CAUSE), (13, exclusions.OF_RANKS)]),
        Line(8, [(9, exclusions.SETS), (9, _ALERTS), (6, _ALERTS_OVER_TIME)]),
    ],
)
