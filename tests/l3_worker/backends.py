"""A made-up backend for answers that a real one gives in bad times only: partial, refused, redirected."""

from __future__ import annotations

import gzip
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Backend:
    """Speaks the query API (every vector empty) and takes remote write 1.0, until told otherwise.

    Range queries find nothing.

    Attributes:
        answer: (status, content) of a query, by its text.
        write_statuses: what remote write answers next; 204 once they are used up.
        requests: all but those in remote write 2.0, which it does not take.
        pages: (status, content) of what is no query, by path.
    """

    answer: Callable[[str], tuple[int, Any]] = lambda _: (200, vector())
    write_statuses: list[int] = field(default_factory=list)
    redirect_to: str = ""
    clock_offset: float = 0.0
    requests: list[Request] = field(default_factory=list)
    pages: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def __enter__(self) -> Backend:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.title(): value for name, value in self.headers.items()}
                if "write.v2" in headers.get("Content-Type", ""):
                    self._send(415, b"", {})
                    return
                backend.requests.append(Request(self.path, _AnyCase(headers), body))
                if backend.redirect_to:
                    self._send(302, b"", {"Location": backend.redirect_to})
                elif self.path.startswith("/api/v1/query"):
                    status, content = backend.answer(parse_qs(body.decode())["query"][0])
                    if self.path == "/api/v1/query_range":
                        content = {**content, "data": {"resultType": "matrix", "result": []}}
                    packed = gzip.compress(json.dumps(content).encode())
                    self._send(status, packed, {"Content-Encoding": "gzip"})
                else:
                    status = backend.write_statuses.pop(0) if backend.write_statuses else 204
                    self._send(status, b"", {})

            def do_GET(self) -> None:
                status, page = backend.pages.get(self.path, (404, {}))
                self._send(status, json.dumps(page).encode(), {})

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string((timestamp or time.time()) + backend.clock_offset)

            def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._folder = tempfile.TemporaryDirectory()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)


class _AnyCase(dict[str, str]):
    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.title())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).title())


def vector(*elements: Mapping[str, Any], **beside: Any) -> dict[str, Any]:
    """A successful answer to an instant query; `beside` are keys such as `warnings` and `isPartial`."""
    return {"status": "success", "data": {"resultType": "vector", "result": list(elements)}, **beside}
