"""Bytes at each stage, on the real traces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.traces


@pytest.mark.slow
def test_volumes_of_the_real_traces(traces: Path):
    """Within ARGUS table 4, and the compression is what the stages say."""
    command = [sys.executable, "-m", "bench.volume", "--json", "--traces", str(traces)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["kernel_bytes_per_rank_step"] <= 2_700
    assert result["kernel_bytes_per_rank_step"] <= result["metric_bytes_per_rank_step"] <= 18_700
    for stage in ("raw_json", "kernel_record"):
        compression = result["compression_raw_json" if stage == "raw_json" else "compression_kernel_records"]
        assert compression == pytest.approx(
            result[f"{stage}_bytes"] / result["kernel_bytes_per_rank_step"], rel=0.01
        )


def test_without_traces_the_folder_is_named(tmp_path: Path):
    """A message, and exit status 2."""
    command = [sys.executable, "-m", "bench.volume", "--traces", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, str(tmp_path) in done.stderr) == (2, True)
