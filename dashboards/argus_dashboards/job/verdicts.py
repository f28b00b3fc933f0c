"""Which rank is to blame, which only waits, and who has been told?"""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import states, table
from argus_dashboards.promql import ALERTS, CULPRITS_SHOWN, JOB, VICTIMS_SHOWN, with_labels, with_place
from argus_dashboards.theme import FACT, SECONDS, SEVERITY_COLOURS, STATE_COLOURS, codes, steps

_LOST = "rank:argus_verdict:lost_ratio"
_LABELS = "rank, phase, group, kernel, cause, team, verdict, level"
_ACTIVE_VERDICTS = f"""topk({CULPRITS_SHOWN}, max by ({_LABELS}) ({_LOST}{{{JOB}, verdict="culprit"}}))
or topk({VICTIMS_SHOWN}, max by ({_LABELS}) ({_LOST}{{{JOB}, verdict="victim"}}))
or 0 * max by (phase, cause, team, verdict, level) (rank:argus_verdict:active{{{JOB}, verdict="abstain"}})"""

_FIRING = f'topk by (rank, phase, cause) (1, ALERTS{{{ALERTS}, alertstate="firing"}})'
_TRACES = f'argus_l3_trace_info{{{JOB}, suspect="true"}}'
_SUSPECTS = with_labels(
    "trace_key",
    "rank",
    with_labels("alertname", "rank, phase, cause", f"({with_place(_ACTIVE_VERDICTS, JOB)})", _FIRING),
    _TRACES,
)

_VERDICTS = table(
    "Suspects",
    f"""
    culprit: this rank makes the job wait, by the share of wall time in the last column; its team acts, on
    this host and GPU, by the runbook of the alert. victim: it waits for a culprit; leave it alone. abstain:
    ARGUS could not judge (coverage: under 80 % of the group reports; activity: not training; pair: two ranks
    have no majority). Empty: no rank costs the job 2 %. At most the {CULPRITS_SHOWN} costliest culprits and
    {VICTIMS_SHOWN} victims.
    """,
    [_SUSPECTS],
    {
        "verdict": "Verdict",
        "rank": "Rank",
        "node": "Host",
        "gpu_uuid": "GPU",
        "phase": "Phase",
        "kernel": "Kernel",
        "cause": "Cause",
        "team": "Team",
        "level": "Level",
        "alertname": "Alert",
        "trace_key": "Trace",
        "Value": columns.LOST,
    },
    overrides=[
        columns.RANK,
        columns.KERNEL,
        columns.VERDICT,
        columns.TEAM,
        columns.ALERT,
        columns.TRACE,
        columns.LOST_SHARE,
    ],
    sort=columns.LOST,
)

_ALERT_LABELS = "alertname, alertstate, severity, team, level, rank, phase, group, kernel, cause"

_ALERTS = table(
    "ARGUS alerts",
    """
    Alerts of this job, and those of ARGUS itself that name no job. Start with page, then ticket. pending:
    becomes an alert if it persists. Each alert name has a runbook.
    """,
    [
        f"topk(50, max by ({_ALERT_LABELS}) (ALERTS{{{ALERTS}}}"
        f" * ignoring (alertstate) group_left () (time() - ALERTS_FOR_STATE{{{ALERTS}}})))"
    ],
    {
        "alertname": "Alert",
        "alertstate": "State",
        "severity": "Severity",
        "team": "Team",
        "rank": "Rank",
        "phase": "Phase",
        "group": "Group",
        "kernel": "Kernel",
        "cause": "Cause",
        "Value": "For",
    },
    overrides=[
        columns.ALERT,
        columns.RANK,
        columns.text("State", STATE_COLOURS, 90),
        columns.text("Severity", SEVERITY_COLOURS, 90),
        columns.TEAM,
        columns.value("For", SECONDS, steps(FACT), 90),
    ],
    sort="For",
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
)

SECTION: Final = Section(
    3, "Who is to blame", [Line(9, [(24, _VERDICTS)]), Line(8, [(14, _ALERTS), (10, _ALERTS_OVER_TIME)])]
)
