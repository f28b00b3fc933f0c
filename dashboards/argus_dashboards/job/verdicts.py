"""Which rank is to blame, which only waits, and who has been told?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import states, table
from argus_dashboards.promql import ALERTS, CULPRITS_SHOWN, JOB, with_labels, with_place
from argus_dashboards.theme import EXACT, FACT, RATIO, SECONDS, SEVERITY_COLOURS, STATE_COLOURS, codes, steps

_LOST = "rank:argus_verdict:lost_ratio"
_LABELS = "rank, phase, group, cause, team, verdict, level"
# Of a slow GPU all kernels are slow: the costliest stands for them, the section of kernels has each.
_CULPRITS = f"""topk({CULPRITS_SHOWN}, topk by ({_LABELS}) (1,
  max by ({_LABELS}, kernel) ({_LOST}{{{JOB}, verdict="culprit"}})
))"""
_ACTIVE_VERDICTS = f"""{_CULPRITS}
or 0 * max by (phase, group, cause, team, verdict, level) (
  rank:argus_verdict:active{{{JOB}, verdict="abstain"}}
)"""

_FIRING = f'topk by (rank, phase, cause) (1, ALERTS{{{ALERTS}, alertstate="firing"}})'
_TRACES = f'argus_l3_trace_info{{{JOB}, suspect="true"}}'
_SUSPECTS = with_labels(
    "trace_key",
    "rank",
    with_labels("alertname", "rank, phase, cause", f"({with_place(_ACTIVE_VERDICTS, JOB)})", _FIRING),
    _TRACES,
)

_VERDICTS = table(
    "Whose fault it is",
    f"""
    The costliest first. culprit: the job waits for this rank (or, without a rank, for this group's link) for
    the share of wall time on the left; the team acts, on this host and GPU, by the runbook. abstain: ARGUS
    could not judge (coverage: under 80 % of the group reports; activity: not training; pair: two ranks have
    no majority). Several rows of one rank are one fault seen by several channels. At most {CULPRITS_SHOWN}.
    """,
    [_SUSPECTS],
    {
        "Value": columns.LOST,
        "verdict": "Verdict",
        "rank": "Rank",
        "node": "Host",
        "cause": "Cause",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
        "group": "Group",
        "kernel": "Kernel",
        "level": "Level",
        "trace_key": "Trace",
        "gpu_uuid": "GPU",
    },
    overrides=[
        columns.LOST_SHARE,
        columns.VERDICT,
        columns.RANK,
        columns.TEAM,
        columns.RUNBOOK,
        columns.KERNEL,
        columns.TRACE,
        columns.GPU,
    ],
    sort=columns.LOST,
    empty="Nobody: no rank and no link costs the job 2 % of its time",
)

_VICTIMS = f'{_LOST}{{{JOB}, verdict="victim"}}'
_WAITING = table(
    "Who only waits",
    """
    Ranks that a culprit holds up, by the phase in which they wait, and the longest share of wall time that
    one of them waits. They are well: leave them alone.
    """,
    [
        f"count by (phase) (count by (rank, phase) ({_VICTIMS}))",
        f"max by (phase) ({_VICTIMS})",
    ],
    {"phase": "Phase", "Value #A": "Ranks", "Value #B": "Longest wait"},
    overrides=[
        columns.value("Ranks", EXACT, steps(FACT), 80, 0),
        columns.value("Longest wait", RATIO, steps(FACT), 110),
    ],
    sort="Ranks",
    empty="Nobody waits for a culprit",
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
    [Line(9, [(24, _VERDICTS)]), Line(8, [(11, _ALERTS), (8, _ALERTS_OVER_TIME), (5, _WAITING)])],
)
