"""Panels of text: numbers and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from argus_dashboards.theme import Json
from argus_preview import colours, fields, values
from argus_preview.frames import Row, Series


def stat(panel: Json, value: float | None) -> str:
    """One number."""
    field = panel["fieldConfig"]["defaults"]
    shown = values.show(value, field)
    if panel["options"]["colorMode"] == "background":
        style = f"background:{shown.colour};color:#fff"
    else:
        style = f"color:{shown.colour}"
    return f'<div class="stat" style="{style}">{escape(shown.text)}</div>'


def legend(panel: Json, lines: Sequence[Series], colour_of: Any, rows: int) -> str:
    """Names with their last value, largest first; what does not fit is counted."""
    if not panel["options"].get("legend", {}).get("showLegend", True):
        return ""
    ordered = sorted(lines, key=lambda line: -line.last)
    shown = "".join(
        f'<span class="key"><i style="background:{colour_of(panel, line.name)}"></i>{escape(line.name)}'
        f" <b>{escape(values.show(line.last, fields.of(panel, line.name)).text)}</b></span>"
        for line in ordered[:rows]
    )
    more = f'<span class="key">and {len(ordered) - rows} more</span>' if len(ordered) > rows else ""
    return f'<div class="legend">{shown}{more}</div>'


def table(panel: Json, columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows, sorted and coloured as the panel says."""
    for key in reversed(panel["options"].get("sortBy", [])):
        name = key["displayName"]
        rows = sorted(rows, key=lambda row: _order(row.get(name)), reverse=bool(key.get("desc")))
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    span = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    config = {name: fields.of(panel, name) for name in columns}
    head = "".join(f"<th>{escape(config[name].get('displayName', name))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name), config[name], span) for name in columns) + "</tr>"
        for row in rows
    )
    if not rows:
        return f'<div class="empty">{escape(nothing(panel))}</div>'
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def nothing(panel: Json) -> str:
    """What the panel says where there is nothing to show."""
    return str(panel["fieldConfig"]["defaults"].get("noValue", "No data"))


def _order(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, float) else (0, str(value or ""))


def _cell(value: Any, field: Json, span: tuple[float, float]) -> str:
    if isinstance(value, float):
        shown = values.show(value, field)
        text, colour = shown.text, shown.colour
        if field.get("color", {}).get("mode", "").startswith("continuous"):
            colour = colours.on_scale((value - span[0]) / ((span[1] - span[0]) or 1.0))
    else:
        mapped = values.mapping(str(value), field.get("mappings", ())) if value else None
        text = mapped["text"] if mapped else str(value) if value else field.get("noValue", "–")
        colour = colours.of(mapped["color"]) if mapped else ""
    kind = field["custom"].get("cellOptions", {}).get("type", "auto")
    styles = []
    if kind == "color-background" and isinstance(value, float):
        styles.append(f"background:{colour};color:#111217;text-align:center")
    elif kind == "color-text" and colour:
        styles.append(f"color:{colour}")
    if "width" in field["custom"]:
        styles.append(f"max-width:{field['custom']['width']}px")
    style = f' style="{";".join(styles)}"' if styles else ""
    inner = escape(text)
    if field.get("links") and value:
        inner = f'<u title="{escape(field["links"][0]["title"])}">{inner}</u>'
    return f"<td{style}>{inner}</td>"
