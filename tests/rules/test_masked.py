"""Stragglers that the mean of one phase hides: a long pipeline stage, a rank with rare spikes."""

from __future__ import annotations

from rules.scenario import STORIES, Scenario

pytestmark = STORIES

CULPRITS = "max by (rank, phase, cause) (rank:argus_verdict:active{verdict='culprit'})"
PIPELINES, STAGES = 4, 2


def pipelines(samples: int) -> Scenario:
    """Four pipelines of two stages: rank 2 p + s is stage s of pipeline p; groups hold one stage."""
    job = Scenario(("job", "phases", "masked", "verdicts"))
    for stage in range(STAGES):
        job.ranks(range(stage, PIPELINES * STAGES, STAGES), samples, group=f"dp:pp{stage}")
    return job


def test_a_long_last_stage_is_compared_with_that_of_other_pipelines() -> None:
    """Backward 1.9 times as long on the last stage of pipeline 2; gradient synchronisation aligns the steps.

    The first stages are slower than the last ones throughout: no comparison across stages.
    """
    job = pipelines(60)
    for rank in range(8):
        stage, slow = rank % 2, rank == 5
        backward = (1.0 if stage else 2.0) * (1.9 if slow else 1)
        idle = 3.0 - backward
        group = f"dp:pp{stage}"
        job.phase(rank, "forward", "0+4x60", "0+2x60", group=group)
        job.phase(rank, "backward_compute", "0+4x60", f"0+{4 * backward}x60", group=group)
        job.phase(rank, "grad_sync", "0+4x60", f"0+{4 * idle}x60", group=group, kind="comm")
    job.expect(CULPRITS, "10m", {'{rank="5", phase="backward_compute", cause="gpu-compute"}': 1})
    job.run()


def test_the_least_idle_time_finds_what_every_phase_hides() -> None:
    """Waits fill the phases of all ranks alike; the kernels of rank 5 run 1.9 times as long."""
    job = pipelines(60)
    for rank in range(8):
        stage = rank % 2
        job.phase(rank, "backward", "0+4x60", "0+12x60", group=f"dp:pp{stage}")
        busy = (5 if stage else 9) * (1.9 if rank == 5 else 1)
        job.add(
            "argus_kernel_duration_seconds_total", f"0+{busy}x60", rank=rank, kernel="gemm", stream="compute0"
        )
        job.add("argus_kernel_duration_seconds_total", "0+9x60", rank=rank, kernel="nccl", stream="nccl:dp")
    job.expect(CULPRITS, "10m", {'{rank="5", phase="all", cause="gpu-compute"}': 1})
    job.expect('round(rank:argus_bubble:ratio{rank=~"5|7"}, 0.001)', "10m", {
        '{training_job="a", rank="5", group="dp:pp1", source="kernel"}': 0.367,
        '{training_job="a", rank="7", group="dp:pp1", source="kernel"}': 0.667,
    })  # fmt: skip
    job.run()


def test_a_rank_whose_kernels_are_not_seen_is_compared_with_nobody() -> None:
    """Busy for 0.8 of the time by its phases, the others for 0.33 by their kernels: no measure is of both."""
    job = pipelines(60)
    for rank in range(8):
        job.phase(rank, "forward", "0+4x60", "0+12x60", group=f"dp:pp{rank % 2}")
        if rank != 5:
            job.add(
                "argus_kernel_duration_seconds_total", "0+5x60", rank=rank, kernel="gemm", stream="compute0"
            )
    job.expect('round(rank:argus_compute_busy:ratio{rank=~"5|7"}, 0.001)', "10m", {
        '{training_job="a", rank="5", group="dp:pp1", source="phase"}': 0.8,
        '{training_job="a", rank="7", group="dp:pp1", source="kernel"}': 0.333,
    })  # fmt: skip
    job.expect(CULPRITS, "10m", {})
    job.run()


def spiking(spikes: dict[int, list[int]]) -> Scenario:
    """Eight ranks with spans of 1 s; spikes of 9 s, by rank, in the windows (minutes) given."""
    job = Scenario(("job", "phases", "masked", "verdicts"))
    job.ranks(range(8), 130)
    for rank in range(8):
        job.phase(rank, "forward", "0+10x130", "0+10x130")
        minutes = [9 if minute in spikes.get(rank, []) else 1 for minute in range(32)]
        values = " ".join(f"{value}x3" for value in minutes)
        job.add(
            "argus_phase_window_max_seconds", values, rank=rank, phase="forward", kind="compute", group="dp"
        )
    return job


def test_rare_spikes_of_one_rank_are_counted() -> None:
    """One span of 9 s in every fifth minute: 2.4 % of the time, while its mean barely moves."""
    job = spiking({3: [2, 6, 11, 16, 21, 26]})
    job.expect(CULPRITS, "30m", {'{rank="3", phase="forward", cause="gpu-compute"}': 1})
    job.run()


def test_spikes_as_long_as_what_the_rank_compiled_are_its_host() -> None:
    """Each time rank 3 compiles for 8 s: nothing is wrong with its GPU."""
    job = spiking({3: [2, 6, 11, 16, 21, 26]})
    # promtool evaluates every group each 15 seconds, and so counts a spike of the minute four times.
    seconds = " ".join(
        f"{4 * 8 * sum(minute >= at for at in (2, 6, 11, 16, 21, 26))}x3" for minute in range(32)
    )
    job.add("argus_compile_seconds_sum", seconds, rank=3, compiler="triton")
    job.expect(CULPRITS, "30m", {'{rank="3", phase="compile", cause="host-jit"}': 1})
    job.run()


def test_spikes_of_all_ranks_accuse_nobody() -> None:
    """The same spikes everywhere: jitter of the job."""
    job = spiking({rank: [2, 6, 11, 16, 21, 26] for rank in range(8)})
    job.expect(CULPRITS, "30m", {})
    job.run()


def test_a_single_spike_accuses_nobody() -> None:
    """Once is not a straggler, however long."""
    job = spiking({3: [6]})
    job.expect(CULPRITS, "30m", {})
    job.run()
