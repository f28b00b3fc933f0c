"""docs/recorded-series.md and its picture: every series that the rules record, and who reads it.

`python -m tools.generate_series_page` writes them; `--check` exits 1 when one is out of date. The sentences
are those that the rules carry (`about`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from os.path import relpath
from pathlib import Path
from typing import Final

from tools.draw_rules import picture, stage_name, stage_of
from tools.generate_rules import ROOT
from tools.generated import write_or_check
from tools.lint.graph import Graph, PlacedRule, rules_of
from tools.lint.readers import Readers, readers

_PAGE = ROOT / "docs" / "recorded-series.md"
_PICTURE = ROOT / "docs" / "img" / "rules.svg"
_INTRODUCTION = """\
# Recorded series

Generated from the rules by `make generate`; do not edit.

What dashboards, the L3 worker and your own rules may read. Names are `level:metric:operation`, as Prometheus
recommends; each file of `rules/` has a table. Alerts are listed in [alerts.md](alerts.md).

[![The rules by name, from what is scraped to the alerts](img/rules.svg)](img/rules.svg)

A line leads from what is read to what is recorded of it; one that others imply is left out, a dashed one is
a value of the past. Opened on its own, the picture says what a name is about and shows what it stands on.
"""
_UNITS: Final = (
    (r":.*lost_ratio", "share of wall time"),
    (r"timestamp_seconds", "Unix time, s"),
    (r":zscore|zscore", "standard deviations"),
    (r":(bool|active|few|class)", "1"),
    (r":(.*_)?ratio|_ratio:|:(.*_)?cv", "ratio"),
    (r":collectives", "collectives"),
    (r"_gpus:", "GPUs"),
    (r"_ranks:", "ranks"),
    (r"_rank:number", "rank"),
    (r"samples:rate|spans:", "1/s"),
    (r":(.*_)?count", "number"),
    (r":squared_seconds", "s²"),
    (r"_seconds", "s"),
    (r":(.*_)?seconds", "s"),
)
"""The first that is found in a name; no unit where none is, or where each label has another."""


def page(graph: Graph) -> str:
    """The whole page."""
    read_by, stages = readers(graph), stage_of(graph)
    named: dict[str, list[PlacedRule]] = {}
    for rule in graph.rules:
        if not rule.is_alert:
            named.setdefault(rule.name, []).append(rule)
    lines = [_INTRODUCTION]
    for stage in dict.fromkeys(stages[name] for name in named):
        lines += [f"## {stage}", "", "| series | says | unit | read by |", "|---|---|---|---|"]
        for name in sorted(name for name in named if stages[name] == stage):
            columns = (f"`{name}`", _says(named[name]), _unit(name), _readers(read_by[name], stages))
            lines.append(f"| {' | '.join(columns)} |")
        lines.append("")
    return "\n".join(lines)


def _says(rules: Sequence[PlacedRule]) -> str:
    """The sentences of all rules of a name; told apart by the labels that differ, where there are several."""
    by_sentence: dict[str, list[PlacedRule]] = {}
    for rule in rules:
        by_sentence.setdefault(rule.about, []).append(rule)
    by_sentence.pop("", None)
    if len(by_sentence) < 2:
        return _cell("".join(by_sentence))
    labels = _telling(list(by_sentence.values()))
    return "<br>".join(
        _cell(f"{', '.join(dict.fromkeys(_told_by(labels, rule) for rule in of))}: {sentence}")
        for sentence, of in by_sentence.items()
    )


def _telling(parts: Sequence[Sequence[PlacedRule]]) -> Sequence[str]:
    """The fewest static labels of which no two parts have the same values; all of them, where none do."""
    labels = list(dict.fromkeys(label for part in parts for rule in part for label in rule.labels))
    for number in range(1, len(labels)):
        for some in combinations(labels, number):
            values = [{tuple(rule.labels.get(label) for label in some) for rule in part} for part in parts]
            if len(set().union(*values)) == sum(map(len, values)):
                return some
    return labels


def _told_by(labels: Sequence[str], rule: PlacedRule) -> str:
    """The values of these labels; the file, where a rule sets none of them."""
    values = [f"`{rule.labels[label]}`" for label in labels if label in rule.labels]
    return "/".join(values) or stage_name(rule.where)


def _unit(name: str) -> str:
    return next((unit for pattern, unit in _UNITS if re.search(pattern, name)), "")


def _readers(of: Readers, stages: dict[str, str]) -> str:
    """Files of rules, alerts, dashboards, programs; pages only of what nothing else reads."""
    return (
        "; ".join(_reader_kinds(of, stages))
        or ", ".join(f"[{Path(file).stem}]({relpath(file, 'docs')})" for file in sorted(of.pages))
        or "nobody"
    )


def _reader_kinds(of: Readers, stages: dict[str, str]) -> Iterator[str]:
    if of.rules:
        yield "rules of " + ", ".join(sorted({stages[name] for name in of.rules}))
    if of.alerts:
        short = {alert: alert.removeprefix("Argus") for alert in sorted(of.alerts)}
        yield "alerts " + ", ".join(f"[{name}](runbooks/{alert}.md)" for alert, name in short.items())
    if of.dashboards:
        yield "dashboards " + ", ".join(name.removeprefix("argus-") for name in sorted(of.dashboards))
    if of.programs:
        yield ", ".join(sorted(of.programs))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    graph = Graph(rules_of())
    files = {_PAGE: page(graph), _PICTURE: picture(graph)}
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
