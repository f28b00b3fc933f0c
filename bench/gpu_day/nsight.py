"""Beside Nsight Systems, which uses CUPTI too: nothing is harmed, and our importer reads what it exports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any, Final

from argus_core import wire
from argus_exporter.replay.nsys import read_nsys
from bench.gpu_day.collector import collecting
from bench.gpu_day.observe import attached, run_program
from bench.gpu_day.program import LAYERS, STEPS
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day

_EXPECTED: Final = STEPS * LAYERS
"""A forward has a kernel a layer at least."""


def run(day: Day) -> dict[str, Any]:
    tool = shutil.which("nsys")
    if tool is None:
        if day.dry:
            # As far as it goes: the program that Nsight would watch.
            day.reach(f"without Nsight: {len(run_program(day, 'before').kernels('before'))} kernels")
        raise NotRun("nsys is not installed (package nsight-systems-cli of NVIDIA)")
    report, exported = day.work / "step.nsys-rep", day.fixtures / "step.sqlite"
    with collecting(day.work) as collector:
        watch = [tool, "profile", "--trace=cuda,nvtx", "--sample=none", f"--output={report}"]
        program = [sys.executable, "-m", "bench.gpu_day.program", "before"]
        watched = subprocess.run([*watch, *program], env=attached(day, collector.path, 0), check=False)
        collector.wait_ended()
    exporting = [
        tool,
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        f"--output={exported}",
        str(report),
    ]
    subprocess.run(exporting, check=True)
    day.reach(f"kept {exported.name}, {exported.stat().st_size} bytes")
    (recording,) = read_nsys(exported, job="gpu-day", first_rank=0, advance=lambda *_: None)
    reasons = [reason for one in collector.connections for reason in one.reasons(wire.Channel.KERNELS)]
    ours = sum(len(one.kernels) for one in collector.connections)
    return {
        "status": watched.returncode,
        "kernels_of_nsight": len(recording.kernels),
        "kernels": ours,
        "reasons": reasons,
        # Either CUPTI serves both, or ours stands aside and says why.
        "silent": int(ours < _EXPECTED and not any(reasons)),
    }
