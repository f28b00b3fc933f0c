"""Who reads what the rules record: other rules, alerts, dashboards, our programs, and people by the pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.lint.graph import Graph
from tools.lint.names import series_in
from tools.lint.sources import ROOT, code_of, dashboard_queries, pages

PROGRAMS: Final = {"worker": "l3_worker", "simulator": "simulator"}
"""By name, the folder of their sources."""
LISTS: Final = frozenset({"alerts.md", "recorded-series.md"})
"""Pages that are generated from the rules: they name everything, and so speak for nothing."""


@dataclass
class Readers:
    """Of one recorded name."""

    rules: set[str] = field(default_factory=set)
    """Names of other recorded series."""
    alerts: set[str] = field(default_factory=set)
    dashboards: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    """Below the repository's root."""

    def any(self) -> bool:
        return bool(self.rules or self.alerts or self.dashboards or self.programs or self.pages)


def readers(graph: Graph, root: Path = ROOT) -> dict[str, Readers]:
    """By recorded name."""
    found = {name: Readers() for name in graph.recorded}
    for rule, read in zip(graph.rules, graph.reads, strict=True):
        names = {graph.rules[other].name for other in read} - {rule.name}
        if rule.is_alert:
            # The text of an alert asks queries too.
            names |= series_in(" ".join(rule.content.get("annotations", {}).values()))
        for name in names & found.keys():
            (found[name].alerts if rule.is_alert else found[name].rules).add(rule.name)
    for where, query in dashboard_queries(root):
        for name in series_in(query) & found.keys():
            found[name].dashboards.add(Path(where).stem)
    for program, folder in PROGRAMS.items():
        for source in (*(root / folder).rglob("*.py"), *(root / folder).rglob("*.yaml")):
            for name in series_in(source.read_text(encoding="utf-8")) & found.keys():
                found[name].programs.add(program)
    for page in pages(root):
        if page.name not in LISTS:
            for name in series_in(" ".join(code_of(page))) & found.keys():
                found[name].pages.add(str(page.relative_to(root)))
    return found


def unread(by_name: dict[str, Readers]) -> Iterator[str]:
    """Recorded names that nobody reads."""
    yield from (name for name, of_name in sorted(by_name.items()) if not of_name.any())
