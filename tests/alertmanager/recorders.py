"""Receivers that write down what Alertmanager delivers: HTTP for webhooks, Slack and PagerDuty, and SMTP."""

from __future__ import annotations

import email
import email.policy
import json
import socketserver
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Delivery:
    """One request."""

    path: str
    authorization: str
    body: dict[str, Any]


class HttpRecorder:
    """What was POSTed, in order of arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._deliveries: list[Delivery] = []
        self._lock = threading.Lock()

    def take(self, delivery: Delivery) -> None:
        with self._lock:
            self._deliveries.append(delivery)

    def deliveries(self, path: str = "", job: str = "") -> list[Delivery]:
        """Of one path, of one job (webhooks only)."""
        with self._lock:
            return [
                one
                for one in self._deliveries
                if path in ("", one.path) and job in ("", one.body.get("groupLabels", {}).get("training_job"))
            ]


@contextmanager
def http_recorder() -> Iterator[HttpRecorder]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            recorder.take(Delivery(self.path, self.headers.get("Authorization", ""), body))
            # As PagerDuty and Slack answer, which newer Alertmanagers read; a webhook may answer any 2xx.
            self.send_response(202 if "pagerduty" in self.path else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: deliveries are kept, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        recorder = HttpRecorder(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield recorder
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Mail:
    recipients: tuple[str, ...]
    login: tuple[str, str]
    message: EmailMessage

    def part(self, subtype: str) -> str:
        """The text/`subtype` of the message."""
        found = self.message.get_body((subtype,))
        assert found is not None, self.message.as_string()
        content: str = found.get_content()
        return content.replace("\r\n", "\n")


class SmtpRecorder:
    def __init__(self, port: int) -> None:
        self.port = port
        self._mails: list[Mail] = []
        self._lock = threading.Lock()

    def take(self, mail: Mail) -> None:
        with self._lock:
            self._mails.append(mail)

    def mails(self) -> list[Mail]:
        with self._lock:
            return list(self._mails)


@contextmanager
def smtp_recorder() -> Iterator[SmtpRecorder]:
    """As much of SMTP (RFC 5321, AUTH PLAIN of RFC 4616) as a client that sends mail needs."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            recipients: list[str] = []
            login = ("", "")
            self.wfile.write(b"220 recorder\r\n")
            for line in iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ""):
                verb = line.upper().split(" ")[0]
                if verb == "EHLO":
                    self.wfile.write(b"250-recorder\r\n250 AUTH PLAIN\r\n")
                elif verb == "AUTH":
                    _, user, password = b64decode(line.split(" ")[2]).decode().split("\0")
                    login = (user, password)
                    self.wfile.write(b"235 welcome\r\n")
                elif verb == "RCPT":
                    recipients.append(line.split("<")[1].split(">")[0])
                    self.wfile.write(b"250 ok\r\n")
                elif verb == "DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(iter(lambda: self.rfile.readline(), b".\r\n"))
                    message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                    recorder.take(Mail(tuple(recipients), login, message))
                    self.wfile.write(b"250 taken\r\n")
                elif verb == "QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        recorder = SmtpRecorder(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield recorder
        server.shutdown()
        thread.join()
