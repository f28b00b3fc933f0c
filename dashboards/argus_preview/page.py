"""A whole dashboard as one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, Protocol

from plotly.offline import get_plotlyjs

from argus_dashboards.inspection import PanelQuery, interpolate, queries
from argus_dashboards.probe import Answer, Span
from argus_dashboards.theme import Json
from argus_preview import charts, colours, frames, markup

PLOTLY: Final = "plotly.min.js"
_CELL: Final = 38
"""Pixels of a row of Grafana's grid."""

NOTE: Final = (
    "Preview, drawn by argus_preview from the dashboard's JSON and real answers of Prometheus. Not Grafana: "
    "fonts and axes differ there, and what is below a › is folded until somebody clicks it."
)

_STYLE: Final = """
body{background:#111217;color:#ccccdc;font:13px DejaVu Sans,sans-serif;margin:0}
header{padding:10px 14px 4px}h1{font-size:19px;margin:0 0 2px}header p{margin:2px 0;color:#9a9aac}
.note{background:#3d3000;color:#fade2a;padding:5px 14px;font-size:12px}
.variable{display:inline-block;background:#22252b;border-radius:3px;padding:2px 8px;margin:4px 6px 2px 0}
.variable b{color:#fff;font-weight:600}
#grid{position:relative;margin:6px 10px}
.panel,.row{position:absolute;box-sizing:border-box;padding:4px}
.panel>div{background:#181b1f;border:1px solid #26292f;border-radius:3px;height:100%;box-sizing:border-box;
display:flex;flex-direction:column;overflow:hidden}
.row{font-size:15px;font-weight:600;padding:8px 6px 0}
h2{font-size:12px;margin:5px 9px 2px;font-weight:600;color:#d8d9da;white-space:nowrap;overflow:hidden}
.chart{flex:1;min-height:0}.stat{flex:1;display:flex;align-items:center;justify-content:center;
font-weight:600;margin:2px 6px 6px;border-radius:3px;text-align:center}
.legend{padding:0 9px 5px;color:#b0b0c0;overflow:hidden}
.legend.bottom{flex:none;max-height:35%}.legend.right{flex:none;max-width:35%}
.body{flex:1;min-height:0;display:flex;flex-direction:column}.body.right{flex-direction:row}
.legend table{width:100%;border-collapse:collapse;font-size:12px}
.legend th,.legend td{height:23px;white-space:nowrap;padding:0 6px;overflow:hidden;
text-overflow:ellipsis}.legend td+td,.legend th+th{text-align:right;width:60px}
.legend i{display:inline-block;width:14px;height:4px;border-radius:2px;margin:0 9px 2px 0}
.legend th,.table th{text-align:left;color:#9d9da8;font-weight:600}.legend tr{border-bottom:1px solid #22252b}
.table{flex:1;overflow:hidden}
.table table{border-collapse:collapse;table-layout:fixed;font-size:13.5px}
.table td,.table th{height:35px;box-sizing:border-box;border-bottom:1px solid #22252b;
border-right:1px solid #22252b;
padding:0 6px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}u{text-decoration:none;color:#6e9fff}
.empty{flex:1;display:flex;align-items:center;justify-content:center;color:#808080;
text-align:center;padding:0 9px}
"""


class Asker(Protocol):
    """Whatever answers queries: a Prometheus, or a test."""

    @property
    def span(self) -> Span: ...

    def ask(self, query: PanelQuery, values: Mapping[str, str]) -> Answer: ...


def write_library(folder: Path) -> None:
    """The chart library, once for all pages of a folder."""
    (folder / PLOTLY).write_text(get_plotlyjs(), encoding="utf-8")


def render(dashboard: Json, source: Asker, values: Mapping[str, str]) -> str:
    """The page, which loads the library from its folder."""
    asked = {(query.panel_id, query.ref): query for query in queries(dashboard) if query.panel_id}
    marks = list(_marks(dashboard, source, values))
    parts: list[str] = []
    figures: dict[str, Any] = {}
    for panel in _everything(dashboard):
        if panel["type"] == "row":
            sign = "›" if panel["collapsed"] else "⌄"
            parts.append(_placed("row", panel, f"{sign} {escape(interpolate(panel['title'], values))}"))
            continue
        answers = [source.ask(asked[panel["id"], target["refId"]], values) for target in panel["targets"]]
        inner = _panel(panel, answers, marks, source.span, figures)
        title, about = escape(interpolate(panel["title"], values)), escape(panel["description"])
        body = f'<div title="{about}" data-type="{panel["type"]}"><h2>{title}</h2>{inner}</div>'
        parts.append(_placed("panel", panel, body))
    height = _CELL * max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in _everything(dashboard))
    chips = "".join(
        f'<span class="variable">{escape(v["label"])}: <b>{escape(_chosen(v, values[v["name"]]))}</b></span>'
        for v in dashboard["templating"]["list"]
        if v["type"] != "datasource" and not v.get("hide")
    )
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{escape(dashboard["title"])} (preview)</title><style>{_STYLE}</style></head><body>
<div class="note">{escape(NOTE)}</div>
<header><h1>{escape(dashboard["title"])}</h1><p>{escape(dashboard["description"])}</p>{chips}</header>
<div id="grid" style="height:{height}px">{"".join(parts)}</div>
<script>window.failures = []; window.onerror = (text) => {{ window.failures.push(text); }};</script>
<script src="{PLOTLY}"></script>
<script>
const figures = {json.dumps(figures)};
const drawn = Object.entries(figures).map(([id, figure]) =>
  Plotly.newPlot(id, figure.data, figure.layout, {{displayModeBar: false, responsive: false}}));
Promise.all(drawn).then(() => {{ document.body.dataset.drawn = drawn.length; }})
  .catch((error) => window.failures.push(String(error)))
  .finally(() => {{ document.body.dataset.failures = window.failures.join("; "); }});
</script></body></html>
"""


def _panel(
    panel: Json, answers: Sequence[Answer], marks: Sequence[charts.Mark], span: Span, figures: dict[str, Any]
) -> str:
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        return f'<div class="empty" data-error="1">{escape(errors[0])}</div>'
    if panel["type"] == "stat":
        found = [float(one["value"][1]) for answer in answers for one in answer.result]
        return markup.stat(panel, found[0] if found else None)
    if panel["type"] == "table":
        columns, rows = frames.table([answer.result for answer in answers], panel["transformations"])
        return markup.table(panel, columns, rows)
    legends = [target["legendFormat"] for target in panel["targets"]]
    lines = frames.series([(legend, answer.result) for legend, answer in zip(legends, answers, strict=True)])
    if not lines:
        return f'<div class="empty">{escape(markup.nothing(panel))}</div>'
    place = f"chart{panel['id']}"
    figures[place] = json.loads(charts.figure(panel, lines, marks, (span.start, span.end)).to_json())
    chart = f'<div class="chart" id="{place}"></div>'
    if panel["type"] != "timeseries":
        return chart
    beside = panel["options"]["legend"]["placement"]
    return f'<div class="body {beside}">{chart}{markup.legend(panel, lines, charts.line_colour)}</div>'


def _marks(dashboard: Json, source: Asker, values: Mapping[str, str]) -> Iterator[charts.Mark]:
    """Where each annotation begins, at most one a minute and kind."""
    for query in queries(dashboard):
        name = query.panel.removeprefix("annotation ")
        if name == query.panel:
            continue
        [mark] = [one for one in dashboard["annotations"]["list"] if one["name"] == name]
        if not mark["enable"]:
            continue
        colour = colours.of(mark["iconColor"])
        seen: set[int] = set()
        for one in source.ask(query, values).result:
            points = one["values"]
            times = {float(v) / 1000 for _, v in points} if mark["useValueForTime"] else {float(points[0][0])}
            for time in sorted(times):
                if source.span.start < time <= source.span.end and int(time // 60) not in seen:
                    seen.add(int(time // 60))
                    yield charts.Mark(time, colour, frames.legend_of(mark["titleFormat"], one["metric"]))


def _everything(dashboard: Json) -> Iterator[Json]:
    for panel in dashboard["panels"]:
        yield panel
        if panel["type"] == "row":
            yield from panel["panels"]


def _placed(kind: str, panel: Json, inner: str) -> str:
    at = panel["gridPos"]
    style = (
        f"left:{at['x'] / 24:.4%};top:{at['y'] * _CELL}px;width:{at['w'] / 24:.4%};height:{at['h'] * _CELL}px"
    )
    return f'<div class="{kind}" style="{style}">{inner}</div>'


def _chosen(variable: Json, value: str) -> str:
    """What the reader sees as the variable's value."""
    known = {option["value"]: option["text"] for option in variable.get("options", ())}
    text = {".*": "All", ".+": "All"}.get(value, known.get(value, value))
    return text if len(text) <= 60 else f"{text[:57]}..."
