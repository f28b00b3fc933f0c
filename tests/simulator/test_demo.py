"""The demo, end to end: real exporter, Prometheus, Alertmanager and L3 worker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from argus_simulator.demo.plan import plan

COMMAND = str(Path(sys.executable).parent / "argus-simulator")
LIMIT_S = 170


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "demo", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.e2e
@pytest.mark.parametrize("seed", [2])
def test_the_demo_finds_exactly_the_slow_rank(seed: int):
    """A slow loader reaches the right team, and nobody else is accused; `make verify` plays 16 seeds."""
    done = demo("--seed", str(seed))
    last = json.loads(done.stdout.splitlines()[-1])
    truth = plan(seed).truth
    expected = truth.expected
    assert last["expected"] == {
        "alert": expected.alert,
        "rank": expected.rank,
        "cause": expected.cause,
        "team": expected.team,
    }
    assert last["found"] == [last["expected"]], done.stdout
    assert last["ok"] is True
    assert done.returncode == 0
    assert f"Found: rank {expected.rank} is slow in phase {truth.phase}" in done.stdout
    given = re.search(r"^evidence: (\d+) of (\d+) numbers", done.stdout, re.M)
    assert given and given[1] == given[2] and int(given[2]) > 8, done.stdout


@pytest.mark.e2e
@pytest.mark.long_form
@pytest.mark.torch
def test_the_demo_finds_a_slow_rank_of_real_training():
    """PyTorch DDP on four processes; with --json the story goes to stderr."""
    pytest.importorskip("torch")
    done = demo("--training", "torch", "--json")
    (line,) = done.stdout.splitlines()
    last = json.loads(line)
    assert last["ok"] is True, done.stderr
    assert last["found"] == [
        {"alert": "ArgusStragglerRank", "rank": "2", "cause": "gpu-compute", "team": "operations"}
    ]
    assert done.returncode == 0
