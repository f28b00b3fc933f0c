"""Pauses of the host, rare spikes, kernels, the hardware beside a verdict, and ARGUS itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rules.matrix.jobs import Job
from rules.matrix.world import Case, Row, Says, World, alert

Ranks = Sequence[int]


def some(ranks: Ranks, row: Row, least: int = 2) -> Row:
    return row if len(ranks) >= least else {}


def always(row: Row) -> Callable[[Ranks], Row]:
    return lambda _: row


def pauses_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Rank 1 collects for 2 s of 15 s, the others for 0.15 s; and it compiles for 3 s of 15 s."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        slow = fault and rank == 1
        job.counter("argus_gc_pause_seconds_sum", 2.0 if slow else 0.15, rank=rank, generation=2)
        job.counter("argus_gc_pause_seconds_count", 10.0 if slow else 1.0, rank=rank, generation=2)
        job.counter("argus_compile_seconds_sum", 3.0 if slow else 0.0, rank=rank, compiler="dynamo")
    return job


def collecting(ranks: Ranks) -> list[float]:
    return [(2.0 if rank == 1 else 0.15) / 15 for rank in ranks]


def each(value: float) -> Callable[[Ranks], Row]:
    """The same of every rank."""
    return lambda ranks: {f"{rank}": value for rank in ranks}


def per_rank(values: Sequence[float], ranks: Ranks) -> Row:
    return {f"{rank}": value for rank, value in zip(ranks, values, strict=True)}


PAUSED = {"1 gc": (2.0 - 0.15) / 15, "1 compile": 3.0 / 15}
PAUSES = World(
    "host pauses",
    ("phases", "host", "verdicts"),
    pauses_build,
    (
        Says(
            "rank:argus_gc_pause:ratio",
            "rank",
            lambda ranks: per_rank(collecting(ranks), ranks),
            quiet=lambda ranks: per_rank([0.01] * 8, ranks),
        ),
        Says(
            "rank:argus_compile:ratio",
            "rank",
            lambda ranks: per_rank([0.2 * (rank == 1) for rank in ranks], ranks),
            quiet=lambda ranks: per_rank([0.0] * 8, ranks),
        ),
        Says(
            "job:argus_gc_pause:mean_ratio",
            "",
            lambda ranks: {"": sum(collecting(ranks)) / len(ranks)},
            quiet=always({"": 0.01}),
        ),
        Says(
            "job:argus_gc_pause:slowest_ratio",
            "",
            lambda ranks: {"": max(collecting(ranks))},
            quiet=always({"": 0.01}),
        ),
        Says(
            "rank:argus_host_pause:lost_ratio",
            "rank phase",
            lambda ranks: {
                **{f"{rank} gc": value for rank, value in zip(ranks, collecting(ranks), strict=True)},
                **some(ranks, {"1 compile": 0.2}),
            },
            quiet=lambda ranks: {f"{rank} gc": 0.01 for rank in ranks},
        ),
        Says(
            "rank:argus_host_pause:recent_seconds",
            "rank phase",
            lambda ranks: some(ranks, {"1 gc": 4 * 2.0, "1 compile": 4 * 3.0}),
        ),
        # Two cannot say which of them is unusual.
        Says("rank:argus_phase_suspect:lost_ratio", "rank phase", lambda ranks: some(ranks, PAUSED, 3)),
        alert("ArgusHostStall", "page", "rank phase", lambda ranks: some(ranks, {"1 compile": 1}, 3)),
        alert("ArgusHostStall", "ticket", "rank phase", lambda ranks: some(ranks, {"1 gc": 1}, 3)),
    ),
)

PERIOD, PAUSE = 20, 1.95
"""Samples from one collection of a rank to its next, and its seconds. Ten minutes hold two periods."""


def unsynchronised_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Every rank collects as long, half a minute after the one before it; in a healthy job all at once."""
    job = Job(80, ranks, size)
    job.membership()
    for rank in ranks:
        first = 2 * rank if fault else 0
        for part, each in (("sum", PAUSE), ("count", 1.0)):
            job.counter(
                f"argus_gc_pause_seconds_{part}",
                lambda sample, first=first, each=each: each if sample % PERIOD == first else 0.0,
                begin=100,
                rank=rank,
                generation=2,
            )
    return job


def unsynchronised(ranks: Ranks) -> float:
    """A pause is seen in 45 seconds, that is three evaluations; those of the next rank cover two more."""
    seen = min(PERIOD, 3 + 2 * (len(ranks) - 1)) / PERIOD
    return seen * PAUSE / 45 - PAUSE / (15 * PERIOD)


UNSYNCHRONISED = World(
    "unsynchronised collection",
    ("phases", "host", "verdicts"),
    unsynchronised_build,
    (
        Says(
            "job:argus_gc_unsynchronised:lost_ratio",
            "phase",
            lambda ranks: some(ranks, {"gc": unsynchronised(ranks)}, 7),
            # A second scraper sees each pause an interval longer; a counter from 0 is extrapolated less.
            instead={Case.TWO_SCRAPERS: None, Case.RESTART: None, Case.TWO_INSTANCES: None},
        ),
        alert("ArgusHostStall", "ticket", "phase", lambda ranks: some(ranks, {"gc": 1}, 7)),
    ),
    at=76,
)

MINUTES = (3, 7, 12, 17, 22, 27, 30)
"""Of the spikes. The half hour that ends at 30m holds them all."""


def spikes_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Spans of 1 s; on rank 1 one of 9 s now and then, which its mean hides."""
    job = Job(124, ranks, size)
    job.membership()
    for rank in ranks:
        job.phase(rank, "forward", 1 + spread * (rank % 3 - 1))
        longest = job.series.pop()
        assert longest.metric == "argus_phase_window_max_seconds"
        job.add(
            longest.metric,
            lambda sample, rank=rank: 9.0 if fault and rank == 1 and sample // 4 in MINUTES else 1.0,
            **longest.labels,
        )
    return job


def spiking(ranks: Ranks) -> Row:
    """Thrice the average rank's spikes: of two or three ranks, no rank can have that; of four, nearly all."""
    return some(ranks, {"1 forward": 8.0 * len(MINUTES) / 1800}, 3)


SPIKES = World(
    "rare spikes",
    ("phases", "masked", "verdicts"),
    spikes_build,
    (
        Says("rank:argus_phase_spike:seconds", "rank phase", lambda ranks: some(ranks, {"1 forward": 8.0})),
        Says("rank:argus_phase_suspect:lost_ratio", "rank phase", spiking, matchers='source="spikes"'),
    ),
    at=120,
    change=80,
    evaluation=60,
)


def kernels_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Two workers say that gemm (40 % of the time) is 20 % slower on rank 1, and copy (10 %) 60 %."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        for kernel, seconds in (("gemm", 6.0), ("copy", 1.5)):
            job.counter(
                "argus_kernel_duration_seconds_total", seconds, rank=rank, kernel=kernel, stream="compute0"
            )
    for replica in ("a", "b") if fault else ():
        for kernel, shift in (("gemm", 0.2), ("copy", 0.6)):
            if 1 in ranks:
                job.add(
                    "argus_l3_anomaly",
                    shift,
                    rank=1,
                    kernel=kernel,
                    stream="compute0",
                    cause="gpu-compute",
                    verdict="culprit",
                    team="operations",
                    replica=replica,
                )
        job.add(
            "argus_l3_group_shift",
            0.07,
            role="all",
            kernel="gemm",
            stream="compute0",
            coordinate="node",
            value="host7",
            replica=replica,
        )
    return job


KERNEL_COST = {"gemm": (1 - 1 / 1.2) * 0.4, "copy": (1 - 1 / 1.6) * 0.1}
KERNELS = World(
    "slow kernels",
    ("phases", "verdicts"),
    kernels_build,
    (
        Says(
            "rank:argus_kernel_busy:ratio",
            "rank",
            each(0.5),
            quiet=each(0.5),
        ),
        Says(
            "rank:argus_kernel_anomaly:lost_ratio",
            "rank kernel",
            lambda ranks: some(ranks, {f"1 {kernel}": cost for kernel, cost in KERNEL_COST.items()}),
        ),
        Says(
            "rank:argus_verdict:lost_ratio",
            "rank kernel",
            lambda ranks: some(ranks, {f"1 {kernel}": cost for kernel, cost in KERNEL_COST.items()}),
            matchers='level="L3"',
        ),
        alert("ArgusKernelDegraded", "info", "rank kernel", lambda ranks: some(ranks, {"1 copy": 1})),
        alert("ArgusKernelDegraded", "ticket", "rank kernel", lambda ranks: some(ranks, {"1 copy": 1})),
        alert("ArgusKernelDegraded", "page", "rank kernel", lambda ranks: some(ranks, {"1 gemm": 1})),
        alert("ArgusKernelGroupShift", "ticket", "kernel value", always({"gemm host7": 1})),
    ),
    # Alerts of the worker's verdicts bridge three minutes.
    leaves=16,
    # Without scrapes nobody knows a kernel's share of the time.
    tolerates=frozenset({(Case.GAP, "ArgusKernelDegraded")}),
)


def contention_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Rank 1 loads and computes for twice as long: its host is slow."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        seconds = 2.0 if fault and rank == 1 else 1 + spread * (rank % 3 - 1)
        job.phase(rank, "data", seconds, kind="host")
        job.phase(rank, "forward", seconds)
    return job


def contended(ranks: Ranks) -> float:
    """Of a pair the median is half-way."""
    return (0.5 if len(ranks) == 2 else 1.0) * 4 / 15


CONTENTION = World(
    "contention",
    ("phases", "verdicts"),
    contention_build,
    (
        Says(
            "rank:argus_slow_host:lost_ratio",
            "rank phase",
            lambda ranks: some(ranks, {"1 forward": contended(ranks)}),
        ),
        Says(
            "rank:argus_verdict:lost_ratio",
            "rank phase cause",
            # What it loses in either phase.
            lambda ranks: some(ranks, {"1 all host-cpu": 2 * contended(ranks)}),
            matchers='verdict="culprit"',
        ),
    ),
)


def stacks_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Rank 1 loads for twice as long, two fifths of its time in pin_memory; rank 0 compiles for a fifth."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        job.phase(rank, "data", 2.0 if fault and rank == 1 else 1.0, kind="host")
        telling = {
            0: ("compile (triton.compiler.compiler)", 30.0),
            1: ("pin_memory (torch.utils.data._utils.pin_memory)", 60.0),
        }
        frame, samples = telling.get(rank, ("", 0.0)) if fault else ("", 0.0)
        for name, gain in ((frame, samples), ("forward (model)", 150.0 - samples)):
            if gain:
                job.counter("argus_stack_samples_total", gain, rank=rank, thread="MainThread", frame=name)
    return job


STACKS = World(
    "stacks",
    ("phases", "host", "verdicts"),
    stacks_build,
    (
        Says(
            "rank:argus_stack_samples:rate",
            "rank",
            each(10.0),
            quiet=each(10.0),
        ),
        Says(
            "rank:argus_stack_frames:ratio",
            "rank cause",
            lambda ranks: {"0 host-jit": 0.2, **some(ranks, {"1 host-alloc": 0.4})},
        ),
        Says(
            "job:argus_stack_code:lost_ratio",
            "phase cause",
            lambda ranks: some(ranks, {"data host-alloc": contended(ranks)}),
        ),
        Says(
            "rank:argus_verdict:lost_ratio",
            "rank phase cause",
            lambda ranks: some(ranks, {"- data host-alloc": contended(ranks)}),
            matchers='verdict="culprit"',
        ),
        alert("ArgusHostStall", "page", "rank phase", lambda ranks: some(ranks, {"- data": 1})),
    ),
)


def hardware_build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    """Rank 1 is slow; its GPU runs at 900 MHz, and two ranks share a host and its network card."""
    job = Job(64, ranks, size)
    job.membership()
    for rank in ranks:
        job.phase(rank, "forward", 2.0 if fault and rank == 1 else 1 + spread * (rank % 3 - 1))
        job.add("argus_rank_info", 1, rank=rank, node=f"host{rank // 2}", gpu_uuid=f"GPU-{rank}")
        gpu = {"UUID": f"GPU-{rank}", "hostname": f"host{rank // 2}"}
        job.add("DCGM_FI_DEV_SM_CLOCK", 900 if rank == 1 else 1980, **gpu)
        if rank % 2 == 0:
            job.counter(
                "node_infiniband_port_data_transmitted_bytes_total",
                1500,
                instance=f"host{rank // 2}:9100",
                device="mlx5_0",
            )
    return job


HARDWARE = World(
    "hardware",
    ("phases", "verdicts", "hardware"),
    hardware_build,
    (
        Says(
            "rank:argus_hardware:current",
            "rank gpu_uuid node field",
            lambda ranks: some(
                ranks,
                {
                    "1 GPU-1 - sm_clock_megahertz": 900,
                    "1 - host0 nic_transmitted_bytes_per_second": 100,
                },
            ),
        ),
    ),
)


def health_build(ranks: Ranks, size: int, fault: bool, _: float) -> Job:
    """Rank 1 is lost at 10m and has no kernel channel; records are dropped; ARGUS takes 1.2 % of a core."""
    job = Job(96, ranks, size)
    for rank in ranks:
        job.add(
            "argus_rank_up",
            lambda sample, rank=rank: float(not (fault and rank == 1 and sample >= 40)),
            rank=rank,
        )
        job.add("argus_group_expected_ranks", size, rank=rank, group="dp")
        down = fault and rank == 1
        job.add("argus_channel_up", float(not down), rank=rank, channel="kernels")
        if down:
            job.add("argus_channel_info", 1, rank=rank, channel="kernels", reason="cupti_refused")
        job.counter("argus_records_total", 1000, rank=rank, channel="phases")
        job.counter(
            "argus_records_dropped_total",
            20 if fault else 5,
            rank=rank,
            channel="phases",
            reason="queue_full",
        )
        for channel in ("phases", "kernels"):
            job.counter(
                "argus_producer_cpu_seconds_total", 0.09 if fault else 0.05, rank=rank, channel=channel
            )
    return job


HEALTH = World(
    "health",
    ("phases", "verdicts"),
    health_build,
    (
        Says("rank:argus_rank:lost", "rank", lambda ranks: some(ranks, {"1": 0})),
        alert(
            "ArgusRankMissing",
            "ticket",
            "group",
            lambda ranks: some(ranks, {"-": 1}),
        ),
        alert(
            "ArgusChannelDown",
            "ticket",
            "channel reason",
            lambda ranks: some(ranks, {"kernels cupti_refused": 1}),
        ),
        alert("ArgusRecordsDropped", "ticket", "channel reason", always({"phases queue_full": 1})),
        alert("ArgusOverheadBudget", "ticket", "", always({"": 1})),
    ),
    # A rate over five minutes outlasts the job by as long.
    leaves=22,
    # The budget's alert waits ten minutes, and begins again when the gap leaves the rate's window.
    at=92,
)

WORLDS = (PAUSES, UNSYNCHRONISED, SPIKES, KERNELS, CONTENTION, STACKS, HARDWARE, HEALTH)
