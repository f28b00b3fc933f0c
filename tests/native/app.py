"""Runs the training program of native/injector/testing and reads its report."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from native.builds import Build
from native.listener import Connection, Listener


@dataclass(frozen=True)
class Run:
    """One finished run: its report, its stderr."""

    report: dict[str, Any]
    said: str

    def __getitem__(self, key: str) -> Any:
        return self.report[key]

    @property
    def dropped(self) -> int:
        """Records that were dropped, wherever."""
        return sum(self.report[f"dropped_{where}"] for where in ("socket", "cupti", "buffers", "invalid"))


def command_environment(build: Build, socket: Path, **variables: str | int) -> dict[str, str]:
    """Rank 0 of a job of two, as torchrun sets it."""
    defaults = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "ARGUS_SOCKET": str(socket),
        "ARGUS_FLUSH_MILLISECONDS": "50",
        "ARGUS_ISSUE_LATENCY": "0",  # or the clock decides what comes
    }
    chosen = {name: str(value) for name, value in variables.items() if value != ""}
    removed = {name for name, value in variables.items() if value == ""}
    return {k: v for k, v in (build.environment() | defaults | chosen).items() if k not in removed}


def start(build: Build, socket: Path, *actions: str, **variables: str | int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(build.app), *actions],
        env=command_environment(build, socket, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 60.0) -> Run:
    try:
        out, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, f"status {process.returncode}\n{said}"
    return Run(json.loads(out.strip().splitlines()[-1]), said)


def run(build: Build, socket: Path, *actions: str, **variables: str | int) -> Run:
    """Run to the end. An empty value takes a variable away."""
    return finish(start(build, socket, *actions, **variables))


def heard(build: Build, listener: Listener, *actions: str, **variables: str | int) -> tuple[Run, Connection]:
    """Run to the end: its report, and what came over its one connection."""
    done = run(build, listener.path, *actions, **variables)
    (connection,) = listener.wait_ended()
    return done, connection
