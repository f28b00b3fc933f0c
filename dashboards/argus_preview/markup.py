"""Panels of text: numbers and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from statistics import fmean
from typing import Any, Final

from argus_dashboards.theme import Json
from argus_preview import colours, fields, values
from argus_preview.frames import Row, Series

GRID_COLUMN: Final = 79
"""Pixels of a column of Grafana's grid of 24 on a page of 1,920."""


def stat(panel: Json, value: float | None) -> str:
    """One number."""
    field = panel["fieldConfig"]["defaults"]
    shown = values.show(value, field)
    # As large as the panel is high, and its text not wider than the panel.
    place = panel["gridPos"]
    size = min(22 * place["h"] - 30, place["w"] * GRID_COLUMN / (0.8 * len(shown.text)))
    if panel["options"]["colorMode"] == "background":
        style = f"font-size:{size:.0f}px;background:{shown.colour};color:#fff"
    else:
        style = f"font-size:{size:.0f}px;color:{shown.colour}"
    return f'<div class="stat" style="{style}">{escape(shown.text)}</div>'


_CALCS: Final[dict[str, tuple[str, Callable[[Sequence[float]], float]]]] = {
    "lastNotNull": ("Last *", lambda values: values[-1]),
    "max": ("Max", max),
    "min": ("Min", min),
    "mean": ("Mean", fmean),
}


def legend(panel: Json, lines: Sequence[Series], colour_of: Callable[[Json, Series], str]) -> str:
    """Names with their numbers, sorted as the panel says; the panel cuts off what has no room."""
    options = panel["options"]["legend"]
    calcs = [_CALCS[calc] for calc in options["calcs"]]
    key = dict(_CALCS.values())[options["sortBy"]]
    ordered = sorted(lines, key=lambda line: key(line.values), reverse=options["sortDesc"])
    head = "".join(f"<th>{name}</th>" for name, _ in calcs)
    rows = "".join(
        f'<tr><td><i style="background:{colour_of(panel, line)}"></i>{escape(line.name)}</td>'
        + "".join(
            f"<td>{escape(values.show(calc(line.values), fields.of(panel, line.name)).text)}</td>"
            for _, calc in calcs
        )
        + "</tr>"
        for line in ordered
    )
    return (
        f'<div class="legend {options["placement"]}"><table><tr><th>Name</th>{head}</tr>{rows}</table></div>'
    )


def table(panel: Json, columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows, sorted and coloured as the panel says; columns as wide as Grafana makes them."""
    if not rows:
        return f'<div class="empty">{escape(nothing(panel))}</div>'
    for key in reversed(panel["options"].get("sortBy", [])):
        name = key["displayName"]
        rows = sorted(rows, key=lambda row: _order(row.get(name)), reverse=bool(key.get("desc")))
    columns = [name for name in columns if not fields.of(panel, name)["custom"].get("hidden")]
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    span = (panel["fieldConfig"]["defaults"].get("min", 0.0), max(numbers, default=1.0))
    config = {name: fields.of(panel, name) for name in columns}
    wide = _widths(panel, [config[name]["custom"] for name in columns])
    sized = "".join(f'<col style="width:{one:.0f}px">' for one in wide)
    shown = columns if panel["options"]["showHeader"] else ()
    head = "".join(f"<th>{escape(config[name].get('displayName', name))}</th>" for name in shown)
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name), config[name], span) for name in columns) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="table"><table style="width:{sum(wide):.0f}px"><colgroup>{sized}</colgroup>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _widths(panel: Json, columns: Sequence[Json]) -> list[float]:
    """Pixels of each column: those that have no width share what is left, but have at least their least."""
    told = [column.get("width") for column in columns]
    left = panel["gridPos"]["w"] * GRID_COLUMN - sum(filter(None, told))
    share = left / max(1, told.count(None))
    return [width or max(column["minWidth"], share) for width, column in zip(told, columns, strict=True)]


def nothing(panel: Json) -> str:
    """What the panel says where there is nothing to show."""
    return str(panel["fieldConfig"]["defaults"].get("noValue", "No data"))


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, float):
        return (2, value, "")
    text = str(value or "")
    return (1, float(text), "") if text.isdigit() else (0, 0.0, text)


def _cell(value: Any, field: Json, span: tuple[float, float]) -> str:
    dark = field.get("color", {}).get("mode", "").startswith("continuous")
    if isinstance(value, float):
        shown = values.show(value, field)
        text, colour = shown.text, shown.colour
        if dark:
            colour = colours.on_scale((value - span[0]) / ((span[1] - span[0]) or 1.0))
    else:
        mapped = values.mapping(str(value), field.get("mappings", ())) if value else None
        text = mapped["text"] if mapped else str(value) if value else field.get("noValue", "–")
        colour = colours.of(mapped["color"]) if mapped else ""
    kind = field["custom"].get("cellOptions", {}).get("type", "auto")
    styles = []
    if kind == "color-background" and isinstance(value, float):
        styles.append(f"background:{colour};color:{'#fff' if dark else '#111217'};text-align:center")
    elif kind == "color-text" and colour:
        styles.append(f"color:{colour}")
    style = f' style="{";".join(styles)}"' if styles else ""
    inner = escape(text)
    if field.get("links") and value:
        inner = f'<u title="{escape(field["links"][0]["title"])}">{inner}</u>'
    return f"<td{style}>{inner}</td>"
