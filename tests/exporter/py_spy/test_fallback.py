"""A job that nobody may look at from outside: its ranks sample themselves, and nobody had to ask them to."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from argus_exporter.py_spy.config import StacksConfig
from argus_training import boot_directory

from ..exporter_process import config, exporter, scrape, value, wait_for
from .test_channel import frames, reason_of, script, up

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PATIENCE_S = 120.0

UNTIL_STOPPED = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(1000, 64), batch_size=100)
import pathlib
while not pathlib.Path(sys.argv[1]).exists():
    for x in loader:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
sys.exit(3)
"""


def test_a_refused_job_samples_itself_and_ends_as_it_would(tmp_path: Path) -> None:
    """Unmodified training under the boot folder; the channel stays down, with a reason that tells."""
    refusing = script(tmp_path / "py-spy", "echo 'Permission Denied: Try running again' >&2; exit 1")
    stop = tmp_path / "stop"
    settings = dataclasses.replace(
        config(tmp_path / "s"), stacks=StacksConfig(window_seconds=1, executable=refusing)
    )
    env = {
        **{name: text for name, text in os.environ.items() if not name.startswith("ARGUS_")},
        "PYTHONPATH": os.pathsep.join(filter(None, (str(boot_directory()), os.environ.get("PYTHONPATH")))),
        "ARGUS_SOCKET": str(tmp_path / "s"),
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
    }
    with exporter(settings) as running:
        job = subprocess.Popen([sys.executable, "-c", UNTIL_STOPPED, str(stop)], env=env)
        try:
            wait_for(lambda: reason_of(scrape(running.url)) == "permission", "refusal", PATIENCE_S)
            wait_for(
                lambda: sum(frames(scrape(running.url)).values()) >= 5, "samples from inside", PATIENCE_S
            )
            samples = scrape(running.url)
            assert up(samples) == 0.0
            assert reason_of(samples) == "permission_inprocess"
            assert all(thread == "MainThread" for thread, _ in frames(samples))
            cost = value(samples, "argus_producer_cpu_seconds_total", channel="stacks", rank="0")
            assert cost is not None
            assert cost > 0
            stop.touch()
            assert job.wait(PATIENCE_S) == 3
        finally:
            job.kill()
            job.wait()
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 0, "its end", PATIENCE_S)
    assert list(tmp_path.glob("s.stacks-refused-*")) == []
