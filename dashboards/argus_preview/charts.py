"""Panels with axes as Plotly figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from argus_dashboards.theme import Json
from argus_preview import colours, fields, values
from argus_preview.frames import Series

_INK: Final = "#ccccdc"
_GRID: Final = "rgba(204,204,220,0.10)"
_MARKS: Final = 12


@dataclass(frozen=True)
class Mark:
    """An annotation: a vertical line."""

    time: float
    colour: str
    text: str


def figure(
    panel: Json, lines: Sequence[Series], marks: Sequence[Mark], span: tuple[float, float]
) -> go.Figure:
    """A time series, state timeline, status history or heatmap panel."""
    drawn = {
        "timeseries": _timeseries,
        "state-timeline": _states,
        "status-history": _history,
        "heatmap": _heatmap,
    }[panel["type"]](panel, lines)
    drawn.update_layout(
        margin={"l": 56, "r": 8, "t": 4, "b": 22},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "size": 11, "family": "DejaVu Sans, sans-serif"},
        showlegend=False,
        hovermode="x unified" if panel["type"] == "timeseries" else "closest",
    )
    drawn.update_xaxes(gridcolor=_GRID, range=[_clock(span[0]), _clock(span[1])], tickformat="%H:%M")
    drawn.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID)
    if panel["type"] == "timeseries":
        for mark in marks[:_MARKS]:
            drawn.add_vline(
                x=_clock(mark.time).timestamp() * 1000,
                line={"color": mark.colour, "width": 1, "dash": "dash"},
                opacity=0.7,
            )
    return drawn


def line_colour(panel: Json, line: Series) -> str:
    field = fields.of(panel, line.name)
    colour = field.get("color", {})
    if colour.get("mode") == "fixed":
        return colours.of(colour["fixedColor"])
    if colour.get("mode") == "thresholds":
        return colours.by_threshold(line.last, field["thresholds"]["steps"])
    return colours.by_name(line.name)


def _clock(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _timeseries(panel: Json, lines: Sequence[Series]) -> go.Figure:
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    stacked = custom["stacking"]["mode"] != "none"
    points = custom["drawStyle"] == "points"
    drawn = go.Figure()
    for line in lines:
        field = fields.of(panel, line.name)
        colour = line_colour(panel, line)
        times, heights = (line.times, line.values) if stacked else _with_gaps(line)
        dashed = field["custom"].get("lineStyle", {}).get("fill") == "dash"
        drawn.add_scatter(
            x=[_clock(time) for time in times],
            y=heights,
            name=line.name,
            mode="markers" if points else "lines",
            marker={"color": colour, "size": 4},
            line={"color": colour, "width": 1.5, "dash": "dash" if dashed else "solid"},
            stackgroup="all" if stacked else None,
            fill="tonexty" if stacked else "tozeroy" if custom.get("fillOpacity", 0) else None,
            fillcolor=_faint(colour, custom.get("fillOpacity", 0)) if custom.get("fillOpacity") else None,
            customdata=[values.show(value, field).text for value in heights],
            hovertemplate="%{customdata}",
        )
    everything = [value for line in lines for value in line.values if math.isfinite(value)]
    _value_axis(drawn, defaults, everything, logarithmic=points, stacked=stacked)
    if custom.get("thresholdsStyle", {}).get("mode") == "dashed" and everything:
        for step in defaults["thresholds"]["steps"][1:]:
            if step["value"] <= 1.6 * max(everything):
                colour = colours.of(step["color"])
                drawn.add_hline(y=step["value"], line={"color": colour, "width": 1, "dash": "dot"})
    return drawn


def _with_gaps(line: Series) -> tuple[list[float], list[float | None]]:
    """Times and values with nothing where samples are missing, so that no line bridges it."""
    steps = [b - a for a, b in pairwise(line.times)]
    usual = min(steps) if steps else 0.0
    times, heights = list(line.times[:1]), list[float | None](line.values[:1])
    for step, time, value in zip(steps, line.times[1:], line.values[1:], strict=True):
        if step > 1.5 * usual:
            times.append(time - usual)
            heights.append(None)
        times.append(time)
        heights.append(value)
    return times, heights


def _value_axis(
    drawn: go.Figure, defaults: Json, everything: Sequence[float], *, logarithmic: bool, stacked: bool
) -> None:
    """Ticks in the panel's unit: Plotly knows none of Grafana's."""
    if not everything:
        return
    unit, floor = defaults.get("unit", "short"), defaults["custom"].get("axisSoftMin")
    if logarithmic:
        low, high = math.log10(max(1e-9, min(everything))), math.log10(max(everything))
        room = max(0.1, 0.08 * (high - low))
        low, high = low - room, high + room
        ticks = [10 ** (low + (high - low) * part / 4) for part in range(5)]
        drawn.update_yaxes(type="log", range=[low, high])
    else:
        low, high = min(everything), max(everything)
        if stacked:
            drawn.update_yaxes(tickformat=".0%" if unit == "percentunit" else "~s", rangemode="tozero")
            return
        low = min(low, floor) if floor is not None else low
        high = max(high, defaults["custom"].get("axisSoftMax", high))
        room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
        high, low = min(high + room, defaults.get("max", math.inf)), low if low == floor else low - room
        drawn.update_yaxes(range=[low, high])
        places, texts = values.ticks(low, high, unit)
        drawn.update_yaxes(tickvals=places, ticktext=texts)
        return
    drawn.update_yaxes(tickvals=ticks, ticktext=[values.with_unit(tick, unit) for tick in ticks])


def _faint(colour: str, percent: int) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{percent / 100})"


def _states(panel: Json, lines: Sequence[Series]) -> go.Figure:
    """One bar for each run of equal values."""
    drawn = go.Figure()
    for line in lines:
        field = fields.of(panel, line.name)
        for begin, end, value in _runs(line):
            shown = values.show(value, field)
            drawn.add_bar(
                x=[1000 * (end - begin)],
                y=[line.name],
                base=[_clock(begin)],
                orientation="h",
                marker={"color": shown.colour, "line": {"width": 0}},
                text=shown.text,
                textposition="inside",
                insidetextanchor="middle",
                hovertext=shown.text,
            )
    drawn.update_layout(barmode="overlay", bargap=0.25)
    drawn.update_xaxes(type="date")
    drawn.update_yaxes(type="category", automargin=True)
    return drawn


def _runs(line: Series) -> list[tuple[float, float, float]]:
    """(begin, end, value) of equal neighbours; a gap of more than two steps ends one."""
    steps = [b - a for a, b in pairwise(line.times)]
    step = min(steps) if steps else 60.0
    runs: list[tuple[float, float, float]] = []
    for time, value in zip(line.times, line.values, strict=True):
        if runs and runs[-1][2] == value and time - runs[-1][1] <= 2 * step:
            runs[-1] = (runs[-1][0], time + step, value)
        else:
            runs.append((time, time + step, value))
    return runs


def _history(panel: Json, lines: Sequence[Series]) -> go.Figure:
    """One cell a sample, in the colour of its threshold."""
    ordered = sorted(lines, key=lambda line: _number(line.name), reverse=True)
    times = sorted({time for line in lines for time in line.times})
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    level = {colours.of(step["color"]): index for index, step in enumerate(steps)}
    grid: list[list[float | None]] = []
    for line in ordered:
        known = dict(zip(line.times, line.values, strict=True))
        row: list[float | None] = [
            level[colours.by_threshold(known[time], steps)] if time in known else None for time in times
        ]
        grid.append(row)
    return _grid(grid, times, [line.name for line in ordered], list(level))


def _grid(
    grid: Sequence[Sequence[float | None]], times: Sequence[float], names: Sequence[str], scale: Sequence[str]
) -> go.Figure:
    edges: list[list[Any]] = []
    for index, colour in enumerate(scale):
        edges += [[index / len(scale), colour], [(index + 1) / len(scale), colour]]
    drawn = go.Figure()
    drawn.add_heatmap(
        x=[_clock(time) for time in times],
        y=list(names),
        z=[list(row) for row in grid],
        zmin=-0.5,
        zmax=len(scale) - 0.5,
        colorscale=edges,
        showscale=False,
        xgap=1,
        ygap=1,
    )
    drawn.update_yaxes(type="category", automargin=True)
    return drawn


def _heatmap(panel: Json, lines: Sequence[Series]) -> go.Figure:
    """Buckets as they are called, counts on a scale where one beside thousands still shows."""
    ordered = sorted(lines, key=lambda line: _number(line.name))
    times = sorted({time for line in lines for time in line.times})
    counts = [dict(zip(line.times, line.values, strict=True)) for line in ordered]
    drawn = go.Figure()
    drawn.add_heatmap(
        x=[_clock(time) for time in times],
        y=[_number(line.name) for line in ordered],
        z=[[known[time] ** 0.3 if time in known else None for time in times] for known in counts],
        text=[[f"{known.get(time, 0):g}" for time in times] for known in counts],
        hovertemplate="%{y}: %{text}<extra></extra>",
        colorscale="Oranges_r",
        showscale=False,
    )
    drawn.update_yaxes(title={"text": panel["options"]["yAxis"].get("axisLabel", ""), "standoff": 4})
    return drawn


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
