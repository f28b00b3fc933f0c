"""What `argus-exporter replay` needs to read a large trace: memory and time of the whole command.

    python -m bench.importers [--megabytes 1000] [--traces FOLDER]

Makes a trace of that size from a real one (a resnet50 rank on a V100: its events again and again, each time
later, with new steps and correlation ids), in a temporary folder, and lets the command read it, plain and
gzip. Peak memory is the child's VmHWM: ru_maxrss would count the memory of its parent at the fork too. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

LIMIT_MB_OF_1_GB = 500
_STAMPED = re.compile(rb'"ts": (\d+)|"correlation": (\d+)|ProfilerStep#(\d+)')
_MEASURED = """
import json, resource, sys
from argus_exporter.cli import main
status = main(["replay", "--json", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
cpu = used.ru_utime + used.ru_stime
print(json.dumps({"status": status, "peak_mb": peak / 1024, "cpu_s": cpu}), file=sys.stderr)
"""


@dataclass(frozen=True)
class Measured:
    """One run of the command: peak memory, CPU time with the start of Python, kernels in its summary."""

    peak_mb: float
    cpu_s: float
    kernels: int


def real_trace(traces: Path) -> Path:
    return sorted((traces / "resnet50_kineto").glob("*.json.gz"))[0]


def enlarge(source: Path, target: Path, megabytes: float) -> int:
    """Write a trace of at least that size with the events of `source` repeated; GPU events written."""
    raw = gzip.decompress(source.read_bytes())
    begin = raw.index(b"[", raw.index(b'"traceEvents"')) + 1
    end = raw.rindex(b"]")
    events = raw[begin:end].strip()
    stamps = [int(match[1]) for match in _STAMPED.finditer(events) if match[1]]
    length = max(stamps) - min(stamps) + 1_000_000
    gpu = len(re.findall(rb'"cat": "(?:Kernel|Memcpy|Memset)"', events))
    written = 0
    with target.open("wb") as file:
        file.write(raw[:begin])
        for again in count():
            file.write(b",\n" if again else b"\n")
            file.write(_STAMPED.sub(_later(again, length), events))
            written += gpu
            if file.tell() >= megabytes * 1e6:
                break
        file.write(b"\n]}")
    return written


def measure(*arguments: str | Path) -> Measured:
    """Run `argus-exporter replay --json` in a process of its own.

    Raises:
        RuntimeError: the command failed.
    """
    command = [sys.executable, "-c", _MEASURED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    if done.returncode or not said or not said[-1].startswith('{"status": 0'):
        raise RuntimeError(f"replay failed: {said[-1:]}")
    used = json.loads(said[-1])
    kernels = sum(rank["kernel_events"] for rank in json.loads(done.stdout)["ranks"])
    return Measured(used["peak_mb"], used["cpu_s"], kernels)


def _later(again: int, length: int) -> Callable[[re.Match[bytes]], bytes]:
    def moved(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return b'"ts": %d' % (int(match[1]) + again * length)
        if match[2]:
            return b'"correlation": %d' % (int(match[2]) + again * 10_000_000)
        return b"ProfilerStep#%d" % (int(match[3]) + again * 100)

    return moved


def compress(source: Path, target: Path) -> None:
    """As fast as gzip goes: only reading is measured."""
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabytes", type=float, default=1000, help="size of the trace (default: %(default)s)"
    )
    parser.add_argument(
        "--traces",
        type=Path,
        default=Path(os.environ.get("ARGUS_TRACES", "../shared/traces")),
        help="folder of the real GPU traces (default: $ARGUS_TRACES or %(default)s)",
    )
    args = parser.parse_args()
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="argus-bench-") as folder:
        plain, packed = Path(folder) / "rank0.json", Path(folder) / "rank0.json.gz"
        events = enlarge(real_trace(args.traces), plain, args.megabytes)
        compress(plain, packed)
        megabytes = plain.stat().st_size / 1e6
        print(
            f"{megabytes:,.0f} MB of JSON, {events:,} GPU events; {packed.stat().st_size / 1e6:,.0f} MB gzip"
        )
        print(f"{'':12}{'peak MB':>10}{'CPU s':>10}{'MB/s':>10}")
        for name, path in (("plain", plain), ("gzip", packed)):
            used = measure(path)
            if used.kernels != events:
                raise RuntimeError(f"{used.kernels} GPU events read, {events} written")
            speed = megabytes / used.cpu_s
            print(f"{name:12}{used.peak_mb:>10.0f}{used.cpu_s:>10.1f}{speed:>10.0f}", flush=True)
            result |= {f"{name}_peak_mb": round(used.peak_mb, 1), f"{name}_mb_per_s": round(speed, 1)}
    limit = LIMIT_MB_OF_1_GB if args.megabytes >= 1000 else None
    kept = limit is None or max(result["plain_peak_mb"], result["gzip_peak_mb"]) <= limit
    print(json.dumps({"megabytes": round(megabytes), "gpu_events": events, **result}))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
