"""Run all checks; print what is wrong; exit 1 if anything is. With `--graph`, tell of the rules instead."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from tools.lint import (
    citations,
    classes,
    graph,
    graph_report,
    matches,
    names,
    programs,
    readers,
    runbooks,
    versions,
)
from tools.lint.sources import FLAVOURS, rules

FOREIGN = frozenset({"UUID", "gpu", "Hostname", "hostname", "device", "node", "nodename", "cluster"})
"""Labels of dcgm-exporter and node_exporter, which hardware rules join with, and one that scrapers add."""


def problems() -> Iterator[str]:
    """Everything that is wrong, each in a line."""
    for flavour in FLAVOURS:
        found = rules(flavour)
        yield from names.misnamed(found)
        yield from names.mislabelled(found, FOREIGN)
        yield from names.unknown_series(found)
        yield from matches.half_typed(found)
    production = rules("rules")
    yield from graph_report.too_much(tuple(graph.rules_of()))
    yield from names.unknown_in_pages(production)
    yield from runbooks.orphans(production)
    yield from runbooks.incomplete(runbooks.causes_of(production))
    yield from runbooks.dead_links()
    yield from citations.unfound()
    yield from classes.too_long()
    yield from versions.other_versions()
    yield from programs.refused_rules()
    yield from programs.refused_configurations()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.lint", description=__doc__)
    parser.add_argument(
        "--graph", action="store_true", help="who reads what the rules record: figures, no verdict"
    )
    parser.add_argument("--json", action="store_true", help="with --graph: in one line")
    parser.add_argument(
        "--rules", default="rules", choices=FLAVOURS, help="with --graph: which rules (rules)"
    )
    arguments = parser.parse_args()
    return _report(arguments.rules, arguments.json) if arguments.graph else _check()


def _check() -> int:
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def _report(flavour: str, as_json: bool) -> int:
    of_rules = graph.Graph(graph.rules_of(flavour))
    found = graph_report.figures(of_rules, readers.readers(of_rules))
    print(json.dumps(found) if as_json else "\n".join(graph_report.table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
