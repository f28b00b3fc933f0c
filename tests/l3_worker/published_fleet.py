"""A fleet that publishes kernel modes to a real Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.servers import PrometheusServer

from argus_core import catalogue, remote_write

Modes = Sequence[tuple[float, float, float]]  # (p50 seconds, p99 seconds, events)


@dataclass
class Fleet:
    """Publishes what exporters would: rank identities, windows, modes."""

    server: PrometheusServer
    training_job: str = "llm"
    role: str = "pp0.tp0"
    cluster: str = ""

    def publish(
        self,
        at: float,
        last_step: int,
        modes: Mapping[str, Mapping[tuple[str, str], Modes]],
        steps: int = 64,
        last_steps: Mapping[str, int] | None = None,
    ) -> None:
        """Store one scrape at Unix time `at`: modes by rank and (kernel, stream)."""
        stamp = round(at * 1000)
        series = []
        job = {"training_job": self.training_job} | ({"cluster": self.cluster} if self.cluster else {})

        def add(family: catalogue.Family, value: float, **labels: str) -> None:
            named = remote_write.labels_of(family.name, **job, **labels)
            series.append(remote_write.encode_series(named, value, stamp))

        for rank, pairs in modes.items():
            add(catalogue.RANK_INFO, 1.0, rank=rank, role=self.role)
            if pairs:
                add(catalogue.KERNEL_WINDOW_LAST_STEP, (last_steps or {}).get(rank, last_step), rank=rank)
                add(catalogue.KERNEL_WINDOW_STEPS, steps, rank=rank)
            for (kernel, stream), of_pair in pairs.items():
                for mode, (p50, p99, events) in enumerate(of_pair):
                    where = {"rank": rank, "kernel": kernel, "stream": stream, "mode": str(mode)}
                    add(catalogue.KERNEL_MODE_EVENTS, events, **where)
                    add(catalogue.KERNEL_MODE_P50, p50, **where)
                    add(catalogue.KERNEL_MODE_P99, p99, **where)
        self.server.write(series)
