"""Work that is uneven by design, pipeline stages, and a run against earlier runs of its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rules.matrix.jobs import Job
from rules.matrix.straggler import totals
from rules.matrix.world import Case, Row, Says, World, alert

Ranks = Sequence[int]
RATE = 4 / 15
TOKENS = 60.0
"""Of rank 0 in a scrape interval."""


def always(row: Row) -> Callable[[Ranks], Row]:
    return lambda _: row


def share(rank: int) -> float:
    """What a rank has to do, against rank 0; it takes so many seconds a step."""
    return 1 + 0.1 * rank


def uneven_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Each rank has a tenth more tokens than the one before, and takes as much longer."""
    job = Job(64, ranks, size)
    job.membership()
    job.iterations(3.75)
    for rank in ranks:
        work = share(rank) if fault else 1.0
        job.phase(rank, "forward", work * (1 + spread * (rank % 3 - 1)))
        job.counter("argus_work_units_total", TOKENS * work, rank=rank, unit="tokens")
    return job


def shares(ranks: Ranks) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([share(rank) for rank in ranks])


def spread_of_work(ranks: Ranks) -> Row:
    return {"tokens": float(shares(ranks).std() / shares(ranks).mean())}


def several(ranks: Ranks, row: Row) -> Row:
    return row if len(ranks) > 1 else {}


def overloaded(ranks: Ranks) -> Row:
    """Those above the median."""
    median = float(np.median(shares(ranks)))
    return {f"{rank}": share(rank) / median - 1 for rank in ranks if share(rank) > median}


def burdened(ranks: Ranks) -> Row:
    """Those 1.15 times above the median, by what they cost."""
    median = float(np.median(shares(ranks)))
    return {
        f"{rank} forward": (share(rank) - median) * RATE for rank in ranks if share(rank) / median >= 1.15
    }


UNEVEN = World(
    "uneven work",
    ("regression", "jitter", "stall", "phases", "work", "masked", "verdicts"),
    uneven_build,
    (
        Says("job:argus_work:cv", "unit", spread_of_work, quiet=always({"tokens": 0})),
        totals("job:argus_iteration_scan:work", TOKENS, 60, 24),
        Says("job:argus_work:fast_cv", "unit", spread_of_work, quiet=always({"tokens": 0})),
        Says(
            "rank:argus_work:rate",
            "rank",
            lambda ranks: several(ranks, {f"{rank}": share(rank) * TOKENS / 15 for rank in ranks}),
        ),
        Says("rank:argus_work:excess_ratio", "rank", overloaded),
        Says(
            "rank:argus_phase_work:seconds",
            "rank phase",
            lambda ranks: several(ranks, {f"{rank} forward": 15 / TOKENS for rank in ranks}),
        ),
        Says(
            "rank:argus_phase_work:median_ratio",
            "rank phase",
            lambda ranks: several(ranks, {f"{rank} forward": 1 for rank in ranks}),
        ),
        Says("group:argus_phase_work:fit", "phase", lambda ranks: several(ranks, {"forward": 1})),
        Says("rank:argus_work_imbalance:lost_ratio", "rank phase", burdened),
        Says("rank:argus_phase_suspect:lost_ratio", "rank", always({})),
    ),
)


def stages_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Two pipeline stages of so many ranks; the last takes 1.9 times as long."""
    job = Job(64, ranks, size)
    for stage in range(2):
        part = Job(64, [2 * rank + stage for rank in ranks], size)
        part.membership(f"dp:pp{stage}")
        for rank in part.ranks:
            seconds = 1.9 if fault and stage else 1.0
            part.phase(rank, "forward", seconds * (1 + spread * (rank % 3 - 1)), group=f"dp:pp{stage}")
        job.series += part.series
    return job


STAGES = World(
    "pipeline stages",
    ("phases", "masked", "verdicts"),
    stages_build,
    (Says("job:argus_stage_imbalance:ratio", "stage", always({"1": 1.9 / 1.45})),),
)

RUN = {"model": "{job}", "backend": "nccl", "world_size": "8"}
"""Labels of the run; the model's name keeps the jobs of a storage apart."""


def remembered(job: Job, signature: str, value: float, **labels: str) -> None:
    """What a healthy run of the same model recorded."""
    earlier = {"training_job": "{job} before", "signature": signature, **RUN, **labels}
    job.add("job:argus_signature:healthy", value, **earlier)


def history_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    return slower(ranks, size, 1.2 if fault else 1.0)


def slower(ranks: Ranks, size: int, slow: float) -> Job:
    """Iterations that took a second, and the only kernel, take so many times as long."""
    job = Job(64, ranks, size)
    job.membership()
    job.iterations(slow)
    kernel = {"kernel": "gemm", "stream": "compute0"}
    for rank in ranks:
        job.add("argus_job_info", 1, rank=rank, **RUN)
        job.counter("argus_kernel_duration_seconds_total", 6.0, rank=rank, **kernel)
        job.counter("argus_kernel_launches_total", 600 / slow, rank=rank, **kernel)
    remembered(job, "iteration", 1.0)
    remembered(job, "kernel", 0.01, **kernel)
    remembered(job, "kernel_share", 0.4, **kernel)
    return job


LEARNED = {"iteration": 1.0, "kernel": 0.01, "kernel_share": 0.4}
HISTORY = World(
    "slower than history",
    ("regression", "jitter", "stall", "phases", "verdicts", "history"),
    history_build,
    (
        Says(
            "job:argus_signature:current",
            "signature",
            always({"iteration": 1.2, "kernel": 0.012, "kernel_share": 0.4}),
            quiet=always(LEARNED),
        ),
        Says("job:argus_signature:healthy", "signature", always({}), quiet=always(LEARNED)),
        Says(
            "job:argus_signature:history_ratio",
            "signature",
            always({"iteration": 1.2, "kernel": 1.2}),
            quiet=always({"iteration": 1, "kernel": 1}),
        ),
        Says(
            "job:argus_signature:excess_ratio",
            "signature",
            always({"kernel_share": 0}),
            quiet=always({"kernel_share": 0}),
        ),
        Says("job:argus_history:slowdown_ratio", "", always({"": 1.2})),
        Says("job:argus_history:lost_ratio", "cause", always({"colocation": 1 - 1 / 1.2})),
        alert("ArgusIterationRegression", "ticket", "cause", always({"colocation": 1})),
    ),
)


def latency_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    return ahead(ranks, size, 0.01 if fault else 0.04)


def ahead(ranks: Ranks, size: int, latency: float) -> Job:
    """The host ran 40 ms ahead of the GPU, and now so many seconds; nothing is slower."""
    job = Job(64, ranks, size)
    job.membership()
    job.iterations(1.0)
    for rank in ranks:
        job.add("argus_job_info", 1, rank=rank, **RUN)
        job.add("argus_issue_latency_seconds", latency, rank=rank, kernel_class="compute", quantile="0.5")
    remembered(job, "iteration", 1.0)
    remembered(job, "issue_latency", 0.04)
    return job


LATENCY = World(
    "host falls behind",
    ("regression", "jitter", "stall", "phases", "verdicts", "history"),
    latency_build,
    (alert("ArgusIterationRegression", "info", "", always({"": 1})),),
)


def evaluation_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """The job evaluates its model."""
    job = Job(64, ranks, size)
    job.membership()
    if fault:
        job.add("argus_activity", 1, rank=0, activity="evaluation")
    return job


EVALUATION = World(
    "evaluation",
    ("phases", "verdicts"),
    evaluation_build,
    (
        Says(
            "job:argus_other_activity:timestamp_seconds",
            "",
            always({"": 900}),
        ),
        Says("job:argus_train:seconds", "", always({"": 0}), instead={Case.STALE: {"": 150}}),
    ),
)

WORLDS = (UNEVEN, STAGES, HISTORY, LATENCY, EVALUATION)
