"""What the worker says about itself on its own /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from argus_core import catalogue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _gauge(family: catalogue.Family, registry: CollectorRegistry) -> Gauge:
    return Gauge(family.name, family.help, family.labels, registry=registry)


def _counter(family: catalogue.Family, registry: CollectorRegistry) -> Counter:
    return Counter(family.name, family.help, family.labels, registry=registry)


class Telemetry:
    """Counters of one worker, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cycles = _counter(catalogue.WORKER_CYCLES, self.registry)
        self.cycle_seconds = _gauge(catalogue.WORKER_CYCLE_SECONDS, self.registry)
        self.last_success = _gauge(catalogue.WORKER_LAST_SUCCESS, self.registry)
        self.queries = _counter(catalogue.WORKER_QUERIES, self.registry)
        self.samples = _counter(catalogue.WORKER_SAMPLES, self.registry)
        self.spool_dropped = _counter(catalogue.WORKER_SPOOL_DROPPED, self.registry)
        self.spooled_requests = _gauge(catalogue.WORKER_SPOOLED_REQUESTS, self.registry)
        self.spooled_bytes = _gauge(catalogue.WORKER_SPOOLED_BYTES, self.registry)
        self.trace_requests = _counter(catalogue.WORKER_TRACE_REQUESTS, self.registry)
        self.anomalies = _gauge(catalogue.WORKER_ANOMALIES, self.registry)
        self.kernels_left_out = _gauge(catalogue.WORKER_KERNELS_LEFT_OUT, self.registry)
        self.reload_successful = _gauge(catalogue.WORKER_RELOAD, self.registry)
        self.reload_successful.set(1.0)
        for result in ("success", "failure"):  # so that rate() sees the first event
            self.cycles.labels(result)
            self.queries.labels(result)
            self.trace_requests.labels(result)
        for result in ("written", "refused", "unwritten", "postponed"):
            self.samples.labels(result)

    def exposition(self) -> bytes:
        """The /metrics page, classic text format."""
        return generate_latest(self.registry)
