"""What NCCL's RAS says of jobs that stand still; nothing while they go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class RasCollector:
    name = "ras"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        answer = FamilyBuilder(catalogue.RAS_ANSWER)
        absent = FamilyBuilder(catalogue.RAS_ABSENT)
        rank_absent = FamilyBuilder(catalogue.RAS_RANK_ABSENT)
        lacks = FamilyBuilder(catalogue.RAS_RANK_LACKS)
        error = FamilyBuilder(catalogue.RAS_RANK_ERROR)
        for state in ranks:
            if state.ras is None:
                continue
            labels, said = rank_labels(state), state.ras
            answer.add(labels | {"result": said.result.value}, said.at)
            for absence, processes in said.absent.items():
                absent.add(labels | {"absence": absence.value}, processes)
            for rank, why in said.absent_ranks.items():
                rank_absent.add(labels | {"rank": str(rank), "absence": why.value}, 1)
            for (rank, function), count in said.lacks.items():
                lacks.add(labels | {"rank": str(rank), "function": function}, count)
            for rank, name in said.errors.items():
                error.add(labels | {"rank": str(rank), "error": name}, 1)
        families = answer, absent, rank_absent, lacks, error
        return with_samples(families, "no job stands still, or ras.enabled is off")
