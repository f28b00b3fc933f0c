"""docs/fault-coverage.md from the scores that are committed beside it.

`python -m tools.generate_coverage` writes it; `--check` exits 1 where it is out of date. A line of
docs/fault-coverage.jsonl is what `argus-simulator score --json` printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from argus_simulator.score.coverage import page
from argus_simulator.score.suites import rows
from tools.generated import write_or_check

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    scores = [json.loads(line) for line in (DOCS / "fault-coverage.jsonl").read_text().splitlines()]
    notes = yaml.safe_load((DOCS / "fault-coverage.notes.yaml").read_text()) or {}
    catalogue = [name.rpartition("/")[2] for name in rows(held_out=True)]
    return write_or_check(
        {DOCS / "fault-coverage.md": page(scores, notes, catalogue)}, check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
