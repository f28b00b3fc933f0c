"""Samples of the innermost frames, how often a rank is sampled, and what that costs outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class StackCollector:
    name = "stack"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        samples = FamilyBuilder(catalogue.STACK_SAMPLES)
        sampling = FamilyBuilder(catalogue.STACK_SAMPLING)
        cpu = FamilyBuilder(catalogue.STACK_SAMPLER_CPU)
        for state in ranks:
            labels, stacks = rank_labels(state), state.stacks
            for leaf, count in stacks.totals.counts.items():
                samples.add(labels | {"thread": leaf.thread, "frame": leaf.frame}, count)
            if stacks.outside is not None:
                sampling.add(labels, stacks.outside.hertz)
                cpu.add(labels, stacks.outside_cpu_seconds)
        return with_samples((samples, sampling, cpu), "no stack has been sampled")
