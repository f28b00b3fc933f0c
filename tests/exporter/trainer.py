"""A training process for tests: steps on the wire as fast as it can, its own step times, until told to end.

    python -m exporter.trainer SOCKET RANK REPORT

Writes to REPORT now and then, and at the end: steps, the longest step in seconds, records lost.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

from exporter.exporter_process import Rank


def main(socket: Path, number: int, report: Path) -> None:
    running = True

    def end(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, end)
    rank = Rank(socket, number, patience_s=0.0)
    longest = 0.0
    while running:
        began = time.perf_counter()
        rank.iterate(seconds=0.01, kernels=50)
        longest = max(longest, time.perf_counter() - began)
        temporary = report.with_suffix(".new")
        temporary.write_text(
            json.dumps({"steps": rank.step, "longest_s": longest, "lost": rank.link.dropped})
        )
        temporary.replace(report)
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
