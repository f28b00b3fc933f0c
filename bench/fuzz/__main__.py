"""Hostile input by the thousand: `python -m bench.fuzz [--inputs 100000] [--targets wire ...] [--seed 0]`.

`--inputs` go to the wire reader, and as many again are shared by the three importers. Each target runs in a
child of its own; one that dies, hangs, leaks descriptors or grows is named. Last line JSON, exit status 1 if
anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench.fuzz.watch import HANG_S

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
TARGETS: Final = ("wire", "kineto", "event_log", "nsys")
_GROWTH_LIMIT_MB: Final = 30.0
"""A leak of 1 kB an input would show as 25 MB over 25,000; allocator noise stays below 10."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default: %(default)s)")
    parser.add_argument(
        "--crashes",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="folder for inputs that break a target",
    )
    args = parser.parse_args()
    importers = [name for name in args.targets if name != "wire"]
    print(
        f"{'target':12}{'inputs':>10}{'usable':>9}{'s':>8}"
        f"{'slowest s':>11}{'RSS growth MB':>15}{'fds left':>10}  found"
    )
    outcomes = []
    for name in args.targets:
        inputs = args.inputs if name == "wire" else -(-args.inputs // len(importers))
        outcome = _child(name, inputs, args.seed, args.crashes)
        outcomes.append(outcome)
        print(
            f"{name:12}{outcome['inputs']:>10,}{outcome['usable']:>9.0%}{outcome['seconds']:>8.0f}{outcome['slowest_s']:>11.3f}"
            f"{outcome['rss_growth_mb']:>15.1f}{outcome['descriptors_left']:>10}  {outcome['found'] or '-'}",
            flush=True,
        )
    found = [outcome for outcome in outcomes if outcome["found"]]
    wire = sum(outcome["inputs"] for outcome in outcomes if outcome["target"] == "wire")
    print(
        json.dumps(
            {
                "wire_inputs": wire,
                "importer_inputs": sum(outcome["inputs"] for outcome in outcomes) - wire,
                "findings": len(found),
                "slowest_s": max(outcome["slowest_s"] for outcome in outcomes),
                "rss_growth_mb": max(outcome["rss_growth_mb"] for outcome in outcomes),
                "descriptors_left": sum(outcome["descriptors_left"] for outcome in outcomes),
            }
        )
    )
    return 1 if found else 0


def _child(name: str, inputs: int, seed: int, crashes: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.fuzz.watch", name, str(inputs), str(seed), str(crashes)]
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")])
    limit = 600 + inputs * HANG_S / 100
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return _lost(name, f"not done within {limit:g} s")
    except (IndexError, json.JSONDecodeError):
        return _lost(name, f"the process died with status {done.returncode}: {done.stderr.strip()[-500:]}")
    outcome["found"] = outcome["crash"]
    if not outcome["found"] and outcome["rss_growth_mb"] > _GROWTH_LIMIT_MB:
        outcome["found"] = f"memory grew by more than {_GROWTH_LIMIT_MB:g} MB"
    if not outcome["found"] and outcome["descriptors_left"]:
        outcome["found"] = "file descriptors are left open"
    return outcome


def _lost(name: str, why: str) -> dict[str, Any]:
    return {
        "target": name,
        "inputs": 0,
        "usable": 0.0,
        "seconds": 0.0,
        "slowest_s": 0.0,
        "rss_growth_mb": 0.0,
        "descriptors_left": 0,
        "found": why,
    }


if __name__ == "__main__":
    sys.exit(main())
