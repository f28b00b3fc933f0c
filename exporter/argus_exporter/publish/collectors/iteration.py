"""Iteration totals, kept by the training process, and trailing extremes; of a job, what tells of a stall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_core.catalogue import Family
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState

_USUAL: Final = 3
"""Iterations from which their mean says what is usual."""


class IterationCollector:
    name = "iteration"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        duration = FamilyBuilder(catalogue.ITERATION_DURATION)
        squared = FamilyBuilder(catalogue.ITERATION_DURATION_SQUARED)
        shortest = FamilyBuilder(catalogue.ITERATION_WINDOW_MIN)
        longest = FamilyBuilder(catalogue.ITERATION_WINDOW_MAX)
        last_step = FamilyBuilder(catalogue.ITERATION_LAST_STEP)
        last_time = FamilyBuilder(catalogue.ITERATION_LAST_TIMESTAMP)
        ended: dict[str, float] = {}
        usual: dict[str, float] = {}
        for state in ranks:
            if state.iterations is None:
                continue
            base, last = rank_labels(state), state.iterations.last
            duration.add_summary(base, last.total_count, last.total_seconds)
            squared.add(base, last.total_squared)
            last_step.add(base, last.step)
            last_time.add(base, last.end_ns / 1e9)
            job = state.identity.training_job
            ended[job] = max(last.end_ns / 1e9, ended.get(job, 0.0))
            if last.total_count >= _USUAL:
                usual[job] = max(last.total_seconds / last.total_count, usual.get(job, 0.0))
            smallest = state.iterations.shortest.value(now)
            largest = state.iterations.longest.value(now)
            if smallest is not None and largest is not None:
                shortest.add(base, -smallest)
                longest.add(base, largest)
        families = (
            *(duration, squared, shortest, longest, last_step, last_time),
            _of_jobs(catalogue.JOB_LAST_ITERATION, ended),
            _of_jobs(catalogue.JOB_USUAL_ITERATION, usual),
        )
        return with_samples(families, "no iteration has finished")


def _of_jobs(family: Family, values: Mapping[str, float]) -> FamilyBuilder:
    builder = FamilyBuilder(family)
    for job, value in values.items():
        builder.add({"training_job": job}, value)
    return builder
