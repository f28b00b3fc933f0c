"""Judgements and verdicts as series. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.role_judgement import PairJudgement, RoleJudgement
from argus_l3_worker.judge.verdicts import ALL_KERNELS, Verdict
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


# As many as a dashboard's table of a kernel shows.
_FURTHEST = 30


def of_ranks(judgement: RoleJudgement, worker: str) -> Iterator[tuple[Labels, float]]:
    """Of every rank what its GPU is compared with later on."""
    job, role = judgement.training_job, judgement.role
    for rank, gpu, shift in zip(judgement.ranks, judgement.gpus, judgement.rank_shift, strict=True):
        if np.isfinite(shift):
            where = {"training_job": job, "rank": rank, "role": role, "gpu_uuid": gpu, "worker": worker}
            yield labels_of(catalogue.L3_RANK_SHIFT.name, **where), float(np.expm1(shift))


def of_deviations(
    judgements: Sequence[RoleJudgement],
    verdicts: Iterable[Verdict],
    shifts: Iterable[GroupShift],
    worker: str,
) -> Iterator[tuple[Labels, float]]:
    """Of kernels that deviate what shows by how much, as the newest window says that has them.

    Args:
        judgements: of one role, newest first. A verdict holds over a window that was not judged, or without
            its kernel.
        verdicts, shifts: of the role; shifts of its stage, too.
    """
    accused: dict[tuple[str, str], set[str]] = {}
    for verdict in verdicts:
        accused.setdefault((verdict.kernel, verdict.stream), set()).update({verdict.rank} - {""})
    for group in shifts:
        accused.setdefault((group.kernel, group.stream), set())
    whole = accused.pop((ALL_KERNELS, ALL_KERNELS), None)
    costliest = judgements[0].costliest if judgements else None
    if whole is not None and costliest is not None:
        accused.setdefault((costliest.kernel, costliest.stream), set()).update(whole)
    for judgement in judgements:
        for pair in judgement.pairs:
            if (ranks := accused.pop((pair.kernel, pair.stream), None)) is not None:
                yield from _of_pair(judgement, pair, ranks, worker)


def _of_pair(
    judgement: RoleJudgement, pair: PairJudgement, ranks: Collection[str], worker: str
) -> Iterator[tuple[Labels, float]]:
    """Fence and IQR over the whole role; W1 and shift of these ranks and of those furthest away."""
    where = {
        "training_job": judgement.training_job,
        "kernel": pair.kernel,
        "stream": pair.stream,
        "worker": worker,
    }
    if pair.w1 is not None:
        in_role = {**where, "role": judgement.role}
        yield labels_of(catalogue.L3_KERNEL_W1_FENCE.name, **in_role), pair.w1.fence_seconds
        yield labels_of(catalogue.L3_KERNEL_W1_IQR.name, **in_role), pair.w1.iqr_seconds
    shown = np.isin(np.asarray(judgement.ranks)[pair.ranks], list(ranks))
    shown[np.argsort(-np.abs(np.nan_to_num(pair.shift)))[:_FURTHEST]] = True
    for index in np.flatnonzero(shown):
        rank = judgement.ranks[pair.ranks[index]]
        if pair.w1 is not None:
            seconds = float(pair.w1.seconds[index])
            yield labels_of(catalogue.L3_KERNEL_W1.name, rank=rank, **where), seconds
        if np.isfinite(pair.shift[index]):
            shift = float(np.expm1(pair.shift[index]))
            yield labels_of(catalogue.L3_KERNEL_SHIFT.name, rank=rank, **where), shift


def own_labels(read: Mapping[str, str]) -> Labels:
    """Those of a series that was read which a worker wrote: a store may have put its own beside them."""
    family = catalogue.BY_NAME[read["__name__"]]
    written = {"__name__", "cluster", *family.labels, *family.optional_labels}
    return tuple(sorted((name, value) for name, value in read.items() if name in written))


def _labels_of(family: catalogue.Family, one: object, worker: str) -> Labels:
    """Its labels are named as the attributes."""
    values = {name: str(getattr(one, name)) for name in family.labels}
    return labels_of(family.name, **values, worker=worker)


def of_verdicts(verdicts: Iterable[Verdict], worker: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_anomaly` a verdict; the value is the signed shift."""
    for verdict in verdicts:
        yield _labels_of(catalogue.L3_ANOMALY, verdict, worker), float(np.expm1(verdict.shift))


def of_group_shifts(shifts: Iterable[GroupShift], worker: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_group_shift` a value of a coordinate: where medians and tails both say it, the larger."""
    found: dict[Labels, float] = {}
    for shift in shifts:
        labels = _labels_of(catalogue.L3_GROUP_SHIFT, shift, worker)
        found[labels] = max(found.get(labels, 0.0), float(np.expm1(shift.shift)), key=abs)
    yield from found.items()


def of_abstentions(abstentions: Iterable[Abstention], worker: str) -> Iterator[tuple[Labels, float]]:
    """One `argus_l3_abstain` a role that was not judged."""
    for abstention in abstentions:
        yield _labels_of(catalogue.L3_ABSTAIN, abstention, worker), 1.0


def of_cycle(seconds: float, stamp: float, worker: str) -> Iterator[tuple[Labels, float]]:
    """How the worker itself does."""
    yield labels_of(catalogue.L3_CYCLE_SECONDS.name, worker=worker), seconds
    yield labels_of(catalogue.L3_LAST_SUCCESS.name, worker=worker), stamp


def rounded(series: Mapping[Labels, float]) -> dict[Labels, float]:
    """Six significant digits, which compress well and carry all that is known; timestamps stay whole."""
    exact = catalogue.L3_LAST_SUCCESS.name
    return {
        labels: value if ("__name__", exact) in labels else float(f"{value:.6g}")
        for labels, value in series.items()
    }
