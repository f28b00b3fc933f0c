"""Grafana's named colours, its palette, and colours by threshold, mapping and scale."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from argus_dashboards.theme import Json

NAMED: Final = {
    "green": "#73BF69",
    "blue": "#5794F2",
    "yellow": "#FADE2A",
    "orange": "#FF9830",
    "red": "#F2495C",
    "dark-red": "#C4162A",
    "purple": "#B877D9",
}
_PALETTE: Final = (
    "#7EB26D", "#EAB839", "#6ED0E0", "#EF843C", "#E24D42", "#5195CE", "#D683CE", "#9F8FD8", "#9AC48A",
    "#F2C96D", "#65C5DB", "#F9934E", "#EA6460", "#82B5D8", "#E5A8E2", "#AEA2E0", "#B7DBAB", "#F4D598",
    "#70DBED", "#F9BA8F", "#F29191", "#37A2B4", "#C79BEA", "#C0D860",
)  # fmt: skip
"""Light enough for a dark page; Grafana's own palette has darker ones too."""
_SCALE: Final = ((24, 27, 31), (31, 96, 196))
"""`continuous-blues`: from the panel's background."""


def of(name: str) -> str:
    return NAMED.get(name, name)


def by_name(text: str) -> str:
    """A colour that a name keeps on every panel."""
    return _PALETTE[hashlib.sha256(text.encode()).digest()[0] % len(_PALETTE)]


def by_threshold(value: float, steps: Sequence[Json]) -> str:
    """Of the highest step that the value reaches."""
    reached = [step for step in steps if step["value"] is None or value >= step["value"]]
    return of(reached[-1]["color"]) if reached else of("blue")


def on_scale(share: float) -> str:
    """Dark to blue; share is 0 to 1."""
    share = min(1.0, max(0.0, share))
    mixed = [round(a + share * (b - a)) for a, b in zip(*_SCALE, strict=True)]
    return f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}"
