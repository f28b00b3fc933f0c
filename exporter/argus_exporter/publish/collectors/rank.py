"""Who the ranks and their jobs are, whether they live, and how many their groups should have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class RankCollector:
    name = "rank"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        info = FamilyBuilder(catalogue.RANK_INFO)
        job = FamilyBuilder(catalogue.JOB_INFO)
        up = FamilyBuilder(catalogue.RANK_UP)
        number = FamilyBuilder(catalogue.RANK_NUMBER)
        overdue = FamilyBuilder(catalogue.RANK_OVERDUE)
        expected = FamilyBuilder(catalogue.GROUP_EXPECTED_RANKS)
        jobs = [state.identity.job_labels for state in ranks]
        for labels in {tuple(labels.items()): labels for labels in jobs if labels}.values():
            job.add(labels, 1)
        for state in ranks:
            base, info_labels = rank_labels(state), state.identity.info_labels
            info.add(base | info_labels, 1)
            up.add(base, 1 if state.connected else 0)
            number.add(base, state.identity.rank)
            if not state.goes_on:
                place = {name: info_labels[name] for name in ("node", "gpu_uuid") if name in info_labels}
                overdue.add(base | place, state.identity.rank)
            for group, size in state.phases.groups.items():
                expected.add(base | {"group": group}, size)
        return with_samples((info, job, up, number, overdue, expected), "no rank has connected")
