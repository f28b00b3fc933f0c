"""grafanalib's classes, made to write the dashboard model of Grafana 10.4 and later.

grafanalib 0.7.1 writes keys of Grafana 4 to 8 (`span`, `rows`, `sharedCrosshair`, nulls for what is unset),
which the current schema refuses, and lacks the status history and the heatmap of Grafana 9. Each class here
keeps grafanalib's constructor and changes only what is written.
"""

# mypy: disable-error-code=misc
# grafanalib publishes no types, so each of its classes is Any and may not be subclassed under --strict.

from __future__ import annotations

from typing import Any, Final, TypeVar

import attr
from grafanalib import core as grafana

from argus_dashboards.theme import Json

SCHEMA_VERSION: Final = 39  # Grafana 10.4; later versions migrate it on load
DATA_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

_PANEL_KEYS: Final = frozenset(
    {
        "cacheTimeout",
        "collapsed",
        "datasource",
        "description",
        "fieldConfig",
        "gridPos",
        "id",
        "interval",
        "links",
        "maxDataPoints",
        "maxPerRow",
        "options",
        "panels",
        "repeat",
        "repeatDirection",
        "targets",
        "timeFrom",
        "timeShift",
        "title",
        "transformations",
        "transparent",
        "type",
    }
)
_FIELD_KEYS: Final = frozenset(
    {
        "color",
        "custom",
        "decimals",
        "displayName",
        "links",
        "mappings",
        "max",
        "min",
        "noValue",
        "thresholds",
        "unit",
    }
)
_VARIABLE_KEYS: Final = frozenset(
    {
        "allValue",
        "current",
        "datasource",
        "description",
        "hide",
        "includeAll",
        "label",
        "multi",
        "name",
        "options",
        "query",
        "refresh",
        "regex",
        "sort",
        "type",
    }
)
_DASHBOARD_KEYS: Final = frozenset(
    {
        "annotations",
        "description",
        "editable",
        "graphTooltip",
        "links",
        "panels",
        "refresh",
        "schemaVersion",
        "tags",
        "templating",
        "time",
        "timepicker",
        "timezone",
        "title",
        "uid",
    }
)


_LEAST_WIDTH: Final = 60
"""Pixels of a column."""

_Class = TypeVar("_Class")


def _extended(cls: type[_Class]) -> type[_Class]:
    """`attr.s` for a grafanalib class with new fields, past mypy's plugin, which would know only these."""
    return attr.s(cls)


def _only(keys: frozenset[str], data: Json) -> Json:
    return {key: value for key, value in data.items() if key in keys and value is not None}


class _Current:
    """Mixin before a grafanalib panel: writes only keys of the current model, and never null."""

    def panel_json(self, overrides: Json) -> Json:
        data: Json = super().panel_json(overrides)
        data = _only(_PANEL_KEYS, data)
        if "repeat" not in data:
            data.pop("repeatDirection", None)
        defaults = _only(_FIELD_KEYS, data["fieldConfig"]["defaults"])
        custom = defaults.get("custom", {})
        defaults["custom"] = {key: value for key, value in custom.items() if value is not None}
        data["fieldConfig"] = {
            "defaults": defaults,
            "overrides": data["fieldConfig"].get("overrides", []),
        }
        legend = data.get("options", {}).get("legend")
        if legend is not None and "displayMode" in legend:
            # "hidden" was a display mode until Grafana 9, and is a switch since.
            legend["showLegend"] = legend["displayMode"] != "hidden"
            if not legend["showLegend"]:
                legend["displayMode"] = "list"
        return data


@_extended
class TimeSeries(_Current, grafana.TimeSeries):
    """Lines over time. `least_top` is a value that the axis reaches at least."""

    legend_sort_by: str = attr.ib(default="")
    legend_descending: bool = attr.ib(default=True)
    least_top: float | None = attr.ib(default=None)

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        data["options"]["legend"] |= {"sortBy": self.legend_sort_by, "sortDesc": self.legend_descending}
        defaults = data["fieldConfig"]["defaults"]
        if self.least_top is not None:
            defaults["custom"]["axisSoftMax"] = self.least_top
        if self.colorMode == "thresholds":
            defaults["color"]["seriesBy"] = "last"
        return data


@_extended
class Stat(_Current, grafana.Stat):
    """One number, or one per series."""

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        data["fieldConfig"]["defaults"].setdefault("color", {"mode": "thresholds"})
        return data


@_extended
class Table(_Current, grafana.Table):
    """Rows of an instant query. `no_value` is what an empty table says."""

    no_value: str = attr.ib(default="")

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        defaults = data["fieldConfig"]["defaults"]
        defaults["color"] = {"mode": self.colorMode}
        defaults["mappings"] = self.mappings
        defaults["custom"].pop("displayMode")
        defaults["custom"]["cellOptions"] = {"type": self.displayMode}
        # 150 unless told, which moves the last columns out of a narrow panel.
        defaults["custom"]["minWidth"] = _LEAST_WIDTH
        if self.no_value:
            defaults["noValue"] = self.no_value
        data["options"]["cellHeight"] = "sm"
        return data


class StateTimeline(_Current, grafana.StateTimeline):
    """Periods of equal state, one row a series."""


@_extended
class StatusHistory(_Current, grafana.StateTimeline):
    """One coloured cell for each series and sample; grafanalib has no such panel."""

    unit: str = attr.ib(default="")

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        data["type"] = "status-history"
        options = data["options"]
        data["options"] = {key: options[key] for key in ("showValue", "rowHeight", "legend", "tooltip")} | {
            "colWidth": 1
        }
        data["fieldConfig"]["defaults"]["unit"] = self.unit
        return data


@_extended
class Heatmap(_Current, grafana.Panel):
    """The heatmap of Grafana 9 and later: each series is one bucket of the vertical axis, in query order."""

    axis_label: str = attr.ib(default="")
    unit: str = attr.ib(default="short")
    scheme: str = attr.ib(default="Oranges")
    no_value: str = attr.ib(default="")

    def to_json_data(self) -> Json:
        data: Json = self.panel_json(
            {
                "type": "heatmap",
                "fieldConfig": {
                    "defaults": {"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}}
                },
                "options": {
                    "calculate": False,
                    "cellGap": 1,
                    # Exponential colours: one rank far out must not vanish beside thousands near 1.
                    "color": {
                        "mode": "scheme",
                        "scheme": self.scheme,
                        "steps": 64,
                        "fill": "dark-orange",
                        "scale": "exponential",
                        "exponent": 0.3,
                        "reverse": False,
                    },
                    "filterValues": {"le": 0.5},
                    "rowsFrame": {"layout": "auto"},
                    "showValue": "auto",
                    "tooltip": {"mode": "single", "yHistogram": False},
                    "yAxis": {"axisPlacement": "left", "axisLabel": self.axis_label, "reverse": False},
                    "cellValues": {"unit": self.unit},
                    "legend": {"show": True},
                },
            }
        )
        if self.no_value:
            data["fieldConfig"]["defaults"]["noValue"] = self.no_value
        return data


class Row(_Current, grafana.RowPanel):
    """A heading that folds what is below it."""

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        return {key: data[key] for key in ("collapsed", "gridPos", "id", "panels", "title", "type")}


@_extended
class Query(grafana.Target):
    """One PromQL query. `table` asks for the last values only, as rows."""

    table: bool = attr.ib(default=False)

    def to_json_data(self) -> Json:
        data: Json = {
            "refId": self.refId,
            "datasource": DATA_SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.table else self.format,
            "instant": self.table or self.instant,
            "range": not (self.table or self.instant),
            "legendFormat": self.legendFormat or "__auto",
        }
        if self.interval:
            data["interval"] = self.interval
        return data


@_extended
class Variable(grafana.Template):
    """A variable of the dashboard."""

    description: str | None = attr.ib(default=None)

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data() | {"description": self.description}
        if self.type == "custom":
            data["options"] = _choices(self.query, self.default)
            data["current"] = next(option for option in data["options"] if option["selected"])
        elif self.includeAll:
            data["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
        elif self.default is None:
            data["current"] = None
        else:
            data["current"] = {key: self._current[key] for key in ("selected", "text", "value")}
        return _only(_VARIABLE_KEYS, data)


def _choices(query: str, default: str) -> list[Json]:
    """Options of a custom variable, `value` or `text : value` each, as Grafana itself reads them."""
    pairs = [choice.strip().rpartition(" : ") for choice in query.split(",")]
    return [{"selected": value == default, "text": text or value, "value": value} for text, _, value in pairs]


class Dashboard(grafana.Dashboard):
    """A dashboard of the current model."""

    def to_json_data(self) -> Json:
        data: Json = super().to_json_data()
        data["timepicker"] = {"refresh_intervals": self.timePicker.refreshIntervals}
        return _only(_DASHBOARD_KEYS, data)


def column(name: str, **properties: Any) -> Json:
    """Override of a field, by name or by /pattern/. `custom__width=80` sets `custom.width`."""
    return {
        "matcher": {"id": "byRegexp" if name.startswith("/") else "byName", "options": name},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }
