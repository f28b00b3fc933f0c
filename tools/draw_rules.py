"""The picture of docs/recorded-series.md: what stands on what, by name, from what is scraped to the alerts.

An SVG that GitHub shows and that is the same on every machine. Names stand in the box of the file that
records them, boxes in columns by how deep their names stand. A line that others imply is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from statistics import mean
from typing import Final

from argus_simulator.fast_play.rules import components
from tools.lint.graph import Graph, depth_by_name

_ROW: Final = 14
_COLUMN: Final = 292
_GAP: Final = 96
_LONGEST_COLUMN: Final = 48
"""Rows; what is longer becomes a column of its own."""
_COLOURS: Final = ("#4878a8", "#c8452f", "#3f8f5b", "#8a5fa8", "#b8860b", "#2a8c94", "#a0526d", "#56616d")
_GREY: Final = "#98a2b3"
_STYLE: Final = (
    "text{font:11px sans-serif;fill:#1f2933}.box{fill:#f4f6f8;stroke:#c9d1d9}.title{font-weight:bold}"
    "path{fill:none;stroke-width:1;opacity:.4}.past{stroke-dasharray:3 3}"
    "g:hover>path{opacity:1;stroke-width:2}g:hover>text{font-weight:bold}"
)
SCRAPED: Final = "scraped"
ALERTS: Final = "alerts"


@dataclass(frozen=True)
class _Edge:
    of: str
    on: str
    is_past: bool


def stage_of(graph: Graph) -> dict[str, str]:
    """The file that each name is recorded in, the one with most of its rules where there are several."""
    files: dict[str, list[str]] = {}
    for rule in graph.rules:
        files.setdefault(rule.name, []).append(rule.where)
    return {name: stage_name(max(sorted(set(where)), key=where.count)) for name, where in files.items()}


def stage_name(file: str) -> str:
    """argus.phases.rules.yaml -> phases."""
    return file.removeprefix("argus.").removesuffix(".yaml").removesuffix(".rules")


def picture(graph: Graph) -> str:
    """The whole SVG."""
    scraped = _scraped(graph)
    stages = stage_of(graph) | dict.fromkeys(sorted(set().union(*scraped.values())), SCRAPED)
    edges = list(_edges(graph, scraped))
    places = _places(_columns(stages, depth_by_name(graph)), edges)
    height = max(y for _, y in places.values()) + 2 * _ROW
    width = max(x for x, _ in places.values()) + _COLUMN + _GAP // 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_boxes(stages, places),
        *_names(stages, places, edges, {rule.name: rule.about for rule in graph.rules}),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _scraped(graph: Graph) -> dict[str, set[str]]:
    """What each name reads of what no rule records, without the endings of a family's samples."""
    read: dict[str, set[str]] = {}
    for rule, selected in zip(graph.rules, graph.selected, strict=True):
        names = {selector.name for selector in selected} - graph.recorded - {"ALERTS"}
        families = {name.removesuffix("_sum").removesuffix("_count") for name in names}
        read.setdefault(rule.name, set()).update(families)
    return read


def _edges(graph: Graph, scraped: Mapping[str, Set[str]]) -> Iterator[_Edge]:
    """Lines that no way over another name replaces, and those to the past."""
    stands_on = {name: graph.by_name[name] | scraped[name] for name in graph.by_name}
    names = sorted(set(stands_on).union(*stands_on.values()))
    number = {name: place for place, name in enumerate(names)}
    numbers = [{number[on] for on in stands_on.get(name, ())} for name in names]
    circle: dict[int, int] = {}
    below: dict[int, set[int]] = {}  # all that a name stands on, through others too
    for place, members in enumerate(components(numbers)):
        reached = set().union(*(numbers[member] for member in members))
        reached |= set().union(*(below[other] for other in reached - members))
        circle |= dict.fromkeys(members, place)
        below |= dict.fromkeys(members, reached)
    for of, direct in enumerate(numbers):
        beyond = {on for on in direct if circle[on] != circle[of]}
        for on in sorted(direct):
            if not any(on in below[over] and circle[over] != circle[on] for over in beyond - {on}):
                yield _Edge(names[of], names[on], is_past=False)
    for reader, rule in enumerate(graph.rules):
        for past in sorted(
            {graph.rules[other].name for other in graph.reads[reader] - graph.stands_on[reader]}
        ):
            if past != rule.name:
                yield _Edge(rule.name, past, is_past=True)


def _columns(stages: Mapping[str, str], depth: Mapping[str, int]) -> list[list[list[str]]]:
    """Columns of boxes of names: what is scraped, the files from shallow to deep, the alerts."""
    boxes: dict[str, list[str]] = {}
    for name, stage in stages.items():
        boxes.setdefault(stage, []).append(name)
    first, last = boxes.pop(SCRAPED, []), boxes.pop(ALERTS, [])
    columns: list[list[list[str]]] = []
    for _, box in sorted(boxes.items(), key=lambda item: (mean(depth[name] for name in item[1]), item[0])):
        if not columns or sum(len(other) + 2 for other in columns[-1]) + len(box) > _LONGEST_COLUMN:
            columns.append([])
        columns[-1].append(box)
    return [[box] for box in [first] if box] + columns + [[box] for box in [last] if box]


def _places(columns: Sequence[Sequence[Sequence[str]]], edges: Sequence[_Edge]) -> dict[str, tuple[int, int]]:
    """Left end of each name. Files keep the order of their rules, the ends follow what is beside them."""
    places: dict[str, tuple[int, int]] = {}

    def place(number: int, boxes: Sequence[Sequence[str]]) -> None:
        y = 3 * _ROW
        for box in boxes:
            for name in box:
                places[name] = (_GAP // 4 + number * (_COLUMN + _GAP), y)
                y += _ROW
            y += 2 * _ROW

    def height(name: str) -> tuple[float, str]:
        beside = [places[e.of][1] for e in edges if e.on == name and e.of in places]
        beside += [places[e.on][1] for e in edges if e.of == name and e.on in places]
        return (mean(beside) if beside else 0, name)

    for number, boxes in enumerate(columns):
        place(number, boxes)
    for number in (0, len(columns) - 1):
        place(number, [sorted(box, key=height) for box in columns[number]])
    return places


def _boxes(stages: Mapping[str, str], places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for stage in sorted(set(stages.values())):
        inside = [places[name] for name in places if stages[name] == stage]
        x, top, bottom = inside[0][0], min(y for _, y in inside), max(y for _, y in inside)
        yield (
            f'<rect class="box" x="{x - 6}" y="{top - 2 * _ROW}" width="{_COLUMN}" '
            f'height="{bottom - top + 3 * _ROW - 6}" rx="4"/>'
            f'<text class="title" x="{x}" y="{top - _ROW}" '
            f'style="fill:{_colour(stage, stages)}">{stage}</text>'
        )


def _colour(stage: str, stages: Mapping[str, str]) -> str:
    if stage == SCRAPED:
        return _GREY
    return _COLOURS[sorted(set(stages.values())).index(stage) % len(_COLOURS)]


def _names(
    stages: Mapping[str, str],
    places: Mapping[str, tuple[int, int]],
    edges: Sequence[_Edge],
    abouts: Mapping[str, str],
) -> Iterator[str]:
    """A group for a name: the lines to what it stands on, which the pointer brings out, and the name."""
    for name, (x, y) in places.items():
        lines = [
            _line(places[edge.on], (x, y), _colour(stages[edge.on], stages), is_past=edge.is_past)
            for edge in edges
            if edge.of == name
        ]
        title = f"<title>{escape(abouts[name])}</title>" if abouts.get(name) else ""
        shown = escape(name.replace(":argus_", ":"))
        yield f'<g>{title}{"".join(lines)}<text x="{x}" y="{y}">{shown}</text></g>'


def _line(start: tuple[int, int], end: tuple[int, int], colour: str, *, is_past: bool) -> str:
    left, right = start[0] + _COLUMN - 8, end[0] - 4
    if right < left:  # in the same column, or back
        right = end[0] + _COLUMN - 8
        bend = max(left, right) + min(12 + abs(end[1] - start[1]) // 5, _GAP - 20)
        controls = f"{bend} {start[1] - 3} {bend} {end[1] - 3}"
    else:
        half = (right - left) // 2
        controls = f"{left + half} {start[1] - 3} {right - half} {end[1] - 3}"
    past = ' class="past"' if is_past else ""
    return f'<path{past} stroke="{colour}" d="M{left} {start[1] - 3}C{controls} {right} {end[1] - 3}"/>'
