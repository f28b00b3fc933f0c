"""Numbers as a reader sees them: units, mappings, text for what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from argus_dashboards.theme import Json
from argus_preview import colours


@dataclass(frozen=True)
class Shown:
    """A value's text, and its colour where it has one."""

    text: str
    colour: str


def show(value: float | None, field: Json) -> Shown:
    """By the field's mappings, thresholds and unit. `field`: defaults merged with overrides."""
    steps = field.get("thresholds", {}).get("steps", ())
    if value is None or math.isnan(value):
        return _nothing(field, steps)
    mapped = mapping(f"{value:g}", field.get("mappings", ()))
    if mapped is not None:
        return Shown(mapped["text"], colours.of(mapped["color"]))
    text = with_unit(value, field.get("unit", "short"), field.get("decimals"))
    return Shown(text, colours.by_threshold(value, steps) if steps else colours.of("blue"))


def _nothing(field: Json, steps: Sequence[Json]) -> Shown:
    """By the mapping for what is not there; without one Grafana paints it in the base colour."""
    for one in field.get("mappings", ()):
        if one["type"] == "special" and one["options"]["match"] == "null+nan":
            result = one["options"]["result"]
            return Shown(result["text"], colours.of(result["color"]))
    return Shown(field.get("noValue", "–"), colours.of(steps[0]["color"] if steps else "green"))


def mapping(text: str, mappings: Sequence[Json]) -> Json | None:
    """What a value mapping makes of a text; None where it has none."""
    for one in mappings:
        if one["type"] != "value":
            continue
        found = one["options"].get(text)
        if found is not None:
            return {"text": found.get("text", text), "color": found.get("color", "blue")}
    return None


def with_unit(value: float, unit: str, decimals: int | None = None) -> str:
    """In a unit that ARGUS uses."""
    if unit == "s":
        return _scaled(value, _SECONDS, decimals)
    if unit == "bytes":
        return _scaled(value, _BYTES, decimals)
    if unit == "dateTimeAsIsoNoDateIfToday":
        at = datetime.fromtimestamp(value / 1000, UTC)
        today = at.date() == datetime.now(UTC).date()
        return at.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
    if unit == "percentunit":
        return f"{_plain(100 * value, 1 if decimals is None else decimals)}%"
    text = f"{value:.{decimals or 0}f}" if unit == "none" else _scaled(value, _PLAIN, decimals)
    suffix = _SUFFIXES.get(unit, _suffix(unit))
    return f"{text} {suffix}".strip()


_SECONDS = ((86400.0, "d"), (3600.0, "h"), (60.0, "mins"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_PLAIN = ((1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, ""))


def ticks(low: float, high: float, unit: str) -> tuple[list[float], list[str]]:
    """Three to six round places on an axis, and what stands beside them."""
    scale = {"s": _SECONDS, "bytes": _BYTES, "percentunit": ((0.01, "%"),)}.get(unit, _PLAIN)
    size = max(abs(low), abs(high))
    factor, name = next((one for one in scale if size >= one[0]), scale[-1])
    rough = (high - low) / factor / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= rough)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (step / power == 2.5)
    first, last = math.ceil(low / factor / step - 1e-9), math.floor(high / factor / step + 1e-9)
    places = [number * step for number in range(first, last + 1)]
    if unit not in ("s", "bytes", "percentunit"):
        name = f"{name} {_SUFFIXES.get(unit, _suffix(unit))}".strip()
    return [place * factor for place in places], [f"{place:.{decimals}f} {name}".strip() for place in places]


def _suffix(unit: str) -> str:
    return unit.removeprefix("suffix:").strip()


_SUFFIXES = {"short": "", "none": "", "string": "", "cps": "/s", "Bps": "B/s", "watt": "W", "celsius": "°C"}


def _scaled(value: float, scale: Sequence[tuple[float, str]], decimals: int | None) -> str:
    size = abs(value)
    factor, name = next((one for one in scale if size >= one[0]), scale[-1])
    if size == 0:
        factor, name = next(one for one in scale if one[0] == 1)
    scaled = value / factor
    if decimals is None:
        decimals = 0 if abs(scaled) >= 100 or float(scaled).is_integer() else 1 if abs(scaled) >= 10 else 2
    return f"{_plain(scaled, decimals)} {name}".strip()


def _plain(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and decimals > 2 else text
