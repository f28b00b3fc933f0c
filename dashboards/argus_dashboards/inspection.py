"""Reads generated dashboards back: their panels, their queries, and the metric names inside PromQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from argus_dashboards.theme import Json

_UNITS: Final = {"s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class PanelQuery:
    """One query as Grafana would send it, but for its variables."""

    panel: str
    ref: str
    expr: str
    instant: bool
    points: int = 0
    """At most so many over the time range; 0 for instant queries."""
    least_step: float = 0.0
    """Seconds between points, at least."""
    panel_id: int = 0
    """0 for annotations and variables."""


def panels(dashboard: Json) -> Iterator[Json]:
    """All panels, also those inside folded rows; the rows themselves are left out."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def _seconds(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]]


def queries(dashboard: Json) -> Iterator[PanelQuery]:
    """Queries of panels, of annotations and of variables."""
    for panel in panels(dashboard):
        for target in panel.get("targets", ()):
            points = 0 if target["instant"] else panel["maxDataPoints"]
            step = _seconds(panel.get("interval") or "0s")
            yield PanelQuery(
                panel["title"], target["refId"], target["expr"], target["instant"], points, step, panel["id"]
            )
    for mark in dashboard["annotations"]["list"]:
        yield PanelQuery(f"annotation {mark['name']}", "", mark["expr"], False, 60, 60.0)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield PanelQuery(f"variable {variable['name']}", "", variable_expr(variable["query"]), True)


def variable_expr(query: str) -> str:
    """The PromQL inside `query_result(...)` and `label_values(selector, label)`."""
    function, inside = query.rstrip(")").split("(", 1) if query.startswith("label_values") else ("", "")
    if function:
        return inside.rsplit(",", 1)[0]
    match = re.fullmatch(r"query_result\((.*)\)", query, re.DOTALL)
    if match is None:
        raise ValueError(f"variable query {query!r} is neither label_values(...) nor query_result(...)")
    return match[1]


def interpolate(expr: str, values: Mapping[str, str]) -> str:
    """Replace `$name`, `${name}` and `${name:format}`, not `$1`; a name without a value is an error."""
    return re.sub(
        r"\$(?:\{([A-Za-z_]\w*)(?::\w+)?\}|([A-Za-z_]\w*))", lambda match: values[match[1] or match[2]], expr
    )


_STRING: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_NOISE: Final = re.compile(
    r"""
      \{[^}]*\}                                                   # label matchers
    | \[[^\]]*\]                                                  # ranges
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)  # label lists
    | \b\d[\w.]*                                                 # numbers and durations
    """,
    re.VERBOSE,
)
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEYWORDS: Final = frozenset(
    {"and", "or", "unless", "offset", "bool", "by", "without", "on", "ignoring", "Inf"}
)


def metric_names(expr: str) -> set[str]:
    """Names of the series that an expression reads (variables already replaced)."""
    bare = _NOISE.sub(" ", _STRING.sub(" ", expr))  # strings first: they may hold braces
    return {
        match[0]
        for match in _NAME.finditer(bare)
        if match[0] not in _KEYWORDS and not bare[match.end() :].lstrip().startswith("(")
    }
