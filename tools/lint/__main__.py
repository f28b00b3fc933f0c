"""Run all checks; print what is wrong; exit 1 if anything is."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tools.lint import citations, classes, matches, names, programs, runbooks
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
    yield from names.unknown_in_pages(production)
    yield from runbooks.orphans(production)
    yield from runbooks.incomplete(runbooks.causes_of(production))
    yield from runbooks.dead_links()
    yield from citations.unfound()
    yield from classes.too_long()
    yield from programs.refused_rules()
    yield from programs.refused_configurations()


def main() -> int:
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
