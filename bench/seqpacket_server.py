"""The listening end of the producers' socket: a thread for each peer, and an end as by kill -9."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

_JOIN_S = 5.0


class SeqpacketServer:
    """Listens from the start; `serve(peer)` runs on a thread of its own for each connection.

    Args:
        path: of the socket to make.
        serve: reads one connection until it ends.
    """

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        self.peers: list[socket.socket] = []
        self._serve = serve
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """As when an exporter dies: its end of every connection is closed."""
        for end in (self._listener, *self.peers):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.peers.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()
