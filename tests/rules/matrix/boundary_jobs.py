"""Jobs on either side of a threshold: each is healthy but for the one value that it is built with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rules.matrix.jobs import STALE, STEP, Job

AT = 60
"""The sample at which everything is asked."""
EIGHT = range(8)


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
            part.add("argus_rank_info", 1, rank=rank, dp=index, pp=rank % 2)
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


def congested(share: float) -> Job:
    """Steps take 1.25 s instead of 1 s, and twelve collectives by so much of it longer."""
    job = step_change(1.25)
    grown = share * 0.2 * STEP / 12
    job.phase(0, "all_reduce", lambda sample: 0.1 + grown * (sample > AT - 20), 12, kind="comm")
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


def overloaded(more: float) -> Job:
    """Rank 7 has twice the work, and rank 1 so much more than the others."""
    return worked({1: 1 + more, 7: 2.0}, {1: 1 + more, 7: 2.0})


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


def pinning(share: float) -> Job:
    """Rank 1 loads for a second longer in each of four steps, and pins memory for that share of its time."""
    job = slow_rank("data", "host")(2.0)
    for frame, samples in (
        ("pin_memory (torch.utils.data._utils.pin_memory)", share),
        ("forward (model)", 1 - share),
    ):
        job.counter("argus_stack_samples_total", 150 * samples, rank=1, thread="MainThread", frame=frame)
    return job


def lowest(rank: float) -> Job:
    job = members([int(rank), 20])
    job.iterations(1.0)
    return job
