"""On a GPU: two ranks of NCCL on it, with the plugin; one hangs, and what RAS says. Skips without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
OF_THE_PROCESSOR = {"step_ns_p99"}
"""`python -m bench.nccl` measures it, on a quiet machine."""


def missed(result: dict[str, Any]) -> set[str]:
    """Gates of a step of the GPU day that it missed, by its own file."""
    return {name for name, (_, _, met) in result["gates"].items() if not met} - OF_THE_PROCESSOR


@pytest.mark.parametrize("step", ["nccl", "ras"])
def test_two_ranks_on_one_gpu_keep_the_gates_that_are_of_nccl(step: str, tmp_path: Path) -> None:
    """Each operation is counted, each launch is within its bracket; RAS names the rank that stays away.

    How long a callback takes is of the processor, and missed on the one host that was seen (docs/gpu-day.md).
    """
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    command = [sys.executable, "-m", "bench.gpu_day", step, "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = tmp_path / f"{step}.json"
    assert told.exists(), done.stdout + done.stderr
    result = json.loads(told.read_text())
    assert result["measured"], result["why"]
    assert missed(result) == set()
