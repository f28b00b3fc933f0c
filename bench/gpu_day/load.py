"""Whether CUDA loads the library and kernels come: under each way in which a training process is started.

What starts with RANK must be seen, and a plain script. Children of mp.spawn must not be harmed. Each
framework is a step of its own, which is not run where it is not installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, Final

from argus_core import wire
from bench.gpu_day.collector import collecting
from bench.gpu_day.observe import attached, finish, free_port, start
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day

_MODULE = "bench.gpu_day.starts"
_CASES: Final = (("rank", 0), ("plain", None), ("spawn", None))
"""Name of the start, and the RANK in its environment."""


def run(day: Day) -> dict[str, Any]:
    package = day.step.options.get("package")
    if package is not None and importlib.util.find_spec(package) is None:
        raise NotRun(f"{package} is not installed")
    cases: Sequence[tuple[str, int | None]] = [(package, 0)] if package else _CASES
    measured: dict[str, Any] = {}
    for name, rank in cases:
        measured |= _case(day, name, rank)
        day.reach(f"{name}: {measured[f'{name}_kernels']} kernels, status {measured[f'{name}_status']}")
    return measured


def _case(day: Day, name: str, rank: int | None) -> dict[str, Any]:
    folder = day.work / name
    folder.mkdir()
    # As torchrun has it: what finds a rank in its environment looks for where the ranks meet, too.
    # Lightning asks MPI where torchrun's own mark is missing, and MPI ends a process that it cannot serve.
    meet = {}
    if rank is not None:
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "gpu-day"}
        meet |= {"GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    with collecting(folder) as collector:
        status, _, said = finish(start(attached(day, collector.path, rank, **meet), "-m", _MODULE, name))
        collector.wait_ended()
    connections = collector.connections
    reasons = [reason for one in connections for reason in one.reasons(wire.Channel.KERNELS)]
    return {
        f"{name}_status": status,
        f"{name}_kernels": sum(len(one.kernels) for one in connections),
        f"{name}_ranks": sorted({one.hello.rank for one in connections}),
        f"{name}_ranks_with_kernels": sorted({one.hello.rank for one in connections if one.parts}),
        f"{name}_reasons": sorted({reason for reason in reasons if reason not in ("", "exit")}),
        f"{name}_injector_said": [
            line for line in said.splitlines() if "not observed" in line or "no kernels" in line
        ][:5],
    }
