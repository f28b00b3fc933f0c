"""The card of what costs the job most, in the words of its alert: who, since when, what it costs."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.current import column
from argus_dashboards.layout import Line
from argus_dashboards.panels import table
from argus_dashboards.promql import JOB, findings, onset
from argus_dashboards.theme import EXACT

_WORST: Final = f"topk(1,\n{findings(JOB)}\n)"
_RANKS: Final = f"max(job:argus_ranks:count{{{JOB}}})"
_ONSET: Final = onset(JOB, "rank, set, group, cause", _WORST)
_PLACE: Final = f"(rank:argus_finding:place{{{JOB}}} and on (rank) {_WORST})"
_NAMES: Final = (("group", "group $1"), ("set", "one rank of $1"), ("rank", "rank $1"))


def _who() -> str:
    found = f'label_replace({_WORST}, "text", "the job", "", "")'
    for label, text in _NAMES:
        found = f'label_replace({found}, "text", "{text}", "{label}", "(.+)")'
    return found


def _row(order: int, line: str, rows: str) -> str:
    """A line of the card; its value is its place, the first the largest."""
    return f'{order} * label_replace({rows}, "line", "{line}", "", "") ^ 0'


def _said(order: int, line: str, text: str, number: str) -> str:
    """A line with a number in it: `$1`."""
    return _row(order, line, f'label_replace(count_values("n", {number}), "text", "{text}", "n", "(.*)")')


_LINES: Final = (
    _row(6, "who", _who()),
    _said(5, "since", "for $1 min", f"round((time() - min({_ONSET})) / 60)"),
    _said(4, "cost", "$1 % of the time", f"round(100 * clamp_max(max({_WORST}), 1), 0.1)"),
    _said(3, "cost", "$1 GPUs produce nothing", f"round(clamp_max(max({_WORST}), 1) * {_RANKS}, 0.1)"),
    _said(2, "others", "$1 ranks wait", f"max(job:argus_waiting_ranks:count{{{JOB}}})"),
    _said(
        1,
        "before",
        "$1 other jobs had a rank named on this host",
        f"max(group:argus_named_jobs:count and on (node) {_PLACE}) - 1 > 0",
    ),
)

_CARD = table(
    "The card",
    """
    Whoever costs the job most, in the words of the alert's card. Why, what would prove it wrong and what to
    do are in the alert, and in argus-l3-worker explain; the table below has all who were found.
    """,
    ["\nor ".join(_LINES)],
    {"line": "Line", "text": "Card", "cause": "What it is", "Value": "Order"},
    overrides=[
        column("Line", custom__width=80),
        columns.words("What it is"),
        # The one for Grafana up to 12.1, the other from then on.
        column("Order", unit=EXACT, decimals=0, custom__hidden=True, custom__hideFrom={"viz": True}),
    ],
    sort="Order",
    empty="Nobody stands out",
)

LINE: Final = Line(7, [(24, _CARD)])
