"""Answers of Prometheus as series with legends, and as rows after Grafana's transformations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from argus_dashboards.theme import Json

Row = dict[str, Any]
"""A table row by column: labels are texts, values are numbers."""


@dataclass(frozen=True)
class Series:
    """One line: its legend, Unix times and values."""

    name: str
    times: list[float]
    values: list[float]
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> float:
        return self.values[-1]


def series(results: Sequence[tuple[str, list[Any]]]) -> list[Series]:
    """Lines of range answers, each with its legend format."""
    found = []
    for legend, result in results:
        for one in result:
            points = one.get("values") or [one["value"]]
            name = legend_of(legend, one["metric"])
            found.append(
                Series(name, [float(t) for t, _ in points], [float(v) for _, v in points], one["metric"])
            )
    return found


def legend_of(pattern: str, labels: Mapping[str, str]) -> str:
    """`{{label}}` by its value."""
    if pattern in ("", "__auto"):
        return ", ".join(f"{key}={value}" for key, value in labels.items()) or "value"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), pattern).strip()


def table(results: Sequence[list[Any]], transformations: Sequence[Json]) -> tuple[list[str], list[Row]]:
    """Columns and rows of instant answers."""
    several = len(results) > 1
    frames = [
        [
            {**one["metric"], f"Value #{chr(65 + index)}" if several else "Value": float(one["value"][1])}
            for one in result
        ]
        for index, result in enumerate(results)
    ]
    rows = _merge(frames)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for step in transformations:
        options = step["options"]
        if step["id"] == "groupingToMatrix":
            columns, rows = _matrix(rows, options["rowField"], options["columnField"], options["valueField"])
        elif step["id"] == "sortBy":
            rows = sorted(rows, key=lambda row: _place(row.get(options["sort"][0]["field"], "")))
        elif step["id"] == "convertFieldType":
            for one in options["conversions"]:
                _convert(rows, one["targetField"], one["destinationType"])
        elif step["id"] == "filterFieldsByName":
            columns = [name for name in options["include"]["names"] if name in columns]
        elif step["id"] == "organize":
            order, renamed = options["indexByName"], options["renameByName"]
            columns = sorted(columns, key=lambda name: order.get(name, len(order)))
            rows = [{renamed.get(key, key): row.get(key) for key in columns} for row in rows]
            columns = [renamed.get(name, name) for name in columns]
    return columns, rows


def _merge(frames: Sequence[list[Row]]) -> list[Row]:
    """Rows whose common labels agree become one, as Grafana's `merge` makes them."""
    merged: list[Row] = []
    for frame in frames:
        fresh: list[Row] = []
        for row in frame:
            labels = {key: value for key, value in row.items() if not key.startswith("Value")}
            mates = [
                other
                for other in merged
                if all(other[key] == value for key, value in labels.items() if key in other)
                and any(key in other for key in labels)
            ]
            for other in mates:
                other.update(row)
            if not mates:
                fresh.append(dict(row))
        merged += fresh
    return merged


def _matrix(
    rows: Sequence[Row], row_field: str, column_field: str, value: str
) -> tuple[list[str], list[Row]]:
    """In the order of the rows, as Grafana has it."""
    corner = f"{row_field}\\{column_field}"
    by_row: dict[Any, Row] = {}
    columns: dict[str, None] = {}
    for row in rows:
        column, place = row.get(column_field, ""), row.get(row_field, "")
        heading = f"{column:g}" if isinstance(column, float) else column
        columns[heading] = None
        by_row.setdefault(place, {corner: place})[heading] = row[value]
    return [corner, *columns], list(by_row.values())


def _convert(rows: Sequence[Row], name: str, kind: str) -> None:
    for row in rows:
        value = row.get(name, "")
        if kind == "string":
            row[name] = f"{value:g}" if isinstance(value, float) else value
        elif isinstance(value, str):
            row[name] = float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value) else value


def _place(value: float | str) -> tuple[int, float, str]:
    """Numbers by size, then texts."""
    return (0, value, "") if isinstance(value, float) else (1, 0.0, value)
