"""Whoever holds connections keeps neither the scraper out nor the ranks: times, numbers, descriptors."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from argus_exporter import server
from argus_exporter.intake import process
from argus_exporter.publish import web_listener
from argus_exporter.traces import requests
from argus_exporter.traces.config import TracesConfig
from exporter.commands.test_serve import Serving
from exporter.exporter_process import Rank, config, exporter, get, scrape, value, wait_for
from exporter.publish.test_web_config import certificate, fetch, secured

IDLE = 400


@contextlib.contextmanager
def connections(url: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    at = urlsplit(url)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((at.hostname, at.port), timeout=10))
            for _ in range(count)
        ]


def ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_half_a_request_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its headers or, of a request for traces, its body; also where a whole request came before."""
    assert server._IDLE_S <= 10
    assert requests._BODY_S <= 10
    monkeypatch.setattr(server, "_IDLE_S", 0.2)
    monkeypatch.setattr(requests, "_BODY_S", 0.2)
    configuration = dataclasses.replace(
        config(tmp_path / "exporter.sock"), traces=TracesConfig(enabled=True, folder=tmp_path / "traces")
    )
    half = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    with exporter(configuration) as running, connections(running.url, 4) as (nothing, head, second, body):
        head.send(half)
        second.send(half + b"\r\n")
        assert b"200 OK" in second.recv(1000)
        second.send(half)
        body.send(b"POST /traces/request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b"408 Request Timeout" in body.recv(1000)
        for connection in (nothing, head, second, body):
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass


def test_idle_connections_keep_no_scraper_out(tmp_path: Path):
    """Of four hundred some are held, the newest; a scraper gets in, and the ranks do."""
    with (
        exporter(config(tmp_path / "exporter.sock")) as running,
        connections(running.url, IDLE) as idle,
    ):
        rank = Rank(running.socket, 0)
        rank.iterate()
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")
        limit = web_listener._CONNECTIONS_LIMIT
        wait_for(lambda: sum(map(ended, idle)) >= IDLE - limit, "the oldest are ended")
        assert not ended(idle[-1])


def test_unfinished_handshakes_keep_no_scraper_out(tmp_path: Path):
    """A connection counts from its first packet, not from the end of its TLS handshake."""
    certificate(tmp_path, "server", trustme.CA())
    text = "tls_server_config: {cert_file: server.pem, key_file: server.key}"
    with exporter(secured(tmp_path, text)) as running, connections(running.url, IDLE) as idle:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        assert fetch(running.url, trusted) == 200
        limit = web_listener._CONNECTIONS_LIMIT
        wait_for(lambda: sum(map(ended, idle)) >= IDLE - limit, "the oldest are ended")


def test_descriptors_are_kept_back_for_each_other(tmp_path: Path):
    """Silent producers and idle scrapers, both up to their limits, on 320 open files: both sides go on."""
    running = Serving(tmp_path, files=320)
    silent: list[socket.socket] = []
    try:
        with connections(running.url, IDLE):
            rank = Rank(running.socket, 0)
            rank.iterate()
            for _ in range(IDLE):
                silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                silent[-1].connect(str(running.socket))
            rejected = "argus_exporter_rejected_connections_total"
            wait_for(
                lambda: (value(scrape(running.url), rejected, reason="files_limit") or 0) > 0, "refusals"
            )
            rank.iterate()
            last = "argus_iteration_last_step"
            wait_for(lambda: value(scrape(running.url), last, rank="0") == 2, "rank 0 goes on")
            assert get(f"{running.url}/healthz")[1] == b"ok\n"
        assert "out of system resource" not in running.log.read_text()
        assert (value(scrape(running.url), "process_open_fds") or 0) < 320 - 64
    finally:
        for connection in silent:
            connection.close()
        running.process.kill()
        running.process.wait()


def test_files_are_counted_against_the_limit_that_is_there(monkeypatch: pytest.MonkeyPatch):
    """A system without a limit has no last descriptor."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert process.files_for_ranks() > 1 << 20
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert 512 <= process.files_for_ranks() < 1024
