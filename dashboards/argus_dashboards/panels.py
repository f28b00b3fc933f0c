"""The kinds of panel that ARGUS dashboards use, each with its defaults set once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from grafanalib import core as grafana

from argus_dashboards.current import (
    DATA_SOURCE,
    Heatmap,
    Query,
    Stat,
    StateTimeline,
    StatusHistory,
    Table,
    TimeSeries,
    column,
)
from argus_dashboards.theme import COUNT, FACT, PHASE_COLOURS, RATIO, UNKNOWN, Json, steps

MAX_POINTS: Final = 240
"""Points of a time range: at 10,000 ranks each point costs a pass over the series that a query reads."""

NO_DATA: Final = "no data"

_SORTED_BY: Final = {
    "max": ("Max", True),
    "min": ("Min", False),
    "mean": ("Mean", True),
    "lastNotNull": ("Last *", True),
}
"""Heading and direction by which a legend names the worst first: it has room for three or four of twenty."""
_LEAST_TOP: Final = {RATIO: 0.01, COUNT: 1.0}
"""How far an axis goes at least: one of nothing but zeros would else go to 10,000 %."""


_EMPTY_CELL: Final[Json] = {
    "matcher": {"id": "byRegexp", "options": "/.*/"},
    "properties": [{"id": "noValue", "value": "–"}],
}


def _said_when_empty(text: str) -> Json:
    return {"fieldConfig": {"defaults": {"noValue": text}}} if text else {}


def _unknown(text: str) -> Json:
    """What stands for a number that is not there: Grafana would paint it in the base colour, often green."""
    return {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": text, "color": UNKNOWN, "index": 99}},
    }


_EMPTY_PLACE: Final[Json] = {
    "matcher": {"id": "byRegexp", "options": "/.*/"},
    "properties": [{"id": "mappings", "value": [_unknown("–")]}],
}
"""A cell of a matrix, which has the colour of its value."""


def _prose(text: str) -> str:
    """A description as one line, however the source wraps it."""
    return " ".join(text.split())


def _queries(expressions: Sequence[tuple[str, str]], **kind: Any) -> list[Query]:
    return [
        Query(refId=chr(ord("A") + index), expr=expr, legendFormat=legend, **kind)
        for index, (legend, expr) in enumerate(expressions)
    ]


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    thresholds: Sequence[Json] = (),
    mappings: Sequence[Json] = (),
    decimals: int | None = None,
    no_value: str = NO_DATA,
    background: bool = False,
) -> Stat:
    """One number as it is now. `no_value`: what is said, in grey, where there is none."""
    return Stat(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=[Query(refId="A", expr=expr, instant=True)],
        format=unit,
        decimals=decimals,
        thresholds=list(thresholds) or steps(FACT),
        mappings=[*mappings, _unknown(no_value)],
        noValue=no_value,
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode="background" if background else "value",
        maxDataPoints=None,
    )


def lines(
    title: str,
    description: str,
    expressions: Sequence[tuple[str, str]],
    *,
    unit: str,
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    limits: Sequence[Json] = (),
    filled: bool = False,
    decimals: int | None = None,
    floor: int | None = 0,
    ceiling: int | None = None,
    calcs: Sequence[str] = ("lastNotNull", "max"),
    stacked: bool = False,
    points: bool = False,
    most_points: int = MAX_POINTS,
    by_phase: bool = False,
    legend: str = "bottom",
    empty: str = "",
) -> TimeSeries:
    """Lines over time from (legend, expression). A name keeps its colour on every panel.

    `decimals` are the axis's too: none for shares, whose ticks would be at 0, 100 and 200 %, or all alike.
    Where `limits` judge, a line that has no colour of its own has that of the limit which it has reached.
    `colours`, `dashed`: by name, or by /pattern/. `by_phase`: the names begin with those of phases.
    `ceiling`: where the axis ends. `stacked`: areas that add up. `points`: a scatter on a logarithmic axis
    instead of lines. `empty`: what is said where there is nothing to draw.
    """
    phases = {f"/^{start}/": colour for start, colour in PHASE_COLOURS.items()} if by_phase else {}
    overrides = [
        column(name, color={"mode": "fixed", "fixedColor": colour})
        for name, colour in {**phases, **(colours or {})}.items()
    ] + [column(name, custom__lineStyle={"fill": "dash", "dash": [8, 6]}) for name in dashed]
    sort_by, descending = next(order for calc, order in _SORTED_BY.items() if calc in calcs)
    judged = bool(limits) and not by_phase
    return TimeSeries(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries(expressions),
        unit=unit,
        valueMax=ceiling,
        valueDecimals=decimals,
        least_top=None if points else _LEAST_TOP.get(unit),
        axisSoftMin=None if points else floor,
        drawStyle="points" if points else "line",
        pointSize=4,
        scaleDistributionType="log" if points else "linear",
        scaleDistributionLog=10,
        colorMode="thresholds" if judged else "palette-classic-by-name",
        overrides=overrides,
        thresholds=list(limits) or steps(FACT),
        thresholdsStyleMode="dashed" if limits else "off",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        fillOpacity=70 if stacked else 20 if filled else 0,
        showPoints="always" if points else "never",
        tooltipMode="multi",
        tooltipSort="desc",
        legendDisplayMode="table",
        legendPlacement=legend,
        legendCalcs=list(calcs),
        legend_sort_by=sort_by,
        legend_descending=descending,
        maxDataPoints=most_points,
        interval="15s",
        extraJson=_said_when_empty(empty),
    )


def table(
    title: str,
    description: str,
    expressions: Sequence[str],
    columns: Mapping[str, str],
    *,
    overrides: Sequence[Json] = (),
    sort: str | Mapping[str, bool] = "",
    empty: str = "",
    headings: bool = True,
) -> Table:
    """Rows as they are now. `columns` maps labels and values to headings, in order.

    The values are `Value`, or `Value #A`, `Value #B`, ... where there are several expressions. `sort`: the
    heading whose largest comes first, or several headings, with whether their largest does. `empty`: what is
    said instead of rows where there are none. `headings`: whether columns have some.
    """
    transformations: list[Json] = [{"id": "merge", "options": {}}] if len(expressions) > 1 else []
    transformations += [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: index for index, name in enumerate(columns)},
                "renameByName": dict(columns),
            },
        },
    ]
    return Table(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries([("", expr) for expr in expressions], table=True),
        transformations=transformations,
        thresholds=steps(FACT),
        # Grafana says the panel's text for want of rows, and the columns' own in an empty cell.
        overrides=[_EMPTY_CELL, *overrides],
        showHeader=headings,
        filterable=True,
        sortBy=[
            grafana.TableSortByField(displayName=heading, desc=descending)
            for heading, descending in ({sort: True} if isinstance(sort, str) else sort).items()
            if heading
        ],
        no_value=empty,
        maxDataPoints=None,
    )


def matrix(
    title: str,
    description: str,
    expr: str,
    *,
    rows: str,
    columns: str,
    numbered: Sequence[str],
    unit: str,
    thresholds: Sequence[Json],
    overrides: Sequence[Json] = (),
    decimals: int = 2,
    scheme: str = "thresholds",
    empty: str = "",
) -> Table:
    """The values of one expression now, by two labels, each cell in the colour of its value.

    `numbered`: those of the two labels that are numbers. Rows and columns are in the order of their labels.
    `scheme`: a colour mode of Grafana; without thresholds 0 to the largest value is coloured. `empty`: as in
    `table`.
    """
    return Table(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries([("", expr)], table=True),
        transformations=_in_order(rows, columns, numbered),
        thresholds=list(thresholds) or steps(FACT),
        colorMode=scheme,
        displayMode="color-background",
        align="center",
        unit=unit,
        overrides=[_EMPTY_PLACE, *overrides],
        no_value=empty,
        maxDataPoints=None,
        extraJson={"fieldConfig": {"defaults": {"decimals": decimals} | ({} if thresholds else {"min": 0})}},
    )


def _in_order(rows: str, columns: str, numbered: Sequence[str]) -> list[Json]:
    """Transformations: Grafana's matrix alone has rows and columns in the order of the values."""
    corner = f"{rows}\\{columns}"
    return [
        _converted(dict.fromkeys(numbered, "number")),
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": columns}]}},
        {
            "id": "groupingToMatrix",
            "options": {
                "rowField": rows,
                "columnField": columns,
                "valueField": "Value",
                "emptyValue": "null",
            },
        },
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": corner}]}},
        # Left a number it would be one of the values from the smallest to the largest of which colours go.
        _converted({corner: "string"}),
    ]


def _converted(types: Mapping[str, str]) -> Json:
    conversions = [{"targetField": name, "destinationType": kind} for name, kind in types.items()]
    return {"id": "convertFieldType", "options": {"fields": {}, "conversions": conversions}}


def states(
    title: str,
    description: str,
    expressions: Sequence[tuple[str, str]],
    mappings: Sequence[Json],
    *,
    empty: str = "",
) -> StateTimeline:
    """Periods of equal state over time."""
    return StateTimeline(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries(expressions),
        mappings=list(mappings),
        thresholds=steps(FACT),
        mergeValues=True,
        showValue="auto",
        legendDisplayMode="hidden",
        fillOpacity=80,
        maxDataPoints=MAX_POINTS,
        interval="15s",
        extraJson=_said_when_empty(empty),
    )


def history(
    title: str,
    description: str,
    expressions: Sequence[tuple[str, str]],
    *,
    unit: str,
    thresholds: Sequence[Json],
) -> StatusHistory:
    """One row a series, one cell a point in time, in the colour of its value."""
    return StatusHistory(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries(expressions),
        unit=unit,
        thresholds=list(thresholds),
        showValue="never",
        legendDisplayMode="hidden",
        fillOpacity=90,
        maxDataPoints=80,  # a cell is then wide enough to point at
        interval="15s",
    )


def heatmap(
    title: str,
    description: str,
    expr: str,
    *,
    legend: str,
    axis: str,
    unit: str,
    most_points: int = 60,
    empty: str = "",
) -> Heatmap:
    """How many are in each bucket over time; the query returns one series a bucket."""
    return Heatmap(
        title=title,
        description=_prose(description),
        dataSource=DATA_SOURCE,
        targets=_queries([(legend, expr)]),
        axis_label=axis,
        unit=unit,
        thresholds=steps(FACT),
        maxDataPoints=most_points,  # each costs a count over all ranks
        interval="1m",
        no_value=empty,
    )
