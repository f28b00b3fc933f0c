"""Places panels on Grafana's grid and gives them ids that survive a change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import attr
from grafanalib import core as grafana

from argus_dashboards.current import Row

GRID_WIDTH: Final = 24
_HEADING_HEIGHT: Final = 1


class DoesNotFit(Exception):
    """A line of panels is wider than the grid, or a stack in it higher than the line."""


@dataclass(frozen=True)
class Line:
    """Panels side by side, (width, panel), all of one height; or in place of one a stack, (height, panel)."""

    height: int
    panels: Sequence[tuple[int, Any]]


@dataclass(frozen=True)
class Section:
    """A heading and the lines below it. `number` makes the ids: panel k of section 3 is 300 + k."""

    number: int
    title: str
    lines: Sequence[Line]
    folded: bool = False


def place(sections: Sequence[Section]) -> list[Any]:
    """All panels in reading order, each with its position and id."""
    placed: list[Any] = []
    top = 0
    for section in sections:
        panels = list(_place_lines(section, top + _HEADING_HEIGHT))
        heading = Row(
            title=section.title,
            id=section.number * 100,
            collapsed=section.folded,
            gridPos=grafana.GridPos(h=_HEADING_HEIGHT, w=GRID_WIDTH, x=0, y=top),
            panels=panels if section.folded else [],  # Grafana keeps what a folded row hides inside it
        )
        placed += [heading] if section.folded else [heading, *panels]
        top += _HEADING_HEIGHT + sum(line.height for line in section.lines)
    return placed


def _place_lines(section: Section, top: int) -> Iterator[Any]:
    number = section.number * 100
    for line in section.lines:
        left = 0
        for width, panels in line.panels:
            below = top
            for height, panel in panels if isinstance(panels, list) else [(line.height, panels)]:
                number += 1
                if left + width > GRID_WIDTH or below + height > top + line.height:
                    raise DoesNotFit(
                        f"{section.title!r}: panel {panel.title!r} ends at column {left + width} of"
                        f" {GRID_WIDTH}, "
                        f"row {below + height - top} of {line.height}: make the line's panels smaller"
                    )
                yield attr.evolve(
                    panel, id=number, gridPos=grafana.GridPos(h=height, w=width, x=left, y=below)
                )
                below += height
            left += width
        top += line.height
