"""A real Prometheus of one's own, for benches and tests that write to it and ask it."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argus_core import remote_write

_READY_SECONDS = 30.0


def free_port() -> int:
    """A port that nothing listens on now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PrometheusServer:
    """One Prometheus with the remote write receiver on, storing under `folder`.

    Attributes:
        arguments: further flags, such as `--web.config.file=...`.
        rules: files of rules, patterns allowed.
        context, headers: how to reach it where it serves TLS or asks for a password.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    receiver: bool = True
    arguments: Sequence[str] = ()
    rules: Sequence[Path] = ()
    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://127.0.0.1:{self.port}"

    def start(self) -> PrometheusServer:
        """Start and wait until it is ready."""
        config = self.folder / "prometheus.yml"
        content = {"global": {"scrape_interval": "1h"}, "rule_files": [str(path) for path in self.rules]}
        config.write_text(json.dumps(content))  # which is YAML
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    *(["--web.enable-remote-write-receiver"] if self.receiver else []),
                    *self.arguments,
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            with contextlib.suppress(OSError), self._open(urllib.request.Request(f"{self.url}/-/ready"), 1):
                return self
            time.sleep(0.05)
        raise AssertionError(f"Prometheus is not ready after {_READY_SECONDS} s")

    def stop(self) -> None:
        """Stop this process, by its id, and wait for it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def write(self, series: Sequence[bytes]) -> None:
        """Store encoded series."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/write", data=remote_write.pack(series), headers=dict(remote_write.HEADERS)
        )
        with self._open(request, 20):
            pass

    def query(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        """(labels without the name, value) of an instant query."""
        arguments = urllib.parse.urlencode({"query": query, "time": at})
        request = urllib.request.Request(f"{self.url}/api/v1/query?{arguments}")
        with self._open(request, 20) as answer:
            result: Any = json.load(answer)["data"]["result"]
        return [
            ({k: v for k, v in element["metric"].items() if k != "__name__"}, float(element["value"][1]))
            for element in result
        ]

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        for name, value in self.headers.items():
            request.add_header(name, value)
        return urllib.request.urlopen(request, timeout=timeout, context=self.context)
