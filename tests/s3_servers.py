"""Real S3 servers for tests: moto in a process of its own, which checks signatures, and a faulty network."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
from botocore.config import Config

from argus_core.store import StoreConfig
from argus_simulator.stack.ports import free_port

BUCKET = "argus-test"
ADMIN_POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
_BOOTSTRAP_ACTIONS = 3
"""Requests that moto takes before it begins to check signatures: user, key, policy."""


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server on port {port} did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


@dataclass
class S3Server:
    """Where a server is and how to get in."""

    port: int
    access_key: str
    secret_key: str
    bucket: str
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def credentials(self, folder: Path, *, secret_key: str | None = None) -> Path:
        """A credentials file for it."""
        file = folder / "credentials"
        file.write_text(
            f"[default]\naws_access_key_id = {self.access_key}\n"
            f"aws_secret_access_key = {secret_key or self.secret_key}\n"
        )
        return file

    def client(self):
        return _client("s3", self.endpoint, self.access_key, self.secret_key)

    def kill(self) -> None:
        """SIGKILL: connections break in the middle of whatever they do."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)


def start_moto(folder: Path, *, port: int | None = None, check_signatures: bool = True) -> S3Server:
    """A moto server with one user and one bucket; state lives in its memory.

    Checks the signatures of headers; it knows no signed links, so those need one that checks nothing.
    """
    port = port or free_port()
    actions = str(_BOOTSTRAP_ACTIONS) if check_signatures else "inf"
    log = folder / f"moto-{port}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=stream,
            stderr=stream,
            env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": actions},
        )
    try:
        wait_for_port(port, process, log)
        iam = _client("iam", f"http://127.0.0.1:{port}", "bootstrap", "bootstrap")
        iam.create_user(UserName="argus")
        iam.put_user_policy(UserName="argus", PolicyName="all", PolicyDocument=ADMIN_POLICY)
        key = iam.create_access_key(UserName="argus")["AccessKey"]
        server = S3Server(port, key["AccessKeyId"], key["SecretAccessKey"], BUCKET, process)
        server.client().create_bucket(Bucket=BUCKET)
    except BaseException:
        process.kill()
        process.wait(timeout=30)
        raise
    return server


@contextlib.contextmanager
def moto_server(*, check_signatures: bool = True) -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(prefix="argus-moto-") as folder:
        server = start_moto(Path(folder), check_signatures=check_signatures)
        try:
            yield server
        finally:
            server.kill()


def s3_config(server: S3Server, credentials: Path, **changes) -> StoreConfig:
    settings = {
        "type": "s3",
        "bucket": server.bucket,
        "prefix": "traces/",
        "endpoint": server.endpoint,
        "addressing": "path",
        "credentials_file": credentials,
        "part_bytes": 5 * 1024 * 1024,
    }
    return StoreConfig(**(settings | changes))


def _client(service: str, endpoint: str, access_key: str, secret_key: str):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@dataclass
class FaultyNetwork:
    """A TCP proxy before a server: each fault can be switched at any time."""

    target: int
    cut_after: int | None = None
    """Break a connection once this many bytes have gone to the server."""
    cut_limit: int = 10**9
    """How many connections to break."""
    refuse: int = 0
    """Answer this many requests with 503 before the server sees any."""
    bytes_per_second: float | None = None
    silent: bool = False
    """Take requests and never answer."""
    port: int = 0
    cuts: int = 0
    refused: int = 0
    forwarded: int = 0
    _listener: socket.socket = field(init=False)
    _open: set[socket.socket] = field(default_factory=set)

    def __enter__(self) -> FaultyNetwork:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in list(self._open):
            _hang_up(connection)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.refuse > 0:
                self._storm(client)
            elif self.silent:
                while client.recv(65536):
                    pass
            else:
                self._forward(client)
        self._open.discard(client)
        _hang_up(client)

    def _storm(self, client: socket.socket) -> None:
        self.refuse -= 1
        self.refused += 1
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: *(\d+)", head)
        left = int(found[1]) - len(body) if found else 0
        if re.search(rb"(?i)expect: *100-continue", head):
            left = 0  # refused before the body is sent
        while left > 0:
            left -= len(client.recv(65536))
        answer = b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
        client.sendall(
            b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)
        )

    def _cuts_at(self, sent: int) -> bool:
        return self.cut_after is not None and sent > self.cut_after and self.cuts < self.cut_limit

    def _forward(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            sent = 0
            while data := client.recv(16384):
                if self.bytes_per_second is not None:
                    time.sleep(len(data) / self.bytes_per_second)
                if self._cuts_at(sent + len(data)):
                    self.cuts += 1
                    _hang_up(client)
                    return
                server.sendall(data)
                sent += len(data)
                self.forwarded += len(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
