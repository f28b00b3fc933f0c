"""One window of py-spy: what to run, and what its answer means.

Verified against py-spy 0.4.3. `record` cannot stream, so each window is a process of its own; `--nonblocking`
never stops the rank, at the price of a few torn samples, which py-spy counts as errors.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_exporter.py_spy.child import Finished, run_child
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.target import Process
from argus_exporter.stacks.folded import Folded, parse

MISSING: Final = "py_spy_missing"
PERMISSION: Final = "permission"
_GRACE_S: Final = 20.0
"""Beyond the window: py-spy reads the symbols of the target's libraries at its start, from a cold disk."""
_OUTPUT_LIMIT: Final = 8 << 20
_SUMMARY = re.compile(r"Samples: (\d+) Errors: (\d+)")


class Refused(Exception):
    """py-spy did not sample. `reason` is one of a few words, fit for a label."""

    def __init__(self, reason: str, detail: str, cpu_seconds: float = 0.0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.cpu_seconds = cpu_seconds


@dataclass(frozen=True)
class Window:
    """The stacks of one window. Times are Unix nanoseconds."""

    begin_ns: int
    end_ns: int
    folded: Folded
    samples: int
    errors: int
    """Samples that py-spy could not read: the process went on while it looked."""
    unread: int
    cpu_seconds: float
    """CPU time of py-spy and of reading its output."""


def find_executable(named: Path | None) -> Path:
    """The py-spy to run.

    Raises:
        Refused: there is none.
    """
    beside = Path(sys.executable).with_name("py-spy")
    on_path = shutil.which("py-spy")
    candidates = [named] if named is not None else [beside, *([Path(on_path)] if on_path else [])]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    where = f"{named}" if named is not None else f"{beside} or PATH"
    raise Refused(MISSING, f"no py-spy at {where}: install argus-for-prometheus[stacks]")


def command(
    executable: Path, process: Process, config: StacksConfig, hertz: int, output_fd: int
) -> list[str]:
    """The words of one window."""
    words = [str(executable), "record", "--pid", str(process.pid), "--format", "raw", "--threads"]
    words += ["--duration", str(config.window_seconds), "--rate", str(hertz)]
    words += ["--output", f"/proc/self/fd/{output_fd}"]
    # Never --native: C frames can only be unwound while the process stands still. Nor --idle: threads that
    # wait outnumber those that work, and would take their place among the frames published.
    return [*words, "--nonblocking"]


async def sample(process: Process, config: StacksConfig, hertz: int) -> Window:
    """Sample a process for one window. Cancelled: py-spy is killed.

    Raises:
        Refused: py-spy is missing, may not look, or failed.
    """
    executable = find_executable(config.executable)
    begin_ns = time.time_ns()
    try:
        finished = await run_child(
            lambda fd: command(executable, process, config, hertz, fd),
            limit_s=config.window_seconds + _GRACE_S,
            output_limit=_OUTPUT_LIMIT,
        )
    except OSError as error:
        raise Refused("failed", f"cannot run {executable}: {error.strerror or error}") from error
    end_ns = time.time_ns()
    if finished.status != 0 or finished.cut:
        raise _refusal(finished, process)
    return await asyncio.to_thread(_read, finished, begin_ns, end_ns)


def _read(finished: Finished, begin_ns: int, end_ns: int) -> Window:
    """In a thread, so that a scrape need not wait for it.

    Raises:
        Refused: py-spy looked and could read nothing.
    """
    began = time.thread_time()
    parsed = parse(finished.output.decode("utf-8", "replace"))
    summary = _SUMMARY.search(finished.text)
    errors = int(summary[2]) if summary else 0
    cpu_seconds = finished.cpu_seconds + time.thread_time() - began
    if errors and not parsed.samples:
        raise Refused("unreadable", f"py-spy read none of {errors} samples", cpu_seconds)
    return Window(begin_ns, end_ns, parsed.folded, parsed.samples, errors, parsed.unread, cpu_seconds)


def _refusal(finished: Finished, process: Process) -> Refused:
    """Why a window failed, from py-spy's words."""
    said = finished.text.lower()
    lines = [line for line in finished.text.splitlines() if line.strip() and not line.startswith("py-spy>")]
    detail = lines[0][:300] if lines else f"it ended with status {finished.status}"
    if finished.cut:
        reason, detail = finished.cut, f"py-spy was ended after {finished.cut.replace('_', ' ')}"
    elif not process.is_alive():
        reason = "target_gone"
    elif "permission denied" in said or "not permitted" in said:
        reason = PERMISSION
    elif "python version" in said:
        reason = "not_python"
    else:
        reason = "failed"
    return Refused(reason, detail, finished.cpu_seconds)
