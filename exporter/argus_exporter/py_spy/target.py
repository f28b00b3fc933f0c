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
    owners: frozenset[int]
    """The users it may run as: one that became another's (exec of a setuid program) is not ours to see."""

    def is_alive(self, proc: Path = Path("/proc")) -> bool:
        """Whether it is still the same process of the same user."""
        try:
            return _started(proc, self.pid) == self.started and _uids(_status(proc, self.pid)) <= self.owners
        except (OSError, ValueError, IndexError, KeyError):
            return False


def process_of(peer_pid: int, said_pid: int, owners: frozenset[int], proc: Path = Path("/proc")) -> Process:
    """The process of a connection.

    Args:
        peer_pid: from SO_PEERCRED; 0 where the peer is invisible from our pid namespace.
        said_pid: from HELLO, in the peer's own namespace.
        owners: users that the process may run as: the peer's, by SO_PEERCRED.

    Raises:
        NotTraceable: invisible, gone, another user's by now, or HELLO speaks of another process.
    """
    if peer_pid <= 0:
        raise NotTraceable(
            "other_pid_namespace",
            "the rank runs in a pid namespace that this exporter cannot see: share it (shareProcessNamespace "
            "or hostPID in Kubernetes)",
        )
    try:
        started = _started(proc, peer_pid)
        status = _status(proc, peer_pid)
        known_as = {peer_pid, *(int(word) for word in status.get("NSpid", "").split())}  # Linux 4.1
        uids = _uids(status)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise NotTraceable("target_gone", f"process {peer_pid} cannot be looked at: {error!r}") from error
    if said_pid not in known_as:
        raise NotTraceable(
            "pid_mismatch",
            f"HELLO says pid {said_pid}, but process {peer_pid} is at the other end of the socket",
        )
    if not uids <= owners:
        raise NotTraceable(
            "owner_mismatch",
            f"process {peer_pid} runs as uid {sorted(uids)}, but {sorted(owners)} connected its socket",
        )
    return Process(peer_pid, started, owners)


def is_self(pid: int) -> bool:
    """Whether that is this process: an exporter within a test or a demo never samples itself."""
    return pid == os.getpid()


def _started(proc: Path, pid: int) -> int:
    """Field 22 of /proc/PID/stat; the name before it may hold blanks and parentheses."""
    fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[19])


def _status(proc: Path, pid: int) -> dict[str, str]:
    """/proc/PID/status by key."""
    lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _uids(status: dict[str, str]) -> set[int]:
    """Real, effective, saved and file system user."""
    return {int(word) for word in status["Uid"].split()}
