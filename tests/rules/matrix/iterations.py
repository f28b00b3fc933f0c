"""The job as a whole: it got slower, irregular, or stopped; and a job whose first ranks are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rules.matrix.jobs import STALE, STEP, Job, Value
from rules.matrix.world import Case, Row, Says, World, alert

Ranks = Sequence[int]


def always(row: Row) -> Callable[[Ranks], Row]:
    return lambda _: row


STABLE = always({"stable": 1})

CHANGE = 64
"""The first sample of slower iterations: 20 samples after the window of ten minutes begins."""


def regression_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    job = Job(88, ranks, size)
    job.membership()
    job.iterations(lambda sample: 1.25 if fault and sample >= CHANGE else 1.0)
    return job


# A restart, or another rank, inside the window: totals of two lives make no ratio.
NO_RATIO: dict[Case, Row] = {Case.RESTART: {}, Case.TWO_INSTANCES: {}}


def a_fifth_lost(cause: str) -> Says:
    """Of each rank, as steps take a quarter longer."""
    return Says(
        "job:argus_lost_gpus:current",
        "cause",
        lambda ranks: {cause: 0.2 * len(ranks)},
        instead=NO_RATIO,
    )


REGRESSION = World(
    "regression",
    ("regression", "jitter", "stall", "verdicts"),
    regression_build,
    (
        Says(
            "job:argus_iteration:regression_ratio",
            "window",
            always({"10m": 1.25}),
            instead=NO_RATIO,
        ),
        Says(
            "job:argus_iteration:regression_split_timestamp_seconds",
            "window",
            # Recorded five seconds late, so at the next sample.
            always({"10m": CHANGE * STEP}),
            instead=NO_RATIO | {Case.GAP: {"10m": 66 * STEP}},
        ),
        Says(
            "job:argus_iteration:class",
            "class",
            always({"regression": 1}),
            quiet=STABLE,
            instead={Case.RESTART: {"stable": 1}, Case.TWO_INSTANCES: {"stable": 1}},
        ),
        a_fifth_lost("unexplained"),
        alert("ArgusIterationRegression", "page", "", always({"": 1}), instead=NO_RATIO),
    ),
    at=84,
    change=60,
    batch=10,
    long_scan=True,
)

SPANS = 12
"""Collectives in each scrape interval."""
GROWN = 0.25
FABRIC_LOST = GROWN * SPANS / STEP


def fabric_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """The change is that every collective takes a quarter of a second longer."""
    job = regression_build(ranks, size, fault, spread)
    for rank in ranks:
        job.phase(
            rank, "all_reduce", lambda sample: 0.1 + GROWN * (fault and sample >= CHANGE), SPANS, kind="comm"
        )
    return job


def by_window(value: float) -> Row:
    return dict.fromkeys(("10m", "30m", "1h"), value)


FABRIC = World(
    "fabric",
    ("regression", "jitter", "stall", "phases", "verdicts"),
    fabric_build,
    (
        Says(
            "job:argus_collective_transfer:seconds",
            "phase",
            always({"all_reduce": 0.1 + GROWN}),
            quiet=always({"all_reduce": 0.1}),
        ),
        Says(
            "job:argus_collective_transfer:lost_ratio",
            "window",
            always(by_window(FABRIC_LOST)),
            quiet=always(by_window(0)),
        ),
        Says(
            "job:argus_collective_transfer:regression_ratio",
            "",
            always({"": 1.25}),
            instead=NO_RATIO,
        ),
        a_fifth_lost("fabric"),
        alert(
            "ArgusIterationRegression",
            "page",
            "cause team",
            always({"fabric operations": 1}),
            instead=NO_RATIO,
        ),
    ),
    at=84,
    change=60,
)

SPIKES = {*range(8, 56, 8), 56, 59, 60}
"""Samples whose iterations take 3 s instead of 1 s; the last two follow one another."""


def jitter_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    job = Job(64, ranks, size)
    job.membership()

    def seconds(sample: int) -> float:
        return 3.0 if fault and sample in SPIKES else 1.0

    job.iterations(seconds)
    # Only the job's lowest rank: the rule looks at every second.
    job.add("argus_iteration_seconds", seconds, rank=0)
    return job


JITTER = World(
    "jitter",
    ("regression", "jitter", "stall", "verdicts"),
    jitter_build,
    (
        Says("job:argus_iteration:jitter_ratio", "", always({"": 3}), quiet=always({"": 1})),
        # From 13m45s, the last evaluation at which the longest of the trailing minute was normal.
        Says("job:argus_iteration:jitter_run_seconds", "", always({"": 5 * STEP})),
        # From the end of the last normal iteration, at 14m30s.
        Says("job:argus_iteration:jitter_width_seconds", "", always({"": 2 * STEP})),
        Says("job:argus_iteration_seconds:recent", "", always({"": 2}), quiet=always({"": 1})),
        Says(
            "job:argus_iteration_seconds:baseline",
            "",
            always({"": 1}),
            quiet=always({"": 1}),
            instead={Case.STALE: {"": 1}},
        ),
        Says("job:argus_iteration_seconds:window_max", "", always({"": 3}), quiet=always({"": 1})),
        Says("job:argus_iteration_seconds:window_min", "", always({"": 1}), quiet=always({"": 1})),
        Says("job:argus_iteration:class", "class", always({"jitter": 1}), quiet=STABLE),
        alert("ArgusIterationJitter", "info", "", always({"": 1})),
        alert("ArgusIterationJitter", "ticket", "", always({"": 1})),
    ),
    batch=2,
)

LAST = 44
"""The sample of the last iteration."""


def stall_build(hanging: Callable[[int], bool]) -> Callable[[Ranks, int, bool, float], Job]:
    def build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
        job = Job(64, ranks, size)
        job.membership()
        job.iterations(3.75, last=LAST if fault else None)
        for rank in ranks:
            hangs = fault and hanging(rank)

            def opened(sample: int) -> Value:
                return None if sample <= LAST else float(LAST * STEP + 2)

            def entered(sample: int, hangs: bool = hangs) -> Value:
                return 4.0 * min(sample, LAST) - hangs

            phase, kind = ("data", "host") if hangs else ("grad_sync", "comm")
            job.add("argus_phase_open_timestamp_seconds", opened, rank=rank, phase=phase, kind=kind)
            job.add("argus_collective_sequence", entered, rank=rank, group="dp")
        return job

    return build


AGE = {"": 15.0 * (60 - LAST)}


def hung(ranks: Ranks) -> Row:
    return {"1": 1} if len(ranks) > 1 else {}


def waiters(ranks: Ranks) -> list[int]:
    return [rank for rank in ranks if rank != 1]


def alone(ranks: Ranks) -> bool:
    """Of one rank nobody can be behind: it is in its collective, as everybody is."""
    return len(ranks) == 1


STALL = World(
    "hanging rank",
    ("regression", "jitter", "stall", "verdicts"),
    stall_build(lambda rank: rank == 1),
    (
        Says("job:argus_iteration:age_seconds", "", always(AGE), quiet=always({"": 0})),
        Says("job:argus_stalled:seconds", "", always(AGE)),
        Says(
            "rank:argus_stall_open:timestamp_seconds",
            "rank phase",
            lambda ranks: {
                f"{rank} {'data' if rank == 1 else 'grad_sync'}": LAST * STEP + 2 for rank in ranks
            },
        ),
        Says(
            "rank:argus_stall_sequence:collectives",
            "rank",
            lambda ranks: {f"{rank}": 4.0 * LAST - (rank == 1) for rank in ranks},
        ),
        Says(
            "rank:argus_stall_lag:collectives",
            "rank",
            lambda ranks: {f"{rank}": float(rank == 1) for rank in ranks},
        ),
        Says("rank:argus_stall_suspect:bool", "rank", hung),
        Says(
            "rank:argus_stall_culprit:bool",
            "rank phase",
            lambda ranks: {"1 data": 1} if not alone(ranks) else {},
        ),
        Says(
            "rank:argus_stall_victim:bool",
            "rank phase",
            lambda ranks: {f"{rank} grad_sync": 1 for rank in waiters(ranks) if not alone(ranks)},
        ),
        Says(
            "rank:argus_verdict:active",
            "rank phase cause",
            lambda ranks: (
                {"- grad_sync hang-comm": 1}
                if alone(ranks)
                else {"1 data hang-data": 1, **{f"{rank} grad_sync waiting": 1 for rank in waiters(ranks)}}
            ),
        ),
        Says(
            "job:argus_lost_gpus:current",
            "cause",
            lambda ranks: {"hang-comm" if alone(ranks) else "hang-data": len(ranks)},
        ),
        alert(
            "ArgusTrainingStalled",
            "page",
            "rank phase",
            lambda ranks: {"- grad_sync": 1} if alone(ranks) else {"1 data": 1},
        ),
    ),
)

COLLECTIVE = World(
    "hanging collective",
    ("regression", "jitter", "stall", "verdicts"),
    stall_build(lambda _: False),
    (
        Says("job:argus_stall_collective:bool", "phase", always({"grad_sync": 1})),
        Says("rank:argus_stall_suspect:bool", "rank", always({})),
        alert("ArgusTrainingStalled", "page", "rank phase", always({"- grad_sync": 1})),
    ),
)


def beyond(ranks: Ranks) -> list[int]:
    return [rank + 9 for rank in ranks]


def beyond_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Ranks 9, 10, 11 ...: none of the first host's lives."""
    job = Job(64, beyond(ranks) if fault else ranks, size)
    job.membership()
    job.iterations(3.75)
    return job


BEYOND = World(
    "first host gone",
    ("regression", "jitter", "stall", "verdicts"),
    beyond_build,
    (
        Says("rank:argus_rank_live:fallback", "rank", lambda ranks: {f"{rank}": 1 for rank in beyond(ranks)}),
        Says("rank:argus_rank:number", "rank", lambda ranks: {f"{rank}": rank for rank in beyond(ranks)}),
        Says("job:argus_canonical_rank:number", "rank", always({"9": 9})),
        Says(
            "job:argus_iteration_seconds:window_max", "rank", always({"9": 3.75}), quiet=always({"0": 3.75})
        ),
    ),
    moves=9,
)


def checkpoint_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Rank 1 is slow since the checkpoint that ended a minute ago: too early to say anything."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        job.phase(rank, "forward", 2.0 if fault and rank == 1 else 1 + spread * (rank % 3 - 1))
        if fault:
            job.add(
                "argus_activity",
                lambda sample: 1.0 if sample <= 56 else STALE if sample == 57 else None,
                rank=rank,
                activity="checkpoint",
            )
    return job


CHECKPOINT = World(
    "checkpoint",
    ("phases", "verdicts"),
    checkpoint_build,
    (
        Says(
            "job:argus_train:seconds",
            "",
            always({"": 60}),
            # How long ago is known after the end, too.
            instead={Case.STALE: {"": 150}},
        ),
        Says(
            "rank:argus_verdict:active",
            "cause",
            always({"activity": 1}),
            matchers='verdict="abstain"',
        ),
        Says("rank:argus_verdict:active", "cause", always({}), matchers='verdict="culprit"'),
    ),
)

WORLDS = (REGRESSION, FABRIC, JITTER, STALL, COLLECTIVE, BEYOND, CHECKPOINT)
