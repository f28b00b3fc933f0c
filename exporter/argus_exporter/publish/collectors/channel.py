"""State, cost and losses of the observing channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class ChannelCollector:
    name = "channel"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        up = FamilyBuilder(catalogue.CHANNEL_UP)
        info = FamilyBuilder(catalogue.CHANNEL_INFO)
        records = FamilyBuilder(catalogue.RECORDS)
        dropped = FamilyBuilder(catalogue.RECORDS_DROPPED)
        cpu = FamilyBuilder(catalogue.PRODUCER_CPU)
        for state in ranks:
            for channel, totals in state.channels.items():
                labels = rank_labels(state) | {"channel": channel.name.lower()}
                if state.connected:  # of a rank that is lost, argus_rank_up says so: its channels are no news
                    up.add(labels, 1 if totals.up else 0)
                if state.connected and totals.reason:
                    info.add(labels | {"reason": totals.reason}, 1)
                records.add(labels, totals.records)
                for reason, count in totals.dropped.items():
                    dropped.add(labels | {"reason": reason}, count)
                cpu.add(labels, totals.cpu_seconds)
        return with_samples((up, info, records, dropped, cpu), "no channel has reported")
