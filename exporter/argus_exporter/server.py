"""The exporter process: intake, pipeline and HTTP server on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import signal
import socket as socket_module
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_core.link import default_socket_path
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.settings import SettingsError, changed_keys
from argus_core.version import installed_version
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.hangs.flight_dumps import FlightDumps
from argus_exporter.hangs.ras_watch import RasWatch
from argus_exporter.intake import process
from argus_exporter.intake.intake import KEPT_WARNING, Intake
from argus_exporter.intake.listener import SocketTaken
from argus_exporter.intake.unattached import UnattachedProcesses
from argus_exporter.place.topology_file import load_topology
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.publish.collectors.base import FamilyBuilder
from argus_exporter.publish.discovery import discoverable
from argus_exporter.publish.exposition import Exposition
from argus_exporter.publish.index_page import index_page
from argus_exporter.publish.iteration_writer import LOST_OF_NO_RANK, IterationWriter
from argus_exporter.publish.trace_metrics import trace_metrics
from argus_exporter.publish.web_config import WebAccess
from argus_exporter.publish.web_listener import listeners
from argus_exporter.py_spy.supervisor import StackSupervisor
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.window_publisher import WindowPublisher
from argus_exporter.traces.reader import NOTHING_LIVE, LiveStreams
from argus_exporter.traces.requests import request_handler
from argus_exporter.traces.service import LiveRank, TraceService, running_traces

log = Log(__name__)

_KEPT = (
    "web.",
    "socket.path",
    "discovery.",
    "traces.enabled",
    "traces.folder",
    "traces.outbox_bytes",
    "traces.ring.",
    "traces.store.",
)
"""Settings that stay as they were at the start."""
_IDLE_S = 10.0
"""How long a connection may take until its next request has come whole, from its start or the last answer."""
_ACCEPTS_A_TURN = 64
"""Connections that the event loop accepts before it looks at those that it has."""


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


@dataclass
class Reloads:
    """What became of the last change of configuration."""

    successful: bool = True


@dataclass(frozen=True)
class RunningExporter:
    """A started exporter: where producers connect and where it serves."""

    socket: Path
    url: str
    ranks: RankRegistry
    reloads: Reloads
    intake: Intake
    stacks: StackSupervisor
    ras: RasWatch
    iterations: IterationWriter
    traces: TraceService | None
    access: WebAccess

    def reconfigure(self, config: ExporterConfig) -> None:
        """Take a new configuration where it can be taken; addresses, socket and discovery file stay.

        Raises:
            SettingsError, ArgusExporterError: a file that it names is wrong; the old configuration goes on.
        """
        topology = load_topology(config.topology.file)
        self.access.renew()
        self.iterations.reconfigure(config.remote_write)
        self.intake.reconfigure(config.socket)
        self.ranks.reconfigure(config, topology)
        self.stacks.reconfigure(config.stacks)
        self.ras.reconfigure(config.ras)
        if self.traces is not None:
            self.traces.reconfigure(config.traces, config.routing)


@contextlib.asynccontextmanager
async def running_exporter(config: ExporterConfig) -> AsyncIterator[RunningExporter]:
    """Start intake and HTTP server, and stop both at the end.

    Raises:
        ArgusExporterError: the port is taken, or the socket cannot be had.
        SettingsError: a file that the configuration names is wrong.
    """
    ranks = RankRegistry(config, topology=load_topology(config.topology.file))
    path = config.socket.path or default_socket_path()
    async with (
        running_traces(config.traces, config.routing, path, lambda: _live_ranks(ranks)) as traces,
        _running_exporter(config, ranks, path, traces) as exporter,
    ):
        yield exporter


def _live_ranks(ranks: RankRegistry) -> list[LiveRank]:
    return [
        LiveRank(
            state.identity.key,
            state.iterations.last.step if state.iterations is not None else None,
            LiveStreams(state.kernels.window.streams, state.kernels.window.dimensions, state.kernels.members)
            if state.kernels.window is not None
            else NOTHING_LIVE,
        )
        for state in ranks
    ]


@contextlib.asynccontextmanager
async def _running_exporter(
    config: ExporterConfig, ranks: RankRegistry, path: Path, traces: TraceService | None
) -> AsyncIterator[RunningExporter]:
    reloads = Reloads()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="argus-modes") as executor:
        failures = Failures(log)
        iterations = IterationWriter(config.remote_write, failures)
        ranks.step_sinks.append(iterations.take)
        ras = RasWatch(ranks, config.ras, failures)
        ranks.step_sinks.append(ras.stepped)
        windows = WindowPublisher(ranks, executor, failures)
        ring = traces.ring if traces is not None else None
        intake = Intake(path, config.socket, ranks, failures, ring)
        try:
            await intake.start()
        except SocketTaken as error:
            raise ArgusExporterError(str(error)) from error
        except OSError as error:
            raise ArgusExporterError(
                f"cannot listen on socket {path}: {error.strerror or error}; name another with --socket"
            ) from error
        unattached = UnattachedProcesses(lambda: {state.peer_pid or 0 for state in ranks}, failures)
        stacks = StackSupervisor(ranks, config.stacks, path)
        dumps = FlightDumps(ranks, traces, failures) if traces is not None else None
        if traces is not None:
            stacks.sinks.append(traces.ring.stacks)
        try:
            windows.start()
            iterations.start()
            stacks.start()
            ras.start()
            if dumps is not None:
                dumps.start()
            unattached.start()
            access = WebAccess(config.web.config_file)
            application = _application(
                ranks, intake, unattached, iterations, failures, access, reloads, traces
            )
            site = await _start_http(config.web.listen_address, application, access.context)
            everywhere = parse_listen_address(config.web.listen_address)[0] in (None, "0.0.0.0", "::")
            try:
                with discoverable(config.discovery, site.url, everywhere=everywhere):
                    yield RunningExporter(
                        path, site.url, ranks, reloads, intake, stacks, ras, iterations, traces, access
                    )
            finally:
                await site.runner.cleanup()
        finally:
            await unattached.stop()
            if dumps is not None:
                await dumps.stop()
            await ras.stop()
            await stacks.stop()
            await intake.stop()
            await windows.stop()
            await iterations.stop()


@dataclass(frozen=True)
class _Site:
    runner: web.AppRunner
    url: str


async def _start_http(
    listen_address: str, application: web.Application, context: ssl.SSLContext | None
) -> _Site:
    host, port = parse_listen_address(listen_address)
    runner = web.AppRunner(
        application,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=2,
        keepalive_timeout=_IDLE_S,
        lingering_time=_IDLE_S,
    )
    await runner.setup()
    try:
        for listener in await listeners(host, port):
            await web.SockSite(runner, listener, ssl_context=context, backlog=_ACCEPTS_A_TURN).start()
    except (OSError, socket_module.gaierror) as error:
        await runner.cleanup()
        raise ArgusExporterError(
            f"cannot listen on {listen_address}: {error.strerror or error}; "
            "name another with --web.listen-address HOST:PORT (port 0 takes any free one)"
        ) from error
    # With port 0 IPv4, whose addresses have two parts, and IPv6 have ports of their own: one is told.
    bound_host, bound_port = min(runner.addresses, key=len)[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound_host, bound_host)
    scheme = "https" if context is not None else "http"
    return _Site(runner, f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{bound_port}")


def _application(
    ranks: RankRegistry,
    intake: Intake,
    unattached: UnattachedProcesses,
    iterations: IterationWriter,
    failures: Failures,
    access: WebAccess,
    reloads: Reloads,
    traces: TraceService | None,
) -> web.Application:
    of_process = CollectorRegistry()
    ProcessCollector(registry=of_process)
    PlatformCollector(registry=of_process)
    GCCollector(registry=of_process)
    exposition = Exposition()

    def own() -> Iterator[Metric]:
        connections = FamilyBuilder(catalogue.EXPORTER_CONNECTIONS)
        connections.add({}, intake.connections)
        yield connections.metric
        rejected = FamilyBuilder(catalogue.EXPORTER_REJECTED)
        for reason, count in sorted(intake.rejected.items()):
            rejected.add({"reason": reason}, count)
        yield rejected.metric
        failed = FamilyBuilder(catalogue.EXPORTER_FAILURES)
        for loop in ("connections", "dumps", "processes", "ras", "remote_write", "windows"):
            failed.add({"loop": loop}, failures.counts[loop])
        yield failed.metric
        lost = FamilyBuilder(catalogue.EXPORTER_REMOTE_WRITE_LOST)
        for reason in LOST_OF_NO_RANK:
            lost.add({"reason": reason}, iterations.lost[reason])
        yield lost.metric
        if unattached.count is not None:
            missed = FamilyBuilder(catalogue.EXPORTER_UNATTACHED)
            missed.add({}, unattached.count)
            yield missed.metric
        reload = FamilyBuilder(catalogue.EXPORTER_RELOAD)
        reload.add({}, 1 if reloads.successful else 0)
        yield reload.metric
        build = FamilyBuilder(catalogue.EXPORTER_BUILD_INFO)
        build.add({"version": installed_version()}, 1)
        yield build.metric
        if traces is not None:
            yield from trace_metrics(traces)
        yield from of_process.collect()

    async def metrics(request: web.Request) -> web.Response:
        wanted = request.query.get("rank")
        if wanted is not None and not re.fullmatch("[0-9]{1,10}", wanted):
            raise web.HTTPBadRequest(
                text=f"rank is {wanted[:40]!r}; allowed: a whole number, as in /metrics?rank=3\n"
            )
        rank = int(wanted) if wanted is not None else None
        try:
            encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # of a version that is no number
            encoder, content_type = choose_encoder("")
        runner = CollectorRunner(ALL_COLLECTORS, ranks, rank=rank, own=own if rank is None else None)
        body = exposition.render(runner.collect(), encoder, (content_type, rank))
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        if intake.listening:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="no producer can connect\n")

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=index_page(ranks, str(intake.path)), content_type="text/html")

    application = web.Application(middlewares=[access.middleware])
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", healthy)
    application.router.add_get("/readyz", ready)
    application.router.add_get("/", index)
    application.router.add_post("/traces/request", request_handler(traces))
    return application


async def serve(config: ExporterConfig, read_config: Callable[[], ExporterConfig]) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the configuration again and keeps the old one if it is wrong.

    Addresses, the socket's place, the discovery file, and the ring, outbox and store of traces keep what they
    were started with, which is said.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    process.prepare()
    async with running_exporter(config) as exporter:

        def reload() -> None:
            try:
                wanted = read_config()
                exporter.reconfigure(wanted)
            except (SettingsError, ArgusExporterError) as error:
                exporter.reloads.successful = False
                log.error("configuration refused, the old one goes on", error=error)
            else:
                exporter.reloads.successful = True
                log.info("configuration reloaded")
                kept = [key for key in changed_keys(config, wanted) if key.startswith(_KEPT)]
                if kept:
                    log.warning(KEPT_WARNING, keys=", ".join(kept))

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, reload)
        process.settle()
        log.info("serving metrics", url=f"{exporter.url}/metrics")
        await stop.wait()
        log.info("stopping")
