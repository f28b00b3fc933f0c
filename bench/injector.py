"""libargus_cupti against the fake CUPTI: CPU time of its worker a record, and what it drops.

    python -m bench.injector [--seconds N] [--build FOLDER]

The cost is the library's own counter, the CPU time of its one thread, over the records that it read: flushes,
decoding, names and sending included, and the fake's share of them. So other load on the machine moves it
little. The reader on the other end of the socket does nothing but receive. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "native"
KERNELS_A_SECOND = 50_000
BURST = 2_000_000
NO_LAUNCHES = {"ARGUS_ISSUE_LATENCY": "0"}


@dataclass(frozen=True)
class Case:
    name: str
    actions: tuple[str, ...]
    environment: dict[str, str]
    reader: bool = True


def cases(seconds: int) -> list[Case]:
    steady = f"kernels:{KERNELS_A_SECOND * seconds}@{KERNELS_A_SECOND}"
    return [
        Case(
            "50,000/s, CUPTI 12.4 (208 bytes)",
            (steady, "settle"),
            {"FAKE_CUPTI_VERSION": "22", **NO_LAUNCHES},
        ),
        Case("50,000/s, CUPTI 13.0 (216 bytes)", (steady, "settle"), NO_LAUNCHES),
        Case(
            "50,000/s, CUPTI 13.5 (248 bytes)",
            (steady, "settle"),
            {"FAKE_CUPTI_VERSION": "130500", **NO_LAUNCHES},
        ),
        Case("50,000/s, launches sampled", (steady, "settle"), {}),
        Case("50,000/s, all launches", (steady, "settle"), {"ARGUS_ISSUE_LATENCY": "1"}),
        Case("50,000/s without an exporter", (steady, "settle"), NO_LAUNCHES, reader=False),
        Case("as fast as the fake can", (f"kernels:{BURST}", "settle"), NO_LAUNCHES),
        Case("the same, all launches", (f"kernels:{BURST}", "settle"), {"ARGUS_ISSUE_LATENCY": "1"}),
    ]


def build(folder: Path) -> Path:
    """Build library, stand-ins and program; the build folder."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", *generator, "-S", str(SOURCE), "-B", str(folder), "-DARGUS_INJECTOR_TESTING=ON"]
    for command in (configure, ["cmake", "--build", str(folder), "--parallel", "2"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@contextmanager
def reader(path: Path) -> Iterator[None]:
    """Receives and forgets."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()

    def receive() -> None:
        peer, _ = listener.accept()
        with peer:
            while peer.recv(1 << 17):
                pass

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    yield
    thread.join(timeout=10)
    listener.close()
    path.unlink()


def measure(case: Case, built: Path) -> dict[str, Any]:
    """The program's report."""
    stand_ins = built / "injector" / "testing"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exporter.sock"
        environment = {
            "PATH": os.environ["PATH"],
            "RANK": "0",
            "LD_LIBRARY_PATH": str(stand_ins),
            "CUDA_INJECTION64_PATH": str(built / "injector" / "libargus_cupti.so"),
            "ARGUS_SOCKET": str(path),
            **case.environment,
        }
        command = [str(stand_ins / "training_app"), *case.actions]
        if case.reader:
            with reader(path):
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        else:
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=10, help="length of each steady case")
    parser.add_argument("--build", type=Path, help="build folder to keep; default: a temporary one")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        built = build(options.build or Path(temporary) / "build")
        print(f"{'case':36} {'records':>9} {'ns/record':>9} {'% of core':>9} {'dropped':>9} {'counted':>8}")
        for case in cases(options.seconds):
            report = measure(case, built)
            dropped = sum(report[f"dropped_{where}"] for where in ("socket", "cupti", "buffers", "invalid"))
            seen = max(report["records"], 1)
            report["ns_per_record"] = report["cpu_ns"] / seen
            report["dropped"] = dropped
            steady = (
                f"{100 * report['cpu_ns'] / (options.seconds * 1e9):9.2f}" if "50,000" in case.name else "-"
            )
            every = "all" if report["sent"] + dropped == report["kept"] else "NOT ALL"
            print(
                f"{case.name:36} {report['records']:9} {report['ns_per_record']:9.1f} {steady:>9} "
                f"{dropped:9} {every:>8}"
            )
            results[case.name] = report
    plain = [results[case.name] for case in cases(1)[:3]]
    burst = results["as fast as the fake can"]
    summary = {
        "ns_per_record": round(max(report["ns_per_record"] for report in plain), 1),
        "drops_at_50k": sum(report["dropped"] for report in plain),
        "ns_per_record_launches_sampled": round(results["50,000/s, launches sampled"]["ns_per_record"], 1),
        "launches_sampled_ratio": round(
            results["50,000/s, launches sampled"]["launches"] / results["50,000/s, all launches"]["launches"],
            3,
        ),
        "ns_per_record_with_launches": round(results["50,000/s, all launches"]["ns_per_record"], 1),
        "burst_uncounted": burst["kept"] - burst["sent"] - burst["dropped"],
        "ns_per_kernel_in_training_thread": round(burst["hot_ns"] / BURST, 1),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
