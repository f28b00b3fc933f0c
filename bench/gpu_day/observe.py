"""Starts programs with ARGUS attached, as `argus-exporter run` does, and reads what comes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_exporter.commands.run import child_environment
from bench.gpu_day.collector import Collector, Connection, collecting
from bench.gpu_day.machine import REPOSITORY
from bench.gpu_day.stand_ins import VARIABLE
from bench.gpu_day.step import Day

Durations = dict[str, list[float]]
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "ARGUS_", "CUDA_INJECTION64_PATH")


def base_environment(day: Day) -> dict[str, str]:
    """Nothing of a launcher or of ARGUS; in a dry run the stand-ins."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    if day.stand_ins is not None:
        before = kept.get("LD_LIBRARY_PATH")
        paths = [str(day.stand_ins), *([before] if before else [])]
        kept |= {
            VARIABLE: str(day.stand_ins),
            "LD_LIBRARY_PATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
        }
    return kept


def attached(day: Day, socket: Path, rank: int | None = 0, **more: str) -> dict[str, str]:
    """The environment of a rank below `argus-exporter run`; without `rank` that of a plain script.

    Args:
        more: variables beside those; one that is empty is not set at all, whatever it would be else.
    """
    base = base_environment(day)
    if rank is not None:
        base |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    made = child_environment(base | more, socket, "gpu-day")
    made |= {"ARGUS_STACKS": "off", "ARGUS_DEBUG": "1"} | more
    made = {name: value for name, value in made.items() if value or name not in more}
    if day.dry:  # its programs may be over before the first flush of a second's period
        made["ARGUS_FLUSH_MILLISECONDS"] = "20"
    # `python -m bench...` of a program that changes its folder, and of its children.
    made["PYTHONPATH"] = os.pathsep.join((made["PYTHONPATH"], str(REPOSITORY)))
    return made


def start(environment: Mapping[str, str], *command: str, stdin: bool = False) -> subprocess.Popen[str]:
    """`stdin`: it may be told to go on."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=REPOSITORY,
        env=dict(environment),
        stdin=subprocess.PIPE if stdin else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str], begins: str) -> str:
    """The next line that begins so; empty: the process ended without. NCCL writes to stdout too."""
    assert process.stdout is not None
    return next((line for line in process.stdout if line.startswith(begins)), "")


def free_port() -> int:
    """Of 127.0.0.1, a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
    return number


def trained(environment: Mapping[str, str], *command: str) -> str:
    """Run a training to its end: what it wrote to stdout.

    Raises:
        RuntimeError: it failed.
    """
    status, out, said = finish(start(environment, *command))
    if status != 0:
        raise RuntimeError(f"the training ended with status {status}: {said.strip()[-300:]}")
    return out


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr; stderr is shown. The step's own limit ends what hangs."""
    out, said = process.communicate()
    print(said, end="", flush=True)
    return process.returncode, out, said


@dataclass(frozen=True)
class Observed:
    """One run of `program`: its own words, and what came over the wire."""

    told: dict[str, Any]
    collector: Collector

    @property
    def connection(self) -> Connection:
        """The one that the kernels came over.

        Raises:
            RuntimeError: there is none, or there are several.
        """
        with_kernels = self.collector.with_kernels()
        if len(with_kernels) != 1:
            reasons = [one.reasons(wire.Channel.KERNELS) for one in self.collector.connections]
            raise RuntimeError(
                f"kernels came over {len(with_kernels)} connections, not 1; reasons: {reasons}"
            )
        return with_kernels[0]

    def kernels(self, part: str) -> KernelArray:
        """The records that start within a part, in the order of their starts."""
        begin, end = self.told["stretches"][part]
        kernels = self.connection.kernels
        chosen = kernels[(kernels["start_ns"] >= begin) & (kernels["start_ns"] <= end)]
        ordered: KernelArray = chosen[np.argsort(chosen["start_ns"], kind="stable")]
        return ordered

    def durations_us(self, part: str) -> Durations:
        """Of each kernel, by name."""
        durations: Durations = defaultdict(list)
        names = self.connection.names
        for row in self.kernels(part):
            durations[names[int(row["name_id"])]].append(int(row["duration_ns"]) / 1e3)
        return durations

    def dropped(self) -> int:
        """Records lost anywhere, by the injector's own count."""
        statistics = self.told["statistics"]
        return sum(int(statistics[f"dropped_{where}"]) for where in ("socket", "cupti", "buffers", "invalid"))


def run_program(day: Day, *parts: str, **more: str) -> Observed:
    """Run parts of `program` to their end.

    Raises:
        RuntimeError: it ended with another status than 0.
    """
    folder = day.work / f"run{len(day.reached)}"
    folder.mkdir(exist_ok=True)
    with collecting(folder) as collector:
        environment = attached(day, collector.path, 0, **more)
        status, out, said = finish(start(environment, "-m", "bench.gpu_day.program", *parts))
        if status != 0:
            last = said.strip().splitlines()[-1:] or ["nothing on stderr"]
            raise RuntimeError(f"the program ended with status {status}: {last[0]}")
        collector.wait_ended()
    if collector.failures:
        raise RuntimeError(f"packets that are none of the wire's: {collector.failures[:3]}")
    day.reach(f"program ran {' '.join(parts)}")
    return Observed(json.loads(out.strip().splitlines()[-1]), collector)


def compared(ours: Durations, profiler: Durations, *, repeats: int = 1) -> dict[str, Any]:
    """Counts and median durations beside torch.profiler's of the same work, done `repeats` times by us.

    The ratio of counts is the smaller over the larger, summed over kernels by name: one that only
    one side has counts against it.
    """
    theirs = {wire.encode_name(name).decode(): durations for name, durations in profiler.items()}
    mine = Counter({name: len(durations) for name, durations in ours.items()})
    wanted = Counter({name: repeats * len(durations) for name, durations in theirs.items()})
    both, either = sum((mine & wanted).values()), sum((mine | wanted).values())
    common = [name for name in theirs if name in ours]
    ratios = [median(ours[name]) / median(theirs[name]) for name in common if median(theirs[name]) > 0]
    return {
        "kernels": sum(mine.values()),
        "kernels_profiler": sum(wanted.values()),
        "count_ratio": both / either if either else None,
        "names_different": sorted(set(mine) ^ set(wanted))[:20],
        "p50_off": abs(median(ratios) - 1) if ratios else None,
        "p50_off_worst": max(abs(ratio - 1) for ratio in ratios) if ratios else None,
    }
