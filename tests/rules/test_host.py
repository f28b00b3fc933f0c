"""Host pauses: garbage collection that is not synchronised over ranks, compilation on one rank."""

from __future__ import annotations

import pytest

from argus_exporter.stacks.folded import frame_label
from rules.scenario import STORIES, Scenario

pytestmark = STORIES

SAMPLES = 100
RANKS = 8
CULPRITS = "max by (rank, phase, cause, team) (rank:argus_verdict:active{verdict='culprit'})"
FIRING = 'max by (alertname, severity, rank) (ALERTS{alertstate="firing"})'
AT = "20m"


def job_of() -> Scenario:
    job = Scenario(("job", "phases", "host", "verdicts"))
    job.ranks(range(RANKS), SAMPLES)
    return job


def pauses(job: Scenario, rank: int, seconds: float, first: int, every: int) -> None:
    """A collection of `seconds` each `every` samples."""
    collections = [max(0, (sample - first) // every + 1) for sample in range(SAMPLES)]
    for part, each in (("sum", seconds), ("count", 1)):
        text = " ".join(f"{each * number:g}" for number in collections)
        job.add(f"argus_gc_pause_seconds_{part}", text, rank=rank, generation=2)


def test_collections_at_different_steps_name_the_job() -> None:
    """Each rank pauses 1.5 s in four minutes, half a minute after the one before: no rank, and a ticket.

    The job loses a twentieth; the bound by the longest pause of each 45 seconds comes close to it.
    """
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 1.5, first=2 * rank + 2, every=16)
    job.expect(CULPRITS, AT, {'{phase="gc", cause="host-gc", team="algorithm"}': 1})
    job.expect(FIRING, AT, {
        '{alertname="ArgusHostStall", severity="ticket"}': 1
    })  # fmt: skip
    job.run()


@pytest.mark.parametrize(
    ("phase", "more", "slow"), [("forward", 0.5, False), ("attention", 1.0, False), ("forward", 1.0, True)]
)
def test_who_waits_for_them_is_not_slow(phase: str, more: float, slow: bool) -> None:
    """The same, and rank 3 takes so many seconds of 15 longer: as long as a mate may collect, or a slow GPU.

    Layers contain all that mates keep one another waiting, so they are excused more.
    """
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 1.5, first=2 * rank + 2, every=16)
        seconds = 0.5 + more * (rank == 3)
        job.phase(rank, phase, f"0+4x{SAMPLES}", f"0+{seconds}x{SAMPLES}")
    suspects = f"max by (rank) (rank:argus_phase_suspect:lost_ratio{{phase='{phase}'}} ^ 0)"
    job.expect(suspects, AT, {'{rank="3"}': 1})
    named = {'{phase="gc", cause="host-gc", team="algorithm"}': 1.0}
    if slow:
        named['{rank="3", phase="forward", cause="gpu-compute", team="operations"}'] = 1.0
    job.expect(CULPRITS, AT, named)
    job.run()


@pytest.mark.parametrize(("phase", "slow"), [("attention", False), ("forward", True)])
def test_a_layer_is_not_slow_while_mates_have_just_begun_to_collect(phase: str, slow: bool) -> None:
    """Four of them paused 1.5 s in the last minute: too little for a mean over ten minutes, judged later."""
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 1.5, first=77 + rank if rank < 4 else SAMPLES, every=SAMPLES)
        seconds = 0.5 + 0.5 * (rank == 3)
        job.phase(rank, phase, f"0+4x{SAMPLES}", f"0+{seconds}x{SAMPLES}")
    suspects = f"max by (rank) (rank:argus_phase_suspect:lost_ratio{{phase='{phase}'}} ^ 0)"
    job.expect(suspects, AT, {'{rank="3"}': 1})
    named = {f'{{rank="3", phase="{phase}", cause="gpu-compute", team="operations"}}': 1.0}
    job.expect(CULPRITS, AT, named if slow else {})
    job.run()


def test_collections_at_the_same_step_accuse_nobody() -> None:
    """The same pauses on all ranks at once cost 1.25 % and are how it should be."""
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 3, first=2, every=16)
    job.expect(CULPRITS, AT, {})
    job.run()


def test_hosts_scraped_at_different_moments_stay_synchronous() -> None:
    """Half of the hosts are scraped before the pause and half after it: one sample apart, still one pause."""
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 12, first=2 + rank % 2, every=16)
    job.expect(CULPRITS, AT, {})
    job.run()


def test_one_rank_that_collects_all_the_time_is_named() -> None:
    """A second of pauses in 15 on rank 5 alone."""
    job = job_of()
    for rank in range(RANKS):
        pauses(job, rank, 1 if rank == 5 else 0.01, first=0, every=1)
    job.expect(CULPRITS, AT, {'{rank="5", phase="gc", cause="host-gc", team="algorithm"}': 1})
    job.run()


def test_one_that_happens_to_collect_twice_is_not() -> None:
    """Each rank collects for 6 s once in 17 minutes, and rank 5 twice within two: by chance."""
    job = job_of()
    for rank in range(RANKS):
        first = 72 if rank == 5 else 10 * rank
        pauses(job, rank, 6, first=first, every=4 if rank == 5 else 70)
    job.expect(CULPRITS, "19m30s", {'{phase="gc", cause="host-gc", team="algorithm"}': 1})
    job.run()


def test_a_compilation_explains_the_phase_that_contains_it() -> None:
    """Rank 5 compiles 4 s in 15 inside `forward`: host-jit of rank 5, and not its GPU."""
    job = job_of()
    for rank in range(RANKS):
        seconds = 8 if rank == 5 else 4
        job.phase(rank, "forward", f"0+4x{SAMPLES}", f"0+{seconds}x{SAMPLES}")
        job.add("argus_compile_seconds_sum", f"0+{seconds - 4}x{SAMPLES}", rank=rank, compiler="triton")
    job.expect(CULPRITS, AT, {'{rank="5", phase="compile", cause="host-jit", team="infrastructure"}': 1})
    job.run()


def test_compilation_on_all_ranks_accuses_nobody() -> None:
    """New shapes reach all ranks alike."""
    job = job_of()
    for rank in range(RANKS):
        job.add("argus_compile_seconds_sum", f"0+4x{SAMPLES}", rank=rank, compiler="dynamo")
    job.expect(CULPRITS, AT, {})
    job.run()


def test_a_pause_does_not_hide_a_slow_gpu() -> None:
    """Rank 5 loses a second to compilation and eight to its GPU: both are said."""
    job = job_of()
    for rank in range(RANKS):
        job.phase(rank, "forward", f"0+4x{SAMPLES}", f"0+{13 if rank == 5 else 4}x{SAMPLES}")
        job.add("argus_compile_seconds_sum", f"0+{int(rank == 5)}x{SAMPLES}", rank=rank, compiler="triton")
    job.expect(CULPRITS, AT, {
        '{rank="5", phase="compile", cause="host-jit", team="infrastructure"}': 1,
        '{rank="5", phase="forward", cause="gpu-compute", team="operations"}': 1,
    })  # fmt: skip
    job.run()


LOADING = frame_label("_SingleProcessDataLoaderIter._next_data (torch/utils/data/dataloader.py:788)")
PINNING = frame_label("pin_memory (torch/utils/data/_utils/pin_memory.py:64)")


def loading(job: Scenario, slow: dict[int, str], turn: int = SAMPLES) -> None:
    """A second of data a step; of these ranks four, in one frame; from `turn` on only of rank 6."""
    for rank in range(RANKS):
        gains = [
            (4 if rank == 6 else 1) if sample > turn else 4 if rank in slow else 1
            for sample in range(SAMPLES)
        ]
        total = [sum(gains[1 : sample + 1]) for sample in range(SAMPLES)]
        job.phase(rank, "data", f"0+1x{SAMPLES - 1}", " ".join(map(str, total)), kind="host")
        stood = [40 * (gain - 1) if rank in slow or sample > turn else 0 for sample, gain in enumerate(gains)]
        for frame, samples in (
            (slow.get(rank, LOADING), stood),
            ("forward (model)", [150 - n for n in stood]),
        ):
            counts = " ".join(f"{sum(samples[1 : sample + 1])}" for sample in range(SAMPLES))
            job.add("argus_stack_samples_total", counts, rank=rank, thread="MainThread", frame=frame)


def test_stacks_in_the_loader_name_the_rank() -> None:
    """Its storage is slow."""
    job = job_of()
    loading(job, {5: LOADING})
    job.expect(CULPRITS, AT, {'{rank="5", phase="data", cause="data-input", team="algorithm"}': 1})
    job.run()


def test_stacks_that_pin_memory_name_the_code() -> None:
    """Ranks 2 and 5 pin memory for 3 s of 15: it is what the job has all ranks do."""
    job = job_of()
    loading(job, {2: PINNING, 5: PINNING})
    job.expect(CULPRITS, AT, {'{phase="data", cause="host-alloc", team="algorithm"}': 1})
    job.expect(FIRING, AT, {'{alertname="ArgusHostStall", severity="page"}': 1})
    job.run()


def test_whose_turn_comes_next_is_not_accused() -> None:
    """After ten minutes it is rank 6, whose stacks are not known yet."""
    job = job_of()
    loading(job, {5: PINNING}, turn=40)
    job.expect("max by (rank) (rank:argus_phase_suspect:lost_ratio ^ 0)", "13m", {'{rank="6"}': 1})
    job.expect(CULPRITS, "13m", {})
    job.run()
