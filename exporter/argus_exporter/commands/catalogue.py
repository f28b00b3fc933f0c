"""`argus-exporter catalogue`: every metric family."""

from __future__ import annotations

import argparse
import dataclasses
import json

from argus_core.catalogue import CATALOGUE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON, for machines")


def run(options: argparse.Namespace) -> int:
    """Print it."""
    if options.json:
        print(json.dumps([dataclasses.asdict(family) for family in CATALOGUE], indent=2))
        return 0
    for family in CATALOGUE:
        labels = ", ".join((*family.labels, *(f"[{name}]" for name in family.optional_labels)))
        print(f"{family.name} ({family.type}; {labels or 'no labels'})\n    {family.help}")
    return 0
