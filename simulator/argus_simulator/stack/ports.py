"""TCP ports of 127.0.0.1 for servers that cannot be handed a listening socket."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from argus_simulator.stack.errors import StackError

_RANGE = range(20000, 32000)
"""Below Linux' ephemeral ports (32768 on): no outgoing connection takes a port between choice and use."""
_LISTEN = "0A"
_TRIES = 200


def free_port() -> int:
    """A port that nobody listens on now. Random, so that two stacks starting together rarely choose alike."""
    generator = random.SystemRandom()
    for _ in range(_TRIES):
        port = generator.choice(_RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise StackError(
        f"no free port in {_RANGE.start}-{_RANGE.stop - 1} after {_TRIES} tries; end what holds them"
    )


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the port: an answer alone could come from somebody else."""
    return bool(_listening_inodes(port) & _socket_inodes(pid))


def _listening_inodes(port: int) -> set[str]:
    inodes: set[str] = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    inodes: set[str] = set()
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
    except OSError:
        return set()  # the process has ended
    return inodes
