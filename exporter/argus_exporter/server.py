"""The exporter process: intake, pipeline and HTTP server on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import html
import logging
import socket as socket_module
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_core.link import default_socket_path
from argus_exporter.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.collectors.base import FamilyBuilder
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.intake import Intake, SocketTaken
from argus_exporter.ranks import Ranks

log = logging.getLogger(__name__)


def installed_version() -> str:
    try:
        return version("argus-for-prometheus")
    except PackageNotFoundError:
        return "unknown"


def parse_listen_address(address: str) -> tuple[str | None, int]:
    """`HOST:PORT`, `:PORT` (all interfaces) or `[IPV6]:PORT`.

    Raises:
        ArgusExporterError: anything else.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ArgusExporterError(
            f"listen address {address!r} is not HOST:PORT or :PORT with a port of 0 to 65535"
        )
    return host.strip("[]") or None, int(port)


@dataclass(frozen=True)
class RunningExporter:
    """A started exporter: where producers connect and where it serves."""

    socket: Path
    url: str
    ranks: Ranks


@contextlib.asynccontextmanager
async def running_exporter(config: ExporterConfig) -> AsyncIterator[RunningExporter]:
    """Start intake and HTTP server, and stop both at the end.

    Raises:
        ArgusExporterError: the port is taken, or the socket cannot be had.
    """
    ranks = Ranks(config)
    path = config.socket.path or default_socket_path()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="argus-modes") as executor:
        intake = Intake(path, ranks, executor)
        try:
            await intake.start()
        except SocketTaken as error:
            raise ArgusExporterError(str(error)) from error
        except OSError as error:
            raise ArgusExporterError(
                f"cannot listen on socket {path}: {error.strerror or error}; name another with --socket"
            ) from error
        try:
            site = await _start_http(config.web.listen_address, _application(ranks, intake))
            try:
                yield RunningExporter(path, site.url, ranks)
            finally:
                await site.runner.cleanup()
        finally:
            await intake.stop()


@dataclass(frozen=True)
class _Site:
    runner: web.AppRunner
    url: str


async def _start_http(listen_address: str, application: web.Application) -> _Site:
    host, port = parse_listen_address(listen_address)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except (OSError, socket_module.gaierror) as error:
        await runner.cleanup()
        raise ArgusExporterError(
            f"cannot listen on {listen_address}: {error.strerror or error}; "
            "name another with --web.listen-address HOST:PORT (port 0 takes any free one)"
        ) from error
    bound_host, bound_port = runner.addresses[0][:2]
    shown = "127.0.0.1" if bound_host in ("0.0.0.0", "::") else bound_host
    url = f"http://[{shown}]:{bound_port}" if ":" in shown else f"http://{shown}:{bound_port}"
    return _Site(runner, url)


def _application(ranks: Ranks, intake: Intake) -> web.Application:
    process = CollectorRegistry()
    ProcessCollector(registry=process)
    PlatformCollector(registry=process)
    GCCollector(registry=process)

    def own() -> Iterator[Metric]:
        connections = FamilyBuilder(catalogue.EXPORTER_CONNECTIONS)
        connections.add({}, intake.connections)
        yield connections.metric
        rejected = FamilyBuilder(catalogue.EXPORTER_REJECTED)
        for reason, count in sorted(intake.rejected.items()):
            rejected.add({"reason": reason}, count)
        yield rejected.metric
        build = FamilyBuilder(catalogue.EXPORTER_BUILD_INFO)
        build.add({"version": installed_version()}, 1)
        yield build.metric
        yield from process.collect()

    async def metrics(request: web.Request) -> web.Response:
        wanted = request.query.get("rank")
        if wanted is not None and not wanted.isdecimal():
            raise web.HTTPBadRequest(
                text=f"rank is {wanted!r}; allowed: a whole number, as in /metrics?rank=3\n"
            )
        rank = int(wanted) if wanted is not None else None
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        runner = CollectorRunner(ALL_COLLECTORS, ranks, rank=rank, own=own if rank is None else None)
        body: bytes = encoder(runner)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=_index_page(ranks), content_type="text/html")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", healthy)
    application.router.add_get("/readyz", healthy)
    application.router.add_get("/", index)
    return application


def _index_page(ranks: Ranks) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(s.identity.training_job)}</td>"
        f'<td><a href="/metrics?rank={s.identity.rank}">{s.identity.rank}</a></td>'
        f"<td>{'connected' if s.connected else 'lost'}</td>"
        f"<td>{s.iterations.last.step if s.iterations else '-'}</td></tr>"
        for s in ranks
    )
    return (
        "<!doctype html><html lang=en><title>ARGUS exporter</title>"
        "<style>body{font:16px system-ui;margin:2rem}td,th{padding:.2rem 1rem;text-align:left}</style>"
        f"<h1>ARGUS exporter {html.escape(installed_version())}</h1>"
        '<p><a href="/metrics">/metrics</a> <a href="/healthz">/healthz</a> <a href="/readyz">/readyz</a></p>'
        f"<table><tr><th>training job<th>rank<th>state<th>last step</tr>{rows}</table></html>"
    )


async def serve(config: ExporterConfig, stop: asyncio.Event) -> None:
    """Run until `stop` is set."""
    async with running_exporter(config) as exporter:
        log.info("serving metrics url=%s/metrics", exporter.url)
        await stop.wait()
        log.info("stopping")
