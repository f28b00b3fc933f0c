"""What each exporter says of itself, and what Prometheus notes of its scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition

_ALONE: Final = (Row(),)
_COLLECTORS: Final = (
    "rank",
    "iteration",
    "phase",
    "layer",
    "kernel",
    "anatomy",
    "live",
    "channel",
    "activity",
    "garbage",
    "compilation",
    "issue_latency",
    "void",
    "stack",
    "ras",
    "nccl",
    "stopped",
    "work",
)


def exporters(fleet: Exposition) -> Iterator[Block]:
    """What each exporter says of itself, and what Prometheus would note of its scrape."""
    hosts = np.ones(fleet.layout.hosts)
    local = np.bincount(fleet.layout.host, minlength=fleet.layout.hosts).astype(float)

    def of_host(name: str, type_: str, values: Callable[[], Floats], *rows: Row) -> Block:
        return Block(name, name, type_, fleet.hosts, rows or _ALONE, values)

    states = [
        Row({"collector": collector, "state": state})
        for collector in _COLLECTORS
        for state in ("ok", "no_data", "error")
    ]
    ok = np.array([[float(row.same["state"] == "ok")] for row in states])
    collectors = [Row({"collector": collector}) for collector in _COLLECTORS]
    yield of_host(catalogue.EXPORTER_COLLECTOR_STATE.name, "gauge", lambda: ok * hosts, *states)
    yield of_host(
        catalogue.EXPORTER_COLLECTOR_SECONDS.name,
        "gauge",
        lambda: np.full((len(collectors), fleet.layout.hosts), 0.0004),
        *collectors,
    )
    yield of_host(catalogue.EXPORTER_CONNECTIONS.name, "gauge", lambda: 2 * local)
    yield of_host(
        catalogue.EXPORTER_REJECTED.name, "counter", lambda: 0 * hosts, Row({"reason": "bad_magic"})
    )
    loops = [Row({"loop": loop}) for loop in ("connections", "processes", "ras", "windows")]
    yield of_host(
        catalogue.EXPORTER_FAILURES.name,
        "counter",
        lambda: np.zeros((len(loops), fleet.layout.hosts)),
        *loops,
    )
    yield of_host(catalogue.EXPORTER_UNATTACHED.name, "gauge", lambda: 0 * hosts)
    yield of_host(catalogue.EXPORTER_RELOAD.name, "gauge", lambda: hosts)
    yield of_host(catalogue.EXPORTER_BUILD_INFO.name, "gauge", lambda: hosts, Row({"version": "fleet"}))
    yield of_host(catalogue.TRACE_RING_BYTES.name, "gauge", lambda: 1e9 * hosts)
    yield of_host(catalogue.TRACE_RING_OLDEST.name, "gauge", lambda: (fleet.began + fleet.now - 1800) * hosts)
    yield of_host("process_cpu_seconds_total", "counter", lambda: 0.008 * fleet.now * hosts)
    yield of_host("process_resident_memory_bytes", "gauge", lambda: 170e6 * hosts)
    yield of_host("up", "gauge", lambda: hosts)
    yield of_host("scrape_duration_seconds", "gauge", lambda: 0.012 * hosts)
    yield of_host("scrape_samples_scraped", "gauge", lambda: fleet.samples_a_rank * local)
