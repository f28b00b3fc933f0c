"""Judgements and verdicts as series. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import Verdict
from argus_l3_worker.roles import Abstention

ENDED_BY_ANY_WORKER = (
    catalogue.L3_ANOMALY.name,
    catalogue.L3_ABSTAIN.name,
    catalogue.L3_GROUP_SHIFT.name,
    catalogue.L3_RANK_SHIFT.name,
    catalogue.L3_TRACE_INFO.name,
)
"""Families whose series a worker takes over at its start, so that a verdict ends although the worker that
wrote it is gone. The others are many; left alone they end by themselves after the lookback of 5 minutes."""

VERDICTS = (
    catalogue.L3_ANOMALY.name,
    catalogue.L3_GROUP_SHIFT.name,
    catalogue.L3_TRACE_INFO.name,
    catalogue.L3_LAST_SUCCESS.name,
)
"""Families that rules and alerts read: a cycle's first request. All others are for looking closer."""


def of_judgement(judgement: RoleJudgement, replica: str) -> Iterator[tuple[Labels, float]]:
    """Scores, fences and shifts of one role."""
    job, role = judgement.training_job, judgement.role
    for pair in judgement.pairs:
        where = {"training_job": job, "kernel": pair.kernel, "stream": pair.stream, "replica": replica}
        if np.isfinite(pair.fence_seconds):
            yield labels_of(catalogue.L3_KERNEL_W1_FENCE.name, role=role, **where), pair.fence_seconds
        for index, position in enumerate(pair.ranks):
            rank = judgement.ranks[position]
            if np.isfinite(pair.w1_seconds[index]):
                yield (
                    labels_of(catalogue.L3_KERNEL_W1.name, rank=rank, **where),
                    float(pair.w1_seconds[index]),
                )
            if np.isfinite(pair.shift[index]):
                yield (
                    labels_of(catalogue.L3_KERNEL_SHIFT.name, rank=rank, **where),
                    float(np.expm1(pair.shift[index])),
                )
    for position, shift in enumerate(judgement.rank_shift):
        if np.isfinite(shift):
            labels = labels_of(
                catalogue.L3_RANK_SHIFT.name,
                training_job=job,
                rank=judgement.ranks[position],
                replica=replica,
            )
            yield labels, float(np.expm1(shift))


def of_verdicts(verdicts: Iterable[Verdict], replica: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_anomaly` a verdict; the value is the signed shift."""
    for verdict in verdicts:
        labels = labels_of(
            catalogue.L3_ANOMALY.name,
            training_job=verdict.training_job,
            rank=verdict.rank,
            kernel=verdict.kernel,
            stream=verdict.stream,
            cause=verdict.cause,
            verdict=verdict.verdict,
            team=verdict.team,
            replica=replica,
        )
        yield labels, float(np.expm1(verdict.shift))


def of_group_shifts(shifts: Iterable[GroupShift], replica: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_group_shift` a value of a coordinate: where medians and tails both say it, the larger."""
    found: dict[Labels, float] = {}
    for shift in shifts:
        labels = labels_of(
            catalogue.L3_GROUP_SHIFT.name,
            training_job=shift.training_job,
            role=shift.role,
            kernel=shift.kernel,
            stream=shift.stream,
            coordinate=shift.coordinate,
            value=shift.value,
            cause=shift.cause,
            team=shift.team,
            replica=replica,
        )
        found[labels] = max(found.get(labels, 0.0), float(np.expm1(shift.shift)), key=abs)
    yield from found.items()


def of_abstentions(abstentions: Iterable[Abstention], replica: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_abstain` a role that was not judged."""
    for abstention in abstentions:
        labels = labels_of(
            catalogue.L3_ABSTAIN.name,
            training_job=abstention.training_job,
            role=abstention.role,
            reason=abstention.reason,
            replica=replica,
        )
        yield labels, 1.0


def of_cycle(seconds: float, last_success: float | None, replica: str) -> Iterator[tuple[Labels, float]]:
    """How the worker itself does."""
    yield labels_of(catalogue.L3_CYCLE_SECONDS.name, replica=replica), seconds
    if last_success is not None:
        yield labels_of(catalogue.L3_LAST_SUCCESS.name, replica=replica), last_success


def rounded(series: Mapping[Labels, float]) -> dict[Labels, float]:
    """Six significant digits, which compress well and carry all that is known; timestamps stay whole."""
    exact = catalogue.L3_LAST_SUCCESS.name
    return {
        labels: value if ("__name__", exact) in labels else float(f"{value:.6g}")
        for labels, value in series.items()
    }
