"""libargus_nccl against a host that calls it as NCCL does: time of a callback, and what it costs besides.

    python -m bench.nccl [--batches N] [--build FOLDER]

Callbacks of the progress thread are timed by batches of 16 network steps with five callbacks each, those of a
collective by four groups of one: a start, a stop or a state. What is timed is the CPU time of the calling
thread, so that what other processes take of the core is left out; the reading of its clock is in it.
Allocations and locks are those of the thread meanwhile, memory grows from the first batch to the last, after
the tables have been gone through once. The last line is JSON, of the slowest version of the interface.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from argus_core import nccl_page
from bench.injector import build

VERSIONS = {2: 22501, 4: 22707, 5: 22809, 7: 23203}
"""Versions of the interface whose descriptors differ, and an NCCL that asks for each."""


def measure(built: Path, version: int, batches: int) -> dict[str, Any]:
    """The program's report, and events that were dropped."""
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "page"
        environment = {
            "PATH": os.environ["PATH"],
            "ARGUS_NCCL": "1",
            "FAKE_NCCL_VERSION": str(VERSIONS[version]),
            "FAKE_PAGE_DUMP": str(dump),
        }
        program, library = built / "nccl" / "testing" / "nccl_app", built / "nccl" / "libargus_nccl.so"
        command = [str(program), str(version), str(library), "init:1", f"bench:{batches}"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        descriptor = nccl_page.make()
        os.pwrite(descriptor, dump.read_bytes(), 0)
    reader = nccl_page.NcclPageReader(descriptor)
    page = reader.read()
    reader.close()
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report | {"dropped": page.dropped_events + page.stale_events}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=50_000, help="of 80 callbacks, for each version")
    parser.add_argument("--build", type=Path, help="build folder to keep; default: a temporary one")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        built = build(options.build or Path(temporary) / "build")
        print(
            f"{'interface':10} {'callbacks':>10} {'step p50':>9} {'p99':>6} "
            f"{'collective p50':>15} {'p99':>6} ns"
        )
        for version in VERSIONS:
            row = measure(built, version, options.batches)
            print(
                f"v{version:<9} {row['callbacks']:10} {row['step_ns_p50']:9} {row['step_ns_p99']:6} "
                f"{row['collective_ns_p50']:15} {row['collective_ns_p99']:6}"
            )
            rows.append(row)
    summary = {name: max(row[name] for row in rows) for name in ("step_ns_p50", "step_ns_p99")}
    summary |= {name: max(row[name] for row in rows) for name in ("collective_ns_p99", "clock_ns")}
    summary |= {
        name: sum(row[name] for row in rows) for name in ("allocations", "locks", "dropped", "callbacks")
    }
    grown_mb = max(row["grown_kib"] for row in rows) / 1024
    print(json.dumps(summary | {"rss_growth_mb": round(grown_mb, 2)}))


if __name__ == "__main__":
    main()
