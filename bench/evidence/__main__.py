"""The measurements behind constants: docs/evidence tells what follows from them.

    python -m bench.evidence [TOPIC ...] [--seed N] [--json]

Without a topic all of them, in about a minute. Durations are synthetic, but for real-traces. The last line is
JSON: table, row, column, figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from bench.evidence import (
    cross_checks,
    far_launches,
    iterations,
    links,
    modes,
    real_traces,
    shifts,
    wasserstein,
)
from bench.evidence.table import Table

TOPICS: dict[str, Callable[[int], Iterator[Table]]] = {
    "modes": modes.tables,
    "wasserstein": wasserstein.tables,
    "shifts": shifts.tables,
    "iterations": iterations.tables,
    "links": links.tables,
    "far-launches": far_launches.tables,
    "cross-checks": cross_checks.tables,
    "real-traces": real_traces.tables,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=", ".join(TOPICS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the JSON line alone")
    arguments = parser.parse_args(argv)
    for topic in arguments.topics:
        if topic not in TOPICS:
            parser.error(f"no topic {topic!r}; there are {', '.join(TOPICS)}")
    result: dict[str, object] = {}
    for topic in arguments.topics or TOPICS:
        for table in TOPICS[topic](arguments.seed):
            if not arguments.json:
                print(table, end="\n\n", flush=True)
            result[table.title] = {row: dict(columns) for row, columns in table.rows.items()}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
