"""Processes that are ranks by their environment, have torch loaded, and that ARGUS is not attached to.

What a producer says of itself at exit (argus_training/boot), seen from outside as well, while the job runs.
Nothing is asked of the processes: /proc has the environment that each was started with, and what it has
mapped. A producer that is attached has its shared page mapped from then on, whether it trains or not; the
page says so once it does, and where nothing of it comes here then, its socket leads elsewhere, or nowhere.

Not seen, and not counted: processes of other PID namespaces, those that we may not look at (another user's
without CAP_SYS_PTRACE), and those that wrote their title over their environment (setproctitle).

Source: proc_pid_environ(5), proc_pid_maps(5), proc_pid_stat(5); both of the first need what ptrace needs for
reading.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.background import BackgroundTask
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.shared_page import NAME as PAGE
from argus_core.shared_page import PageError, PageReader

log = Log(__name__)

RANK_VARIABLES: Final = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"SLURM_PROCID")
"""First match wins. As `argus_training.identity.LAUNCHERS`."""
_OFF: Final = (b"ARGUS_DISABLE", b"ARGUS_DISABLE_PHASES")
_TRUE: Final = (b"1", b"true", b"yes", b"on")
_PERIOD_S: Final = 60.0
"""A look takes 6 us for each process of a host (measured with 88): 0.03 % of a core where there are 3,000."""
_GRACE_S: Final = 300.0
"""Longer than the import of torch takes on a slow file system: till it ends torch is there and we are not."""
_MEMORY: Final = f"/memfd:{PAGE}"
"""What /proc calls a producer's shared page; a file of the user's may have such a name, too."""
_TRAINED: Final = 3
"""Iterations that have ended in a process that trains."""
_HOST_PID_NAMESPACE: Final = 0xEFFFFFFC
"""PROC_PID_INIT_INO of Linux: the namespace in which all processes of the host are seen."""


@dataclass(frozen=True)
class _Ranked:
    """A process whose environment holds a rank."""

    pid: int
    parent: int
    started: int
    """Clock ticks since boot: tells it from a later process of the same number."""
    rank: tuple[bytes, int]
    """By which variable, and which."""
    off: bool


@dataclass(frozen=True)
class Unattached:
    """A rank that is not observed."""

    pid: int
    started: int
    rank: int


class UnattachedProcesses:
    """Looks once a minute, on a thread.

    `count` is None where nothing can be told: no process with a rank is seen, nor every process of the host.

    Args:
        connected: pids at the other ends of our connections.
        failures: takes errors of ours.
        proc: the proc file system.
    """

    def __init__(
        self, connected: Callable[[], set[int]], failures: Failures, proc: Path = Path("/proc")
    ) -> None:
        self._connected = connected
        self._failures = failures
        self._proc = proc
        self._sees_host = _pid_namespace(proc) == _HOST_PID_NAMESPACE
        self._denied = False
        """At the last look: some process was not ours to look at."""
        self._said: set[Unattached] = set()
        self._attached: set[tuple[int, int]] = set()
        """(pid, started) of those that need no second look."""
        self._said_silent: set[Unattached] = set()
        self._task = BackgroundTask()
        self.count: int | None = None

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            with self._failures.contained("processes", "processes not looked at"):
                await asyncio.to_thread(self.look, self._connected())

    def look(self, connected: set[int]) -> None:
        """One look at all processes; says each that it finds once."""
        ranked = {process.pid: process for process in self._ranked()}
        found = set(self._unattached(ranked, connected))
        self.count = len(found) if ranked or (self._sees_host and not self._denied) else None
        for process in sorted(found - self._said, key=lambda each: each.rank):
            log.warning(
                "a process with a rank has loaded torch and ARGUS is not attached to it",
                pid=process.pid,
                rank=process.rank,
            )
        self._said = found
        silent = set(self._silent(ranked, connected))
        for process in sorted(silent - self._said_silent, key=lambda each: each.rank):
            log.warning(
                "a rank trains with ARGUS attached and does not report to this exporter: its ARGUS_SOCKET "
                "leads to another one, or nowhere",
                pid=process.pid,
                rank=process.rank,
            )
        self._said_silent = silent

    def _silent(self, ranked: dict[int, _Ranked], connected: set[int]) -> Iterator[Unattached]:
        """Those that are attached and train, and are not connected to us."""
        for pid, started in self._attached:
            if pid not in connected and pid in ranked and self._trains(pid):
                yield Unattached(pid, started, ranked[pid].rank[1])

    def _trains(self, pid: int) -> bool:
        """By the page that it shares with its exporter."""
        try:
            for entry in os.scandir(self._proc / str(pid) / "fd"):
                if os.readlink(entry.path).startswith(_MEMORY):  # noqa: PTH115  (of hundreds: no Path each)
                    # To open a FIFO would wait for its writer, and so would the whole look.
                    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
                    reader = PageReader(os.open(entry.path, flags))
                    try:
                        return reader.read().step > _TRAINED
                    finally:
                        reader.close()
        except (OSError, PageError):
            pass  # gone meanwhile, or of another release
        return False

    def _ranked(self) -> Iterator[_Ranked]:
        self._denied = False
        for entry in os.scandir(self._proc):
            if not entry.name.isdecimal():
                continue
            try:
                with open(f"{entry.path}/environ", "rb") as file:  # noqa: PTH123  (of thousands: no Path each)
                    environ = file.read()
                if b"RANK=" not in environ and b"SLURM_PROCID=" not in environ:
                    continue
                values = dict(item.partition(b"=")[::2] for item in environ.split(b"\0"))
                rank = _rank(values)
                if rank is not None:
                    fields = (self._proc / entry.name / "stat").read_bytes().rpartition(b")")[2].split()
                    off = any(values.get(name, b"").strip().lower() in _TRUE for name in _OFF)
                    yield _Ranked(int(entry.name), int(fields[1]), int(fields[19]), rank, off)
            except PermissionError:
                self._denied = True
            except (OSError, ValueError, IndexError):
                continue  # gone meanwhile

    def _unattached(self, ranked: dict[int, _Ranked], connected: set[int]) -> Iterator[Unattached]:
        """Of each rank's tree of processes the topmost that has torch loaded: below it are its workers.

        A launcher has processes of other ranks below it, and is none itself.
        """
        children: dict[int, list[_Ranked]] = {}
        for process in ranked.values():
            children.setdefault(process.parent, []).append(process)
        launchers = _launchers(ranked)
        oldest = self._uptime_ticks() - _GRACE_S * os.sysconf("SC_CLK_TCK")
        known, self._attached = self._attached, set()

        def descend(process: _Ranked) -> Iterator[Unattached]:
            key = process.pid, process.started
            attached = key in known or process.pid in connected
            if process.pid not in launchers and not attached:
                if process.started > oldest:
                    return  # young: what it started is younger
                mapped = self._maps(process.pid)
                attached = _MEMORY.encode() in mapped
                if not attached and b"/libtorch" in mapped:
                    if not process.off:
                        yield Unattached(process.pid, process.started, process.rank[1])
                    return
            if attached:
                self._attached.add(key)
                return
            for child in children.get(process.pid, ()):
                yield from descend(child)

        for process in ranked.values():
            if process.parent not in ranked:
                yield from descend(process)

    def _maps(self, pid: int) -> bytes:
        try:
            return (self._proc / str(pid) / "maps").read_bytes()
        except OSError:
            return b""

    def _uptime_ticks(self) -> float:
        seconds = float((self._proc / "uptime").read_text().split()[0])
        return seconds * os.sysconf("SC_CLK_TCK")


def _rank(values: dict[bytes, bytes]) -> tuple[bytes, int] | None:
    for name in RANK_VARIABLES:
        text = values.get(name, b"").strip()
        if text.isdigit() and len(text) < 10:
            return name, int(text)
    return None


def _launchers(ranked: dict[int, _Ranked]) -> set[int]:
    """Those that have a process of another rank below them."""
    found: set[int] = set()
    for process in ranked.values():
        above = ranked.get(process.parent)
        passed = {process.pid}
        while above is not None and above.pid not in passed:
            if above.rank != process.rank:
                found.add(above.pid)
            passed.add(above.pid)
            above = ranked.get(above.parent)
    return found


def _pid_namespace(proc: Path) -> int:
    """0: not known."""
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino
    except OSError:
        return 0
