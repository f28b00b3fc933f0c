"""What each exporter says of itself, and what Prometheus notes of its scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from argus_core import catalogue
from argus_simulator.fast_play.history import COLLECTORS, Series
from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.rank_series import Sampled
from argus_simulator.fleet.series_blocks import Block, Row
from argus_simulator.topology import Topology


def exporters(
    series: Series, topology: Topology, training_job: str, base: Sequence[dict[str, str]], sampled: Sampled
) -> Iterator[Block]:
    """All in good health.

    Args:
        series: of the job that is played; what it says of the job as a whole is said by each host.
        base: labels of each host.
    """
    hosts = np.ones(len(base))
    local = np.bincount(np.arange(topology.ranks) // topology.ranks_per_host).astype(float)
    collectors = [Row({"collector": name}) for name in COLLECTORS]
    states = [Row({**row.same, "state": state}) for row in collectors for state in ("ok", "no_data", "error")]
    ok = np.array([[float(row.same["state"] == "ok")] for row in states]) * hosts
    loops = [Row({"loop": loop}) for loop in ("connections", "processes", "ras", "windows")]
    said = Row(
        {
            "training_job": training_job,
            "model": "dense-transformer",
            "backend": "simulated",
            "world_size": str(topology.ranks),
        }
    )
    began = sampled.first_ms / 1000

    def of_host(name: str, values: Callable[[], Floats], *rows: Row) -> Block:
        known = catalogue.BY_NAME.get(name)
        kind = known.type if known else "counter" if name.endswith("_total") else "gauge"
        return Block(name, name, kind, base, rows or (Row(),), values)

    yield of_host(catalogue.JOB_INFO.name, lambda: hosts, said)
    of_job = Row({"training_job": training_job})
    yield of_host(catalogue.JOB_WORLD_SIZE.name, lambda: topology.ranks * hosts, of_job)
    for family in (catalogue.JOB_LAST_ITERATION, catalogue.JOB_USUAL_ITERATION):
        yield of_host(family.name, _of_job(series, family.name, sampled, len(base)), of_job)
    yield of_host(catalogue.EXPORTER_COLLECTOR_STATE.name, lambda: ok, *states)
    seconds = np.full((len(collectors), len(base)), 0.0004)
    yield of_host(catalogue.EXPORTER_COLLECTOR_SECONDS.name, lambda: seconds, *collectors)
    yield of_host(catalogue.EXPORTER_CONNECTIONS.name, lambda: 2 * local)
    yield of_host(catalogue.EXPORTER_REJECTED.name, lambda: 0 * hosts, Row({"reason": "bad_magic"}))
    yield of_host(catalogue.EXPORTER_FAILURES.name, lambda: np.zeros((len(loops), len(base))), *loops)
    yield of_host(catalogue.EXPORTER_UNATTACHED.name, lambda: 0 * hosts)
    yield of_host(catalogue.EXPORTER_RELOAD.name, lambda: hosts)
    yield of_host(catalogue.EXPORTER_BUILD_INFO.name, lambda: hosts, Row({"version": "fleet"}))
    yield of_host(catalogue.TRACE_RING_BYTES.name, lambda: 1e9 * hosts)
    yield of_host(catalogue.TRACE_RING_OLDEST.name, lambda: (began + sampled.seconds - 1800) * hosts)
    yield of_host("process_cpu_seconds_total", lambda: 0.008 * sampled.seconds * hosts)
    yield of_host("process_resident_memory_bytes", lambda: 170e6 * hosts)
    yield of_host("up", lambda: hosts)
    yield of_host("scrape_duration_seconds", lambda: 0.012 * hosts)
    yield of_host("scrape_samples_scraped", lambda: 300 * local)


def _of_job(series: Series, name: str, sampled: Sampled, hosts: int) -> Callable[[], Floats]:
    """The most that an exporter of it says now, for all hosts; NaN where none says it."""
    own = [played for labels, played in series.items() if ("__name__", name) in labels]
    told: Floats = np.fmax.reduce([sampled.table(times, values) for times, values in own])
    return lambda: np.full(hosts, told[sampled.now])
