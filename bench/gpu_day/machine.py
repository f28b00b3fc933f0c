"""Which machine and which version of the source a result belongs to. Imports no torch here."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from bench.gpu_day.result import Machine

REPOSITORY = Path(__file__).resolve().parents[2]


def machine() -> Machine:
    said = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    gpu, _, driver = said.partition("\n")[0].partition(", ")
    if not gpu and Path("/dev/nvidiactl").exists():  # a container may have the driver without its tool
        gpu = _output(sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())")
    return Machine(gpu or None, driver or None, _cuda(), _version("torch"), _cpu())


def commit() -> str:
    """The commit, with a digest of what differs from it behind a plus; `unknown` outside of a checkout.

    GPU_DAY_COMMIT says it instead.
    Results and the pages made of them do not count as a difference.
    """
    given = os.environ.get("GPU_DAY_COMMIT")
    head = _output("git", "rev-parse", "--short=12", "HEAD")
    if given or not head:  # a copy of a checkout may have a history of its own
        return given or "unknown"
    changed = _output("git", "diff", "HEAD", "--", ".", ":!gpu-day", ":!docs")
    return f"{head}+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else head


def _output(*command: str) -> str:
    """What a program prints; empty where it is missing or fails."""
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda() -> str | None:
    """CUDA of the installed torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", text, re.M)
    return found.group(1) if found else None


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return f"{found.group(1) if found else platform.machine()}, {os.cpu_count()} cores"
