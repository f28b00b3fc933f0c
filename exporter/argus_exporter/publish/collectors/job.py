"""What is told once for the ranks of a job on this host: its pace, and when it last stepped.

In a synchronous job all ranks step alike, so rules that judge the job as a whole need not read each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.iterations import Iterations
from argus_exporter.ranks.rank_state import RankState

_USUAL: Final = 3
"""Iterations from which their mean says what is usual."""


class JobCollector:
    name = "job"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        lead = FamilyBuilder(catalogue.RANK_LEAD)
        squared = FamilyBuilder(catalogue.ITERATION_DURATION_SQUARED)
        shortest = FamilyBuilder(catalogue.ITERATION_WINDOW_MIN)
        longest = FamilyBuilder(catalogue.ITERATION_WINDOW_MAX)
        ended = FamilyBuilder(catalogue.JOB_LAST_ITERATION)
        usual = FamilyBuilder(catalogue.JOB_USUAL_ITERATION)
        for job, stepping in _jobs(ranks).items():
            last = [iterations.last for _, iterations in stepping]
            ended.add({"training_job": job}, max(one.end_ns for one in last) / 1e9)
            means = [one.total_seconds / one.total_count for one in last if one.total_count >= _USUAL]
            if means:
                usual.add({"training_job": job}, max(means))
            live = [(state, iterations) for state, iterations in stepping if state.connected]
            if not live:
                continue
            state, iterations = min(live, key=lambda one: one[0].identity.rank)
            base = rank_labels(state)
            lead.add(base, state.identity.rank)
            squared.add(base, iterations.last.total_squared)
            smallest, largest = iterations.shortest.value(now), iterations.longest.value(now)
            if smallest is not None and largest is not None:
                shortest.add(base, -smallest)
                longest.add(base, largest)
        return with_samples((lead, squared, shortest, longest, ended, usual), "no iteration has finished")


def _jobs(ranks: Sequence[RankState]) -> dict[str, list[tuple[RankState, Iterations]]]:
    """The ranks that have made a step, by job."""
    found: dict[str, list[tuple[RankState, Iterations]]] = {}
    for state in ranks:
        if state.iterations is not None:
            found.setdefault(state.identity.training_job, []).append((state, state.iterations))
    return found
