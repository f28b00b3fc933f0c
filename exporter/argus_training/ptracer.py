"""Lets the exporter's py-spy read this process where Yama forbids it (`kernel.yama.ptrace_scope` 1).

Yama then lets a process be read by its ancestors only, or by whom it names itself. `exporter` names the
process that listens on our socket, and so its children, provided that it runs as us or as root; `any` names
everybody of our user, for an exporter in a pid namespace that we cannot see. Only on request: what a process
lets others read is for its user to say. Where there is no Yama the call is refused and nothing is lost.

Source: Linux Documentation/admin-guide/LSM/Yama.rst, prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket as sockets
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

PR_SET_PTRACER: Final = 0x59616D61
PR_SET_PTRACER_ANY: Final = ctypes.c_ulong(-1).value


def prctl(option: int, argument: int) -> int:
    """prctl(2); 0 or -1."""
    return int(
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), *(ctypes.c_ulong(0) for _ in range(3)))
    )


class Ptracer:
    """Grants the exporter leave to look, again whenever another exporter has taken the socket.

    Args:
        mode: `off`, `exporter` or `any`.
        socket: the exporter's socket.
        call: prctl, or what stands in for it in a test.
    """

    def __init__(self, mode: str, socket: Path, call: Callable[[int, int], int] = prctl) -> None:
        self._mode = mode
        self._socket = socket
        self._call = call
        self._granted: tuple[int, int] | None = None

    def renew(self) -> None:
        """Cheap where nothing has changed. Never raises."""
        if self._mode == "off":
            return
        with contextlib.suppress(OSError, AttributeError):
            found = self._socket.stat()
            seen = found.st_ino, found.st_ctime_ns
            if seen == self._granted:
                return
            tracer = PR_SET_PTRACER_ANY if self._mode == "any" else listener(self._socket)
            if tracer:
                self._call(PR_SET_PTRACER, tracer)
            self._granted = seen


def listener(path: Path) -> int:
    """The process that listens on a socket, in our pid namespace; 0 where invisible or a stranger's.

    Raises:
        OSError: nobody listens.
    """
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET | sockets.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)  # a full backlog must not hold us up
        probe.connect(str(path))
        pid, uid, _ = struct.unpack("3i", probe.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12))
    return int(pid) if uid in (0, os.getuid()) else 0
