"""Collectives: the last to arrive, a slow link, and a wait that lies inside a phase of computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rules.matrix.jobs import Job
from rules.matrix.world import Case, Row, Says, World, alert

SLOW = 1
RATE = 4 / 15
Ranks = Sequence[int]


def some(ranks: Ranks, row: Row, least: int = 2) -> Row:
    return row if len(ranks) >= least else {}


def late_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        even = 1 + spread * (rank % 3 - 1)
        job.phase(rank, "forward", 1.0 * even)
        job.phase(rank, "all_reduce", (0.5 if fault and rank == SLOW else 1.5) * even, kind="comm")
    return job


LATE = World(
    "late arriver",
    ("phases", "verdicts"),
    late_build,
    (
        *(
            Says(
                f"rank:argus_collective_late:{lost}",
                "rank phase",
                lambda ranks: some(ranks, {"1 all_reduce": 1.0 * RATE}),
            )
            for lost in ("lost_ratio", "unexcused_lost_ratio")
        ),
        Says(
            "rank:argus_verdict:lost_ratio",
            "rank phase cause",
            lambda ranks: some(ranks, {"1 all_reduce collective-late": 1.0 * RATE}),
            matchers='verdict="culprit"',
        ),
        alert(
            "ArgusCollectiveLateRank", "info", "rank phase", lambda ranks: some(ranks, {"1 all_reduce": 1})
        ),
        alert(
            "ArgusCollectiveLateRank", "page", "rank phase", lambda ranks: some(ranks, {"1 all_reduce": 1}, 3)
        ),
        alert(
            "ArgusCollectiveLateRank",
            "ticket",
            "rank phase",
            lambda ranks: {"1 all_reduce": 1} if len(ranks) == 2 else {},
        ),
    ),
)


def link_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Three groups of so many ranks; every transfer within the last takes 3 times as long."""
    job = Job(64, ranks, size)
    for index, group in enumerate(("dp:a", "dp:b", "dp:c")):
        part = Job(64, [8 * index + rank for rank in ranks], size)
        part.membership(group)
        for rank in part.ranks:
            seconds = (0.9 if fault and group == "dp:c" else 0.3) * (1 + spread * (rank % 3 - 1))
            part.phase(rank, "all_reduce", seconds, kind="comm", group=group)
            part.add("argus_rank_info", 1, rank=rank, dp=index, pp=rank % 2)
        job.series += part.series
    return job


def transfers(slowest: float) -> Row:
    return {"dp:a": 1.0, "dp:b": 1.0, "dp:c": slowest}


LINK = World(
    "slow link",
    ("phases", "verdicts"),
    link_build,
    (
        Says(
            "group:argus_collective_transfer:seconds",
            "group dimension",
            lambda _: {"dp:a dp": 0.3, "dp:b dp": 0.3, "dp:c dp": 0.9},
            quiet=lambda _: {"dp:a dp": 0.3, "dp:b dp": 0.3, "dp:c dp": 0.3},
        ),
        Says(
            "rank:argus_collective_transfer:slow",
            "rank group",
            lambda ranks: {f"{16 + rank} dp:c": 0.9 for rank in ranks},
        ),
        Says(
            "group:argus_collective_transfer:ratio",
            "group",
            lambda _: transfers(3.0),
            quiet=lambda _: transfers(1.0),
        ),
        Says(
            "group:argus_collective_slow_link:lost_ratio",
            "group",
            lambda _: {"dp:c": 0.9 * (1 - 1 / 3) * RATE},
        ),
        Says(
            "rank:argus_collective_slow_link:lost_ratio",
            "rank group",
            lambda ranks: {f"{16 + rank} dp:c": 0.9 * (1 - 1 / 3) * RATE for rank in ranks},
        ),
        Says(
            "rank:argus_pipeline_slow_link:lost_ratio",
            "rank",
            lambda ranks: {f"{16 + rank}": 0.9 * (1 - 1 / 3) * RATE for rank in ranks},
        ),
        Says(
            "rank:argus_verdict:active",
            "group rank cause",
            lambda _: {"dp:c - link-slow": 1},
            matchers='verdict="culprit"',
        ),
        alert("ArgusCollectiveSlowLink", "page", "group", lambda ranks: some(ranks, {"dp:c": 1}, 3)),
        alert(
            "ArgusCollectiveSlowLink", "ticket", "group", lambda ranks: {"dp:c": 1} if len(ranks) < 3 else {}
        ),
    ),
)


def backward(rank: int) -> float:
    """The ranks of even numbers hold the collective in it and wait for rank 1."""
    return 2.0 if rank % 2 == 0 else 1.0


def wait_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        even = 1 + spread * (rank % 3 - 1)
        job.phase(rank, "forward", (2.0 if fault and rank == SLOW else 1.0) * even)
        job.phase(rank, "backward", (backward(rank) if fault else 1.5) * even)
    return job


def excused(ranks: Ranks) -> Row:
    """Those above the median of `backward`, by 1.3 at least (of two: 1.2), while rank 1 costs as much."""
    seconds = {rank: backward(rank) for rank in ranks}
    median = float(np.median(list(seconds.values())))
    return some(
        ranks,
        {
            f"{rank} backward": (value - median) * RATE
            for rank, value in seconds.items()
            if value / median > 1.25
        },
    )


WAIT = World(
    "wait inside backward",
    ("phases", "verdicts"),
    wait_build,
    (
        Says("rank:argus_phase_suspect:excused_lost_ratio", "rank phase", excused),
        Says(
            "rank:argus_phase_waiting:lost_ratio",
            "rank phase",
            lambda ranks: some(ranks, {f"{rank} backward": 1.0 * RATE for rank in ranks if rank % 2 == 0}),
        ),
        Says(
            "rank:argus_verdict:active",
            "rank phase cause",
            lambda ranks: some(ranks, {"1 forward gpu-compute": 1}),
            matchers='verdict="culprit"',
        ),
    ),
)


def long_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Steps of 100 s: two minutes hold one or two."""
    job = Job(74, ranks, size)
    job.membership()
    for rank in ranks:
        seconds = (60.0 if fault and rank == SLOW else 30.0) * (1 + spread * (rank % 3 - 1))
        job.phase(rank, "forward", seconds, spans=0.15)
    return job


def long_means(fault: bool) -> dict[int, float]:
    return {rank: 60.0 if fault and rank == SLOW else 30.0 for rank in range(8)}


def long_totals(name: str, a_span: Callable[[bool], dict[int, float]]) -> Says:
    """A counter of a group with few spans, read five seconds late; anew since a restart."""

    def rows(fault: bool, since: int = 0) -> Callable[[Ranks], Row]:
        return lambda ranks: {f"{rank} forward": 0.15 * (69 - since) * a_span(fault)[rank] for rank in ranks}

    anew = rows(True, since=24)(range(8))
    return Says(
        f"rank:argus_phase_duration_seconds:{name}",
        "rank phase",
        rows(True),
        quiet=rows(False),
        instead={Case.RESTART: anew, Case.TWO_INSTANCES: anew},
    )


LONG = World(
    "long steps",
    ("phases", "verdicts"),
    long_build,
    (
        Says(
            "group:argus_phase_window:seconds",
            "phase",
            lambda _: {"forward": 600},
            quiet=lambda _: {"forward": 600},
        ),
        Says(
            "group:argus_phase_spans:few",
            "phase",
            lambda _: {"forward": 0.01},
            quiet=lambda _: {"forward": 0.01},
            # The most of ten minutes: it outlasts the job.
            instead={Case.STALE: {"forward": 0.01}},
        ),
        long_totals("long_count", lambda _: dict.fromkeys(range(8), 1.0)),
        long_totals("long_sum", long_means),
        Says(
            "group:argus_phase_spans:long",
            "phase",
            lambda _: {"forward": 0.01},
            quiet=lambda _: {"forward": 0.01},
            # The end of the old instance looks like a restart, for as long as the window.
            instead={Case.TWO_INSTANCES: None},
            matchers='window="10m"',
        ),
        Says(
            "rank:argus_phase_duration_seconds:mean_long",
            "rank phase",
            lambda ranks: {f"{rank} forward": long_means(True)[rank] for rank in ranks},
            quiet=lambda ranks: {f"{rank} forward": long_means(False)[rank] for rank in ranks},
        ),
        alert("ArgusStragglerRank", "page", "rank phase", lambda ranks: some(ranks, {"1 forward": 1}, 3)),
    ),
    at=70,
)


def fan_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Durations fan out by 28 %, nobody apart from the next."""
    job = Job(84, ranks, size)
    job.membership()
    for rank in ranks:
        share = rank / (size - 1) if size > 1 else 0.0
        job.phase(rank, "forward", 3.0 * (1 + (0.28 if fault else spread) * share))
    return job


FAN = World(
    "imbalance",
    ("phases", "verdicts"),
    fan_build,
    (
        alert("ArgusGroupImbalance", "info", "phase group", lambda ranks: some(ranks, {"forward dp": 1})),
        alert("ArgusGroupImbalance", "ticket", "phase group", lambda ranks: some(ranks, {"forward dp": 1})),
    ),
    # The alert waits ten minutes, and begins again when the scrape gap thins the spans out.
    at=80,
)


def loader_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Rank 1 loads its data for twice as long."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        seconds = (2.0 if fault and rank == SLOW else 1.0) * (1 + spread * (rank % 3 - 1))
        job.phase(rank, "data", seconds, kind="host")
    return job


LOADER = World(
    "slow loader",
    ("phases", "verdicts"),
    loader_build,
    (
        Says(
            "rank:argus_verdict:active",
            "rank phase cause",
            lambda ranks: some(ranks, {"1 data data-input": 1}),
            matchers='verdict="culprit"',
        ),
        alert("ArgusHostStall", "info", "rank phase", lambda ranks: some(ranks, {"1 data": 1}, 3)),
        alert("ArgusHostStall", "page", "rank phase", lambda ranks: some(ranks, {"1 data": 1}, 3)),
    ),
)

WORLDS = (LATE, LINK, WAIT, LONG, FAN, LOADER)
