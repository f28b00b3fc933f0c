"""Rule evaluation, as Prometheus says of itself: only where it scrapes itself."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import RATE
from argus_dashboards.theme import BAD, COUNT, FACT, GOOD, NOTICE, RATIO, SECONDS, steps

_GROUPS: Final = 'rule_group=~".*argus.*"'
_SHOWN: Final = 10
_UNMEASURED: Final = "Prometheus does not scrape itself, or has no rules of ARGUS"


def _by_group(metric: str, when: str = "") -> str:
    """By the name of the group alone: Prometheus puts the path of the file before it."""
    named = f'label_replace({metric}{{{_GROUPS}}}{when}, "rule_group", "${{1}}", "rule_group", ".*;(.*)")'
    return f"max by (rule_group) ({named})"


_TOOK = _by_group("prometheus_rule_group_last_duration_seconds")
_TOOK_LAST = _by_group("prometheus_rule_group_last_duration_seconds", " @ end()")
_INTERVAL = _by_group("prometheus_rule_group_interval_seconds")
_INTERVAL_LAST = _by_group("prometheus_rule_group_interval_seconds", " @ end()")

_DURATION = lines(
    "Slowest rule groups",
    f"""
    Seconds of the last evaluation, for the {_SHOWN} slowest groups of ARGUS. Above its interval a group skips
    evaluations: alerts come late. The budget is 1 s a group.
    """,
    [("{{rule_group}}", f"{_TOOK} and topk({_SHOWN}, {_TOOK_LAST})")],
    unit=SECONDS,
    limits=steps(GOOD, {BAD: 1}),
    empty=_UNMEASURED,
)
_LOAD = lines(
    "Share of its interval that a group takes",
    "Above 80 % the next growth of a job makes it skip: move it to another server, or shard by training_job.",
    [
        (
            "{{rule_group}}",
            f"{_TOOK} / {_INTERVAL} and topk({_SHOWN}, {_TOOK_LAST} / {_INTERVAL_LAST})",
        )
    ],
    unit=RATIO,
    limits=steps(GOOD, {NOTICE: 0.5, BAD: 0.8}),
    empty=_UNMEASURED,
)
_MISSED = lines(
    "Evaluations missed",
    "Evaluations left out because the one before was still running. Anything above 0 delays alerts.",
    [
        ("missed", f"sum(increase(prometheus_rule_group_iterations_missed_total{{{_GROUPS}}}[{RATE}]))"),
    ],
    unit=COUNT,
    empty=_UNMEASURED,
)
_TABLE = table(
    "Rule groups",
    """
    The 40 slowest groups, their interval and number of rules. Empty: Prometheus does not scrape itself, or
    the rules of ARGUS are not loaded; argus-l3-worker doctor says which.
    """,
    [
        f"topk(40, {_TOOK})",
        _INTERVAL,
        _by_group("prometheus_rule_group_rules"),
    ],
    {"rule_group": "Group", "Value #A": "Took", "Value #B": "Interval", "Value #C": "Rules"},
    overrides=[
        columns.value("Took", SECONDS, steps(GOOD, {NOTICE: 0.5, BAD: 1}), 90),
        columns.value("Interval", SECONDS, steps(FACT), 90, 0),
        columns.value("Rules", COUNT, steps(FACT), 70, 0),
    ],
    sort="Took",
    empty=_UNMEASURED,
)

SECTION: Final = Section(
    3,
    "Rules",
    [Line(8, [(6, _DURATION), (6, _LOAD), (4, _MISSED), (8, _TABLE)])],
)
