"""A listener on the producers' socket that runs as another user: root tests only."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STRANGER = 4242
as_root = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
PLACES = [
    ((0, 0o1777), (STRANGER, 0o700), False),  # what anybody can make in /tmp
    ((STRANGER, 0o755), (STRANGER, 0o755), False),  # and a folder deeper
    ((0, 0o755), (STRANGER, 0o755), True),  # a service's: RuntimeDirectory of the systemd unit
    ((0, 0o755), (0, 0o755), True),  # root's folder of a host, seen from a user namespace
    ((0, 0o755), (STRANGER, 0o777), False),
    ((0, 0o755), (STRANGER, 0o775), False),
]
"""Owner and mode of the parent, which lies where anybody may write, and of the socket's folder; whether who
listens there is believed."""

_LISTEN = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    listener.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
    listener.listen(16)
    print("up", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def stranger_listening(base: Path, of_parent: tuple[int, int], of_folder: tuple[int, int]) -> Iterator[Path]:
    """The path of the socket, while a process of the user STRANGER listens on it."""
    parent = base / "parent"
    folder = parent / "argus"
    folder.mkdir(parents=True)
    base.chmod(0o1777)
    for place, (owner, mode) in ((folder, of_folder), (parent, of_parent)):
        os.chown(place, owner, owner)
        place.chmod(mode)
        assert stat.S_IMODE(place.stat().st_mode) == mode
    path = folder / "exporter.sock"
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTEN, str(path), str(STRANGER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield path
    finally:
        process.communicate(timeout=30)
