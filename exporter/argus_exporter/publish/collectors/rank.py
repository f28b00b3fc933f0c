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
        world = FamilyBuilder(catalogue.JOB_WORLD_SIZE)
        jobs = [state.identity.job_labels for state in ranks]
        for labels in {tuple(labels.items()): labels for labels in jobs if labels}.values():
            job.add(labels, 1)
        for training_job, size in _world_sizes(ranks).items():
            world.add({"training_job": training_job}, size)
        for state in ranks:
            base, info_labels = rank_labels(state), state.identity.info_labels
            info.add(base | info_labels, 1)
            up.add(base, 1 if state.connected else 0)
            number.add(base, state.identity.rank)
            if not state.goes_on:
                place = {name: info_labels[name] for name in ("node", "gpu_uuid") if name in info_labels}
                lost = {} if state.connected else {"lost": "true"}
                overdue.add(base | place | lost, state.identity.rank)
            for group, size in state.phases.groups.items():
                expected.add(base | {"group": group}, size)
        return with_samples((info, job, world, up, number, overdue, expected), "no rank has connected")


def _world_sizes(ranks: Sequence[RankState]) -> dict[str, int]:
    """By job. What a lost rank said is of a run that may have another size by now."""
    found: dict[str, int] = {}
    for state in ranks:
        identity = state.identity
        if state.connected and identity.world_size > 0:
            found[identity.training_job] = max(identity.world_size, found.get(identity.training_job, 0))
    return found
