"""Both sides of every threshold: a job just below it, where the rule is silent, and one at or above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rules.matrix import runs
from rules.matrix.jobs import STALE, STEP, Job
from rules.matrix.world import Says, alert

AT = 60
"""The sample at which everything is asked."""
EIGHT = range(8)


@dataclass(frozen=True)
class Boundary:
    """
    Attributes:
        threshold: what it is, in words.
        build: the job for one value of what the threshold is about.
        below, above: the two values; the rule speaks of the second.
        speaks: records (with matchers) and alerts that speak or are silent.
    """

    threshold: str
    build: Callable[[float], Job]
    below: float
    above: float
    speaks: tuple[Says, ...]


def record(name: str, matchers: str = "") -> Says:
    return Says(name, "", lambda _: {}, matchers=matchers)


def fires(name: str, severity: str) -> Says:
    return alert(name, severity, "", lambda _: {})


def members(ranks: Sequence[int] = EIGHT, size: int = 0) -> Job:
    job = Job(AT + 2, ranks, size or len(ranks))
    job.membership()
    return job


def slow_rank(phase: str = "forward", kind: str = "compute", spans: float = 4) -> Callable[[float], Job]:
    """Rank 1 takes so many seconds where the others take one."""

    def build(seconds: float) -> Job:
        job = members()
        for rank in EIGHT:
            job.phase(rank, phase, seconds if rank == 1 else 1.0, spans, kind=kind)
        return job

    return build


def two_levels(apart: float) -> Job:
    """Half of the ranks takes longer; nobody is a culprit."""
    job = members()
    for rank in EIGHT:
        job.phase(rank, "forward", 1.0 + apart * (rank % 2))
    return job


def of_ranks(count: float) -> Job:
    job = members(range(int(count)))
    for rank in job.ranks:
        job.phase(rank, "forward", 1.0)
    return job


def with_spans(spans: float) -> Job:
    job = members()
    for rank in EIGHT:
        job.phase(rank, "forward", 1.0, spans)
    return job


def missing(absent: float) -> Job:
    """So many of ten ranks never come."""
    job = members(range(10 - int(absent)), size=10)
    for rank in job.ranks:
        job.phase(rank, "forward", 2.0 if rank == 1 else 1.0)
    return job


def gone(samples: float) -> Job:
    """Rank 1 was last seen so many samples ago, and the one before said that it is over."""
    job = members()
    last = AT - int(samples)
    job.series = [one for one in job.series if one.labels["rank"] != "1"]
    job.add(
        "argus_rank_up",
        lambda sample: 1 if sample <= last else STALE if sample == last + 1 else None,
        rank=1,
    )
    return job


def launching(latency: float) -> Job:
    """The GPU of rank 1 runs so many seconds behind its host, the others' 0.02 s."""
    job = slow_rank()(1.0)
    for rank in EIGHT:
        job.add(
            "argus_issue_latency_seconds",
            latency if rank == 1 else 0.02,
            rank=rank,
            kernel_class="compute",
            quantile="0.5",
        )
    return job


def late(seconds: float) -> Job:
    """Rank 1 comes so much later to a collective of half a second."""
    job = members()
    for rank in EIGHT:
        job.phase(rank, "all_reduce", 0.5 - (seconds if rank == 1 else 0), kind="comm")
    return job


def linked(groups: int, slowest: float) -> Job:
    """Groups of three ranks; the transfer of the last takes so long, of the others half a second."""
    job = Job(AT + 2, (), 3)
    for index in range(groups):
        name = f"dp:{index}"
        part = Job(AT + 2, [3 * index + rank for rank in range(3)], 3)
        part.membership(name)
        for rank in part.ranks:
            seconds = slowest if index == groups - 1 else 0.5
            part.phase(rank, "all_reduce", seconds, kind="comm", group=name)
        job.series += part.series
    return job


def longest(seconds: float) -> Job:
    """The longest span of rank 1 in the trailing minute; its mean is that of the others."""
    job = members()
    for rank in EIGHT:
        job.phase(rank, "forward", 1.0)
        if rank == 1:
            job.series.pop()
            job.add(
                "argus_phase_window_max_seconds", seconds, rank=1, phase="forward", kind="compute", group="dp"
            )
    return job


def last_slow(seconds: float) -> Job:
    """Iterations of a second, and the last so long."""
    job = members(range(1))
    job.iterations(lambda sample: seconds if sample == AT else 1.0)
    job.add("argus_iteration_seconds", lambda sample: seconds if sample == AT else 1.0, rank=0)
    return job


def slow_since(samples: float) -> Job:
    """All iterations of the last samples have a spike among them."""
    job = members(range(1))
    job.iterations(lambda sample: 3.0 if sample > AT - samples else 1.0)
    # The spike makes the maximum of the window; the shortest is as it was.
    job.series = [one for one in job.series if "window_min" not in one.metric]
    job.add("argus_iteration_window_min_seconds", 1.0, rank=0)
    return job


def step_change(factor: float) -> Job:
    job = members(range(1))
    job.iterations(lambda sample: factor if sample > AT - 20 else 1.0)
    return job


def stalled(samples: float) -> Job:
    """The last iteration ended so many samples ago; rank 1 is in its loader."""
    last = AT - int(samples)
    job = members()
    job.iterations(1.0, last=last)
    for rank in EIGHT:
        phase, kind = ("data", "host") if rank == 1 else ("grad_sync", "comm")
        job.add("argus_phase_open_timestamp_seconds", last * STEP, rank=rank, phase=phase, kind=kind)
        job.add("argus_collective_sequence", 40 - (rank == 1), rank=rank, group="dp")
    return job


def behind(fewer: float) -> Job:
    """8 less so many ranks have entered one collective fewer."""
    job = members()
    job.iterations(1.0, last=20)
    for rank in EIGHT:
        job.add("argus_collective_sequence", 40 - (rank < 8 - fewer), rank=rank, group="dp")
    return job


def in_collective(ranks: float) -> Job:
    job = members()
    job.iterations(1.0, last=20)
    for rank in range(int(ranks)):
        job.add("argus_phase_open_timestamp_seconds", 300, rank=rank, phase="grad_sync", kind="comm")
    return job


def held_up(seconds: float) -> Job:
    """Rank 1 takes so long to load its data, and twice as long as the others to compute."""
    job = slow_rank("data", "host")(seconds)
    job.series += slow_rank()(2.0).series
    return job


def waiting_within(seconds: float) -> Job:
    """Rank 1 is slow in forward; in backward the others take so much longer than it: they wait."""
    job = slow_rank()(2.0)
    for rank in EIGHT:
        job.phase(rank, "backward", 1.0 + (seconds if rank != 1 else 0))
    return job


def collecting(seconds: float) -> Job:
    """Garbage collection of rank 1 in each interval."""
    job = members()
    for rank in EIGHT:
        pause = seconds if rank == 1 else 0.0
        job.counter("argus_gc_pause_seconds_sum", pause, begin=9, rank=rank, generation=2)
        job.counter("argus_gc_pause_seconds_count", float(rank == 1), begin=9, rank=rank, generation=2)
    return job


def in_turn(seconds: float) -> Job:
    """Every rank collects so long every 20 samples, two samples after the one before."""
    job = members()
    for rank in EIGHT:
        for part, each in (("sum", seconds), ("count", 1.0)):
            job.counter(
                f"argus_gc_pause_seconds_{part}",
                lambda sample, rank=rank, each=each: each if sample % 20 == 2 * rank else 0.0,
                begin=100,
                rank=rank,
                generation=2,
            )
    return job


def kernel(shift: float, share: float) -> Job:
    job = members()
    where = {"rank": 1, "kernel": "gemm", "stream": "compute0"}
    job.counter("argus_kernel_duration_seconds_total", share * STEP, **where)
    job.add("argus_l3_anomaly", shift, **where, cause="gpu-compute", verdict="culprit", team="operations")
    job.add(
        "argus_l3_group_shift",
        shift,
        role="all",
        kernel="gemm",
        stream="compute0",
        coordinate="node",
        value="host7",
    )
    return job


def lost_since(samples: float) -> Job:
    job = Job(AT + 2, EIGHT, 8)
    for rank in EIGHT:
        job.add(
            "argus_rank_up", lambda sample, rank=rank: float(rank != 1 or sample < AT - samples), rank=rank
        )
    return job


def without_channel(samples: float) -> Job:
    job = members()
    job.add("argus_channel_up", lambda sample: float(sample < AT - samples), rank=1, channel="kernels")
    return job


def dropping(records: float) -> Job:
    """So many of a thousand records."""
    job = members()
    job.counter("argus_records_total", 1000, rank=1, channel="phases")
    job.counter("argus_records_dropped_total", records, rank=1, channel="phases", reason="queue_full")
    return job


def observing(seconds: float) -> Job:
    job = members()
    job.counter("argus_producer_cpu_seconds_total", seconds, rank=1, channel="phases")
    return job


def fan(relative: float) -> Job:
    """Spans of three seconds and more, the longest so much longer."""
    job = members()
    for rank in EIGHT:
        job.phase(rank, "forward", 3.0 * (1 + relative * rank / 7))
    return job


def resumed(samples: float) -> Job:
    """A checkpoint ended so many samples ago."""
    end = AT - int(samples)
    job = members()
    job.add(
        "argus_activity",
        lambda sample: 1.0 if sample <= end else STALE if sample == end + 1 else None,
        rank=0,
        activity="checkpoint",
    )
    return job


def worked(tokens: dict[int, float], seconds: dict[int, float]) -> Job:
    """Ranks with their tokens in an interval and their seconds a step."""
    job = members()
    for rank in EIGHT:
        job.phase(rank, "forward", seconds.get(rank, 1.0))
        job.counter("argus_work_units_total", 60 * tokens.get(rank, 1.0), rank=rank, unit="tokens")
    return job


def two_works(apart: float) -> Job:
    """Half of the ranks has more to do, and takes longer."""
    more = {rank: 1 + apart for rank in EIGHT if rank % 2}
    return worked(more, more)


def burdened(times: float) -> Job:
    """Rank 1 has so many times the work, and takes so many times as long."""
    return worked({1: times}, {1: times})


def fitted(slope: float) -> Job:
    """A tenth more work from rank to rank; seconds for the same work grow by the slope."""
    work = {rank: 1 + 0.1 * rank for rank in EIGHT}
    return worked(work, {rank: work[rank] * (1 + slope * rank) for rank in EIGHT})


def staged(seconds: float) -> Job:
    """The second of two pipeline stages."""
    job = Job(AT + 2, (), 4)
    for stage in range(2):
        part = Job(AT + 2, [2 * rank + stage for rank in range(4)], 4)
        part.membership(f"dp:pp{stage}")
        for rank in part.ranks:
            part.phase(rank, "forward", seconds if stage else 1.0, group=f"dp:pp{stage}")
        job.series += part.series
    return job


def lowest(rank: float) -> Job:
    job = members([int(rank), 20])
    job.iterations(1.0)
    return job


CULPRIT = record("rank:argus_verdict:lost_ratio", 'verdict="culprit"')
BOUNDARIES = (
    Boundary(
        "1.15 of the median, with z",
        slow_rank(),
        1.149,
        1.151,
        (
            record("rank:argus_phase_suspect:lost_ratio"),
            record("rank:argus_phase_suspect:median_ratio"),
            CULPRIT,
            record("rank:argus_verdict:active"),
            record("job:argus_lost_gpus:current"),
            fires("ArgusStragglerRank", "ticket"),
        ),
    ),
    Boundary("5 % of the time", slow_rank(), 1.186, 1.190, (fires("ArgusStragglerRank", "page"),)),
    Boundary(
        "1.4 at once",
        slow_rank(),
        1.39,
        1.41,
        (record("rank:argus_phase_duration_seconds:fast_ratio"), fires("ArgusStragglerRank", "info")),
    ),
    Boundary(
        "1.4 at once, on the host", slow_rank("data", "host"), 1.39, 1.41, (fires("ArgusHostStall", "info"),)
    ),
    Boundary(
        "5 % of the time, on the host",
        slow_rank("data", "host"),
        1.186,
        1.190,
        (fires("ArgusHostStall", "page"),),
    ),
    Boundary(
        "cv 0.02",
        two_levels,
        0.0370,
        0.0385,
        (
            record("group:argus_phase_duration_seconds:max"),
            record("rank:argus_phase_duration_seconds:zscore"),
            record("rank:argus_phase_duration_seconds:median_ratio"),
        ),
    ),
    Boundary("4 ranks", of_ranks, 3, 4, (record("group:argus_phase_zscore_threshold:current"),)),
    Boundary(
        "2 ranks",
        of_ranks,
        1,
        2,
        (
            record("group:argus_phase_duration_seconds:stddev"),
            record("group:argus_phase_duration_seconds:cv"),
        ),
    ),
    Boundary(
        "3 spans in an interval",
        lambda spans: slow_rank(spans=spans)(2.0),
        2.9,
        3,
        (record("rank:argus_phase_duration_seconds:fast_slow"),),
    ),
    Boundary(
        "3 spans in two minutes",
        with_spans,
        0.38,
        0.37,
        (record("rank:argus_phase_duration_seconds:mean_long"),),
    ),
    Boundary(
        "6 spans in two minutes",
        with_spans,
        0.76,
        0.74,
        (
            record("group:argus_phase_spans:few"),
            record("rank:argus_phase_duration_seconds:long_sum"),
            record("rank:argus_phase_duration_seconds:long_count"),
        ),
    ),
    Boundary(
        "3 spans in half an hour", with_spans, 0.01, 0.38, (record("group:argus_phase_window:seconds"),)
    ),
    Boundary("half the lead", launching, 0.0101, 0.01, (record("rank:argus_issue_latency:low_ratio"),)),
    Boundary("two minutes gone", gone, 8, 7, (record("rank:argus_rank:left"),)),
    Boundary(
        "80 % of the group",
        missing,
        2,
        3,
        (
            record("group:argus_phase_coverage:low_ratio"),
            record("rank:argus_verdict:active", 'verdict="abstain"'),
        ),
    ),
    Boundary("less than 3 ranks", of_ranks, 3, 2, (record("group:argus_phase_ranks:few"),)),
    Boundary("half of the host's excess", held_up, 1.49, 1.51, (record("rank:argus_slow_host:lost_ratio"),)),
    Boundary(
        "2 % of the time, within",
        waiting_within,
        0.0745,
        0.0755,
        (record("rank:argus_phase_waiting:lost_ratio"),),
    ),
    Boundary(
        "0.5 % of the time",
        slow_rank(),
        1.0210,
        1.0216,
        (record("rank:argus_phase_excess:lost_ratio"), record("rank:argus_phase_duration_seconds:fast_slow")),
    ),
    Boundary(
        "2 % of the time, late",
        late,
        0.0745,
        0.0755,
        (
            record("rank:argus_collective_late:lost_ratio"),
            record("rank:argus_collective_waiting:lost_ratio"),
            record("rank:argus_collective_late:unexcused_lost_ratio"),
            fires("ArgusCollectiveLateRank", "ticket"),
        ),
    ),
    Boundary("5 % of the time, late", late, 0.187, 0.188, (fires("ArgusCollectiveLateRank", "page"),)),
    Boundary(
        "1.4 at once, late",
        late,
        0.142,
        0.144,
        (record("rank:argus_phase_striking:ratio"), fires("ArgusCollectiveLateRank", "info")),
    ),
    Boundary(
        "3 groups",
        lambda groups: linked(int(groups), 0.5),
        2,
        3,
        (record("group:argus_collective_transfer:ratio"),),
    ),
    Boundary(
        "1.5 of the peers",
        lambda seconds: linked(3, seconds),
        0.745,
        0.755,
        (
            record("rank:argus_collective_transfer:slow"),
            record("group:argus_collective_slow_link:lost_ratio"),
            record("rank:argus_collective_slow_link:lost_ratio"),
            fires("ArgusCollectiveSlowLink", "page"),
        ),
    ),
    Boundary("3 times the median", longest, 2.99, 3.01, (record("rank:argus_phase_spike:seconds"),)),
    Boundary(
        "1.5 times the shortest",
        last_slow,
        1.5,
        1.51,
        (
            record("job:argus_iteration:jitter_run_seconds"),
            record("job:argus_iteration:jitter_width_seconds"),
            record("job:argus_iteration:class", 'class="jitter"'),
            fires("ArgusIterationJitter", "info"),
        ),
    ),
    # Ten of forty evaluations, and three more until the alert has waited 45 seconds.
    Boundary("a quarter of ten minutes", slow_since, 12, 13, (fires("ArgusIterationJitter", "ticket"),)),
    Boundary(
        "5 % slower",
        step_change,
        1.0499,
        1.0501,
        (
            record("job:argus_iteration:regression_ratio"),
            record("job:argus_iteration:regression_split_timestamp_seconds"),
            record("job:argus_iteration:class", 'class="regression"'),
            record("job:argus_lost_gpus:current"),
            fires("ArgusIterationRegression", "page"),
        ),
    ),
    Boundary(
        "a minute without an iteration",
        stalled,
        4,
        5,
        (
            record("job:argus_stalled:seconds"),
            record("rank:argus_stall_open:timestamp_seconds"),
            record("rank:argus_stall_sequence:collectives"),
            record("rank:argus_stall_lag:collectives"),
            record("rank:argus_stall_culprit:bool"),
            record("rank:argus_stall_victim:bool"),
            fires("ArgusTrainingStalled", "page"),
        ),
    ),
    Boundary("half of the ranks to blame", behind, 3, 4, (record("rank:argus_stall_suspect:bool"),)),
    Boundary("80 % in the collective", in_collective, 6, 7, (record("job:argus_stall_collective:bool"),)),
    Boundary(
        "2 % in collection",
        collecting,
        0.29,
        0.31,
        (
            record("rank:argus_host_pause:recent_seconds"),
            record("rank:argus_phase_suspect:lost_ratio", 'phase="gc"'),
        ),
    ),
    Boundary(
        "0.5 % in collection",
        collecting,
        0.074,
        0.076,
        (record("rank:argus_host_pause:lost_ratio"),),
    ),
    Boundary(
        "2 % in collection, in turn",
        in_turn,
        1.27,
        1.30,
        (record("job:argus_gc_unsynchronised:lost_ratio"), fires("ArgusHostStall", "ticket")),
    ),
    Boundary(
        "3 % slower kernels",
        lambda shift: kernel(shift, 0.3),
        0.03,
        0.031,
        (fires("ArgusKernelDegraded", "ticket"), fires("ArgusKernelGroupShift", "ticket")),
    ),
    Boundary(
        "50 % slower kernels",
        lambda shift: kernel(shift, 0.3),
        0.5,
        0.51,
        (fires("ArgusKernelDegraded", "info"),),
    ),
    Boundary(
        "1 % of the time in kernels",
        lambda share: kernel(0.2, share),
        0.059,
        0.061,
        (fires("ArgusKernelDegraded", "page"),),
    ),
    Boundary("two minutes lost", lost_since, 7, 8, (fires("ArgusRankMissing", "ticket"),)),
    Boundary(
        "five minutes without a channel", without_channel, 19, 20, (fires("ArgusChannelDown", "ticket"),)
    ),
    Boundary("1 % of the records", dropping, 10, 10.1, (fires("ArgusRecordsDropped", "ticket"),)),
    Boundary("1 % of a core", observing, 0.149, 0.151, (fires("ArgusOverheadBudget", "ticket"),)),
    Boundary("cv 0.05 and 5 % of the time", fan, 0.150, 0.158, (fires("ArgusGroupImbalance", "ticket"),)),
    Boundary("5 % of the time, uneven", fan, 0.124, 0.126, (fires("ArgusGroupImbalance", "info"),)),
    Boundary(
        "two minutes of training",
        resumed,
        8,
        7,
        (record("rank:argus_verdict:active", 'verdict="abstain"'),),
    ),
    Boundary(
        "cv 0.02 of the work",
        two_works,
        0.040,
        0.042,
        (
            record("rank:argus_work:rate"),
            record("rank:argus_phase_work:seconds"),
            record("rank:argus_phase_work:median_ratio"),
        ),
    ),
    # The middle half by work is half as wide as by time at 0.0996.
    Boundary("half the spread", fitted, 0.0998, 0.0994, (record("group:argus_phase_work:fit"),)),
    Boundary("1.15 of the work", burdened, 1.149, 1.151, (record("rank:argus_work_imbalance:lost_ratio"),)),
    Boundary("1.15 of the stages", staged, 1.34, 1.37, (record("job:argus_stage_imbalance:ratio"),)),
    Boundary(
        "5 % slower than history",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.049,
        1.051,
        (
            record("job:argus_history:lost_ratio"),
            fires("ArgusIterationRegression", "ticket"),
        ),
    ),
    Boundary(
        "3 % slower than history",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.029,
        1.031,
        (record("job:argus_history:slowdown_ratio"),),
    ),
    Boundary(
        "5 % slower than history is healthy no more",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.051,
        1.049,
        (record("job:argus_signature:healthy"),),
    ),
    Boundary(
        "half as far ahead",
        lambda latency: runs.ahead(EIGHT, 8, latency),
        0.0201,
        0.02,
        (fires("ArgusIterationRegression", "info"),),
    ),
    Boundary(
        "beyond the first host",
        lowest,
        7,
        8,
        (
            record("rank:argus_rank_live:fallback"),
            record("rank:argus_rank:number"),
            record("job:argus_canonical_rank:number"),
        ),
    ),
)
