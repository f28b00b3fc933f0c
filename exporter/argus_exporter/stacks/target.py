"""Which process to sample for a rank: the one at the other end of its socket, and no other.

HELLO names a pid, but anyone may write one: the kernel's word (SO_PEERCRED, the pid in our namespace) is what
is traced. HELLO's pid only has to agree with it, directly or as the same process seen from its own namespace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


class NotTraceable(Exception):
    """There is no process to sample. `reason` is one of a few words, fit for a label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Process:
    """One process, told from a later one with the same pid by when it started (clock ticks since boot)."""

    pid: int
    started: int

    def is_alive(self, proc: Path = Path("/proc")) -> bool:
        try:
            return _started(proc, self.pid) == self.started
        except (OSError, ValueError, IndexError):
            return False


def process_of(peer_pid: int, said_pid: int, proc: Path = Path("/proc")) -> Process:
    """The process of a connection.

    Args:
        peer_pid: from SO_PEERCRED; 0 where the peer is invisible from our pid namespace.
        said_pid: from HELLO, in the peer's own namespace.

    Raises:
        NotTraceable: invisible, gone, or HELLO speaks of another process.
    """
    if peer_pid <= 0:
        raise NotTraceable(
            "other_pid_namespace",
            "the rank runs in a pid namespace that this exporter cannot see: share it (shareProcessNamespace "
            "or hostPID in Kubernetes)",
        )
    try:
        started = _started(proc, peer_pid)
        known_as = {peer_pid, *_namespace_pids(proc, peer_pid)}
    except (OSError, ValueError, IndexError) as error:
        raise NotTraceable("target_gone", f"process {peer_pid} cannot be looked at: {error}") from error
    if said_pid not in known_as:
        raise NotTraceable(
            "pid_mismatch",
            f"HELLO says pid {said_pid}, but process {peer_pid} is at the other end of the socket",
        )
    return Process(peer_pid, started)


def is_self(pid: int) -> bool:
    """Whether that is this process: an exporter within a test or a demo never samples itself."""
    return pid == os.getpid()


def _started(proc: Path, pid: int) -> int:
    """Field 22 of /proc/PID/stat; the name before it may hold blanks and parentheses."""
    fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[19])


def _namespace_pids(proc: Path, pid: int) -> list[int]:
    """The process's pids in its namespaces, ours first (NSpid of /proc/PID/status, Linux 4.1)."""
    for line in (proc / str(pid) / "status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []
