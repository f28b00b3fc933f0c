"""A webhook receiver that writes down what Alertmanager delivers, by URL path."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_BODY_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Notification:
    """One alert of one delivery."""

    path: str
    """URL path it was delivered to: which team, and how loud."""
    received: float
    """Unix time of the delivery."""
    status: str
    """`firing` or `resolved`."""
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    """Unix time since which the alert fires."""
    ends_at: float | None = None
    """Unix time at which it ended; None while it fires."""

    @property
    def alert(self) -> str:
        return self.labels.get("alertname", "")


class WebhookReceiver:
    """Listens on a port of its own from construction to `stop`."""

    def __init__(self) -> None:
        self._received: list[Notification] = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if length > _BODY_LIMIT:
                    self.send_error(413)
                    return
                try:
                    receiver.take(self.path, json.loads(self.rfile.read(length)))
                except (ValueError, KeyError, TypeError) as error:
                    self.send_error(400, f"not an Alertmanager notification: {error}")
                    return
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: deliveries are what we keep, not what we print."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path: str, payload: dict[str, Any]) -> None:
        """Record one delivery (Alertmanager's webhook format, version 4)."""
        now = time.time()
        notifications = [
            Notification(
                path=path,
                received=now,
                status=alert["status"],
                labels=dict(alert["labels"]),
                annotations=dict(alert["annotations"]),
                starts_at=datetime.fromisoformat(alert["startsAt"]).timestamp(),
                ends_at=datetime.fromisoformat(alert["endsAt"]).timestamp()
                if alert["status"] == "resolved"
                else None,
            )
            for alert in payload["alerts"]
        ]
        with self._lock:
            self._received.extend(notifications)

    def notifications(self) -> list[Notification]:
        """Everything delivered so far, in order of delivery."""
        with self._lock:
            return list(self._received)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
