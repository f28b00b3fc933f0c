"""Listening sockets of the HTTP server that hold a bounded number of connections, with or without TLS.

Neither asyncio nor aiohttp bounds them: whoever holds idle ones would take every descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Final

_CONNECTIONS_LIMIT: Final = 64
"""Held at a time. Scrapers, workers and people are a handful; each asks and is answered within a second."""


class WebListener(socket.socket):
    """Beyond the limit the oldest connection ends, so that who asks gets in whatever others hold."""

    def __init__(self, bound: int, held: list[socket.socket]) -> None:
        super().__init__(fileno=bound)
        self._held = held

    def listen(self, _: int = 0) -> None:
        """Let as many wait as the system allows: asyncio's backlog is how many it accepts in one turn."""
        super().listen(socket.SOMAXCONN)

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._held[:] = [other for other in self._held if other.fileno() >= 0]
        if len(self._held) >= _CONNECTIONS_LIMIT:
            with contextlib.suppress(OSError):  # the other end was faster
                self._held.pop(0).shutdown(socket.SHUT_RDWR)  # its transport sees the end and closes
        self._held.append(connection)
        return connection, address


async def listeners(host: str | None, port: int) -> list[WebListener]:
    """Bound sockets for each address of the host; None: of all interfaces. They share one limit.

    Raises:
        OSError: an address cannot be had.
    """
    bound = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    held: list[socket.socket] = []
    try:
        return [WebListener(address.dup().detach(), held) for address in bound.sockets]
    finally:
        bound.close()
