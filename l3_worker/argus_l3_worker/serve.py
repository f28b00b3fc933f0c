"""Run cycles on the grid and serve /metrics and /healthz until told to stop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import aiohttp
from aiohttp import web

from argus_core.http_access import Access
from argus_core.log import Log
from argus_core.settings import SettingsError, changed_keys
from argus_core.store.base import StoreError
from argus_core.store.config import open_store
from argus_l3_worker import PROGRAM
from argus_l3_worker.config import Config
from argus_l3_worker.cycle import CycleReport, Worker
from argus_l3_worker.errors import ArgusWorkerError, ConfigError
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.reload import reloaded
from argus_l3_worker.start_page import start_page
from argus_l3_worker.telemetry import CONTENT_TYPE, Telemetry
from argus_l3_worker.traces.requests import TraceRequests
from argus_l3_worker.traces.serving import add_routes
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool

log = Log(__name__)

# Cycles that may pass without a finished attempt before /healthz says that the loop hangs.
_MISSED_CYCLES = 5
_LEAST_PATIENCE_SECONDS = 120.0
# Of the 30 s that Kubernetes gives a process to end, for the cycle that runs.
_GRACE_SECONDS = 10.0


class Health:
    """Whether the loop turns. A Prometheus that is down is no reason to restart the worker."""

    def __init__(self, config: Config, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_turn = self._last_write = monotonic()
        self._unwritten: str | None = None
        self.expect(config)

    def expect(self, config: Config) -> None:
        """How long a turn may take."""
        self._patience = max(_MISSED_CYCLES * config.cycle_seconds, _LEAST_PATIENCE_SECONDS)

    def turned(self, unwritten: str | None) -> None:
        """A cycle ended, well or badly; `unwritten`: why its results are not written, None if they are."""
        self._last_turn = self._monotonic()
        self._unwritten = unwritten
        if unwritten is None:
            self._last_write = self._last_turn

    def problem(self) -> str | None:
        """What is wrong, None if nothing is."""
        silent = self._monotonic() - self._last_turn
        return f"no cycle has ended for {silent:.0f} s" if silent > self._patience else None

    def remark(self) -> str | None:
        """What is wrong that a restart would not mend, and would lose what waits in memory."""
        silent = self._monotonic() - self._last_write
        late = self._unwritten is not None and silent > self._patience
        return f"nothing was written for {silent:.0f} s: {self._unwritten}" if late else None


class Announcer:
    """Logs verdicts and abstentions when they begin and end, not at every cycle between."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], dict[str, object]] = {}

    def announce(self, report: CycleReport) -> None:
        """Log what is new in `report` and what is no longer in it."""
        now: dict[tuple[str, ...], dict[str, object]] = {}
        for verdict in report.verdicts:
            key = (verdict.training_job, verdict.rank, verdict.kernel, verdict.stream, verdict.cause)
            shown = {name: value for name, value in vars(verdict).items() if name != "shift"}
            now["anomaly", *key] = {**shown, "shift_ratio": math.expm1(verdict.shift)}
        for abstention in report.abstentions:
            now["abstention", abstention.training_job, abstention.role, abstention.reason] = vars(abstention)
        for kind, *subject in now.keys() - self._known.keys():
            log.warning("anomaly" if kind == "anomaly" else "role not judged", **now[kind, *subject])
        for kind, *subject in self._known.keys() - now.keys():
            log.info(f"{kind} ended", subject=" ".join(subject))
        self._known = now


async def once(config: Config, at: float, telemetry: Telemetry, write: bool) -> CycleReport:
    """One cycle at Unix time `at`; undelivered results are not kept."""
    async with aiohttp.ClientSession() as session:
        delivery = delivery_of(session, config, telemetry) if write else None
        prometheus = Prometheus(session, config.prometheus, telemetry)
        return await Worker(prometheus, delivery, config, telemetry).cycle(at, at)


async def serve(
    config: Config,
    telemetry: Telemetry,
    stop: asyncio.Event,
    reload: asyncio.Event | None = None,
    read: Callable[[], Config] | None = None,
) -> None:
    """Cycle until `stop` is set.

    Args:
        reload: set to have the configuration read anew, by `read`, before the next cycle.

    Raises:
        ConfigError: the address is taken or the spool folder cannot be used.
    """
    health = Health(config)
    spool = Spool(config.write.spool_dir, config.write.spool_bytes, _age_ms(config))
    try:
        runner = await _listen(config, telemetry, health)
        try:
            async with aiohttp.ClientSession() as session:
                delivery = delivery_of(session, config, telemetry, spool)
                traces = TraceRequests(session, config.traces.request, telemetry)
                worker = Worker(
                    Prometheus(session, config.prometheus, telemetry),
                    delivery,
                    config,
                    telemetry,
                    traces=traces if config.traces.request.enabled else None,
                )
                log.info(
                    "worker started",
                    prometheus=config.prometheus.url,
                    remote_write=config.write_url,
                    cycle_seconds=config.cycle_seconds,
                    settle_seconds=config.settle_seconds,
                    spool=config.write.spool_dir or "memory",
                    spooled_requests=len(spool),
                )

                def reconfigured(running: Config) -> Config:
                    if reload is None or read is None or not reload.is_set():
                        return running
                    reload.clear()
                    new = _read_anew(running, read, telemetry)
                    if new is not running:
                        asked = Prometheus(session, new.prometheus, telemetry)
                        worker.reconfigure(asked, delivery_of(session, new, telemetry, spool), new)
                    return new

                await _turn(worker, config, health, stop, reconfigured)
        finally:
            await runner.cleanup()
    finally:
        spool.close()


def _read_anew(running: Config, read: Callable[[], Config], telemetry: Telemetry) -> Config:
    try:
        new, ignored = reloaded(running, read())
    except (ArgusWorkerError, SettingsError) as error:
        telemetry.reload_successful.set(0.0)
        log.error("configuration refused, the old one goes on", error=error)
        return running
    telemetry.reload_successful.set(1.0)
    changed = ", ".join(changed_keys(running, new)) or "nothing"
    log.info("configuration reloaded", changed=changed)
    if ignored:
        log.warning("settings that need a restart keep their value", keys=", ".join(ignored))
    return new


async def _turn(
    worker: Worker,
    config: Config,
    health: Health,
    stop: asyncio.Event,
    reconfigured: Callable[[Config], Config],
) -> None:
    announcer = Announcer()
    stopped = asyncio.ensure_future(stop.wait())
    while not stop.is_set():
        stamp = next_tick(time.time(), config.cycle_seconds)
        await asyncio.wait({stopped}, timeout=max(stamp - time.time(), 0.0))
        if stop.is_set():
            break
        config = reconfigured(config)
        health.expect(config)
        cycle = asyncio.ensure_future(_cycle(worker, config, stamp, announcer))
        await asyncio.wait({cycle, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not cycle.done():
            await asyncio.wait({cycle}, timeout=_GRACE_SECONDS)
        if not cycle.done():
            cycle.cancel()
            await asyncio.wait({cycle})
            log.warning("cycle given up, what it found is not written")
            break
        health.turned(await cycle)
    log.info("worker stopped")


async def _cycle(worker: Worker, config: Config, stamp: float, announcer: Announcer) -> str | None:
    """Why the cycle's results were not written; None if they were."""
    try:
        budget = config.budget_ratio * config.cycle_seconds
        report = await worker.cycle(stamp, stamp - config.settle_seconds, budget)
    except ArgusWorkerError as error:
        log.error("cycle failed", error=error)
        return await _failed(worker, stamp, str(error))
    except Exception:
        # The worker watches many jobs: one surprise must not end the watch over all of them.
        log.exception("cycle failed unexpectedly, please report this")
        return await _failed(worker, stamp, "the cycle failed unexpectedly, see the log")
    announcer.announce(report)
    log.info(
        "cycle done",
        seconds=report.seconds,
        windows=report.windows_judged,
        roles=len(report.judgements),
        abstentions=len(report.abstentions),
        ranks_not_judged=len(report.not_judged),
        anomalies=len(report.verdicts),
        modes_left_out=sum(one.modes for one in report.left_out),
        delivered=report.delivered,
    )
    return report.problem or None


async def _failed(worker: Worker, stamp: float, why: str) -> str:
    try:
        await worker.report_failure(stamp)
    except Exception:
        log.exception("a failed cycle could not be reported, please report this")
    return why


def next_tick(now: float, cycle: float) -> float:
    """The first grid time after `now`; ticks missed by a long cycle are skipped."""
    return (math.floor(now / cycle) + 1) * cycle


async def _listen(config: Config, telemetry: Telemetry, health: Health) -> web.AppRunner:
    async def metrics(_: web.Request) -> web.Response:
        response = web.Response(body=telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()  # where the scraper accepts it
        return response

    async def healthz(_: web.Request) -> web.Response:
        problem = health.problem()
        return web.Response(text=problem or health.remark() or "ok", status=503 if problem else 200)

    async def start(_: web.Request) -> web.Response:
        remark = health.problem() or health.remark() or "ok"
        page = start_page(telemetry, remark, traces=config.traces.serve)
        return web.Response(text=page, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", start)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    if config.traces.serve:
        try:
            add_routes(app.router, open_store(config.traces.store), config.traces)
        except StoreError as error:
            raise ConfigError(f"traces cannot be served: {error}; or set traces.serve to false") from error
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, config.web.host, config.web.port).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"cannot listen on {config.web.listen_address} ({error.strerror}), so /metrics would be missing: "
            "stop what uses the port, or choose another with --web.listen-address (port 0 takes a free one)"
        ) from error
    host, port = runner.addresses[0][:2]
    log.info("listening", url=f"http://{host}:{port}")
    return runner


def delivery_of(
    session: aiohttp.ClientSession, config: Config, telemetry: Telemetry, spool: Spool | None = None
) -> Delivery:
    """The way to the receiver that the configuration names; without a spool what waits is kept in memory."""
    if spool is None:
        spool = Spool(None, config.write.spool_bytes, _age_ms(config))
    access = Access(*config.write_access, PROGRAM)
    return Delivery(session, config.write_url, config.write, spool, telemetry, access=access)


def _age_ms(config: Config) -> int:
    return int(config.write.spool_age_seconds * 1000)
