"""A job that has stopped: whoever only waits, or is no longer of it, is not named."""

from __future__ import annotations

from rules.scenario import STORIES, Scenario
from rules.stalled_jobs import (
    AT,
    CULPRITS,
    FIRING,
    SAMPLES,
    SOON,
    culprit,
    entered,
    is_in,
    page,
    stalled,
)

pytestmark = STORIES


def lost(job: Scenario, *ranks: int) -> None:
    """Their processes have died; their exporters tell where they were."""
    for rank in ranks:
        up = f'argus_rank_up{{training_job="a", rank="{rank}"}}'
        job.inputs = [given for given in job.inputs if given["series"] != up]
        job.add("argus_rank_up", f"1x4 0x{SAMPLES}", rank=rank)


def nobody_is_named(job: Scenario) -> None:
    """A page all the same, and not of the collective."""
    job.expect(CULPRITS, AT, {})
    job.expect(FIRING, AT, {page(""): 1})
    job.run()


def test_where_most_ranks_are_lost_the_others_only_wait_for_them() -> None:
    """Rank 2 waits for a dead one in a receive, and has called less than the two that live."""
    job = stalled(8)
    lost(job, 3, 4, 5, 6, 7)
    for rank in range(8):
        entered(job, rank, 30 if rank == 2 else 31)
    for rank in range(3):
        is_in(job, rank, "pp-recv" if rank == 2 else "grad_sync", "comm")
    nobody_is_named(job)


def test_a_job_that_is_suspended_has_no_culprit() -> None:
    """All are stopped at one moment, at which one had called less."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 30 if rank == 2 else 31)
        job.add("argus_rank_stopped", f"_x5 1x{SAMPLES}", rank=rank)
    nobody_is_named(job)


def test_a_stage_that_is_gone_with_its_host_is_missed() -> None:
    """It was all of its groups, so none of them lacks a rank; rank 2 waits in a receive from it."""
    job = stalled(6)
    job.add("argus_job_world_size", f"8x{SAMPLES}")
    for rank in range(6):
        entered(job, rank, 100 if rank == 2 else 101, f"tp:{rank // 2}")
        is_in(job, rank, "all_reduce" if rank == 3 else "pp-recv", "comm")
    nobody_is_named(job)


def test_a_rank_that_a_smaller_job_no_longer_has_is_not_lost() -> None:
    """Rank 3 was killed and the job goes on with three, of which rank 1 is in its loader."""
    job = stalled(4)
    lost(job, 3)
    job.add("argus_job_world_size", f"3x{SAMPLES}")
    for rank in (0, 2):
        is_in(job, rank, "grad_sync", "comm")
        entered(job, rank, 31)
    entered(job, 1, 30)
    is_in(job, 1, "data", "host")
    job.expect(CULPRITS, AT, {culprit(1, "data", "hang-data", "algorithm"): 1})
    job.run()


def moved() -> Scenario:
    """Rank 3 has moved, and its former exporter tells where the process that died was."""
    job = stalled(4)
    former = {"rank": 3, "instance": "former"}
    job.add("argus_rank_up", f"0x{SAMPLES}", **former)
    job.add("argus_rank_overdue_number", f"3x{SAMPLES}", **former, lost="true")
    span = {"phase": "grad_sync", "kind": "comm", "waits": "none", "overdue": "true"}
    job.add("argus_phase_open_timestamp_seconds", f"20x{SAMPLES}", **former, **span)
    job.add("argus_collective_sequence", f"5000x{SAMPLES}", **former, group="dp")
    for rank in (0, 1, 2):
        is_in(job, rank, "grad_sync", "comm")
    return job


def test_what_a_former_process_was_in_says_nothing_of_the_one_that_took_its_place() -> None:
    """Which hangs in its loader, and waits in nothing."""
    job = moved()
    is_in(job, 3, "data", "host")
    job.expect(CULPRITS, AT, {culprit(3, "data", "hang-data", "algorithm"): 1})
    job.run()


def test_collectives_of_a_former_process_are_not_counted() -> None:
    """By its own rank 3 is behind, which is proof."""
    job = moved()
    for rank in range(4):
        entered(job, rank, 30 if rank == 3 else 31)
    named = ', verdict="culprit", cause="hang-host", rank="3", phase="none"'
    job.expect(FIRING, SOON, {page(named): 1})
    job.run()


def test_the_first_collective_of_a_group_has_one_who_has_entered_none() -> None:
    """The others of `ep` have entered one, and nobody has entered any of `cp`."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 31)
        entered(job, rank, 0, "cp")
        entered(job, rank, 0 if rank == 3 else 1, "ep")
        is_in(job, rank, *(("data", "host") if rank == 3 else ("all_to_all", "comm")))
    job.expect(CULPRITS, AT, {culprit(3, "data", "hang-data", "algorithm"): 1})
    job.run()


def test_whoever_has_left_a_communicator_is_not_lost_to_nccl() -> None:
    """Its process answers; rank 3 is behind, in its loader."""
    job = stalled(8)
    for rank in range(8):
        entered(job, rank, 30 if rank == 3 else 31)
        is_in(job, rank, *(("data", "host") if rank == 3 else ("grad_sync", "comm")))
    job.add("argus_nccl_ras_rank_absent", f"_x8 1x{SAMPLES}", rank=5, absence="missing")
    job.expect(CULPRITS, AT, {culprit(3, "data", "hang-data", "algorithm"): 1})
    job.run()


def test_one_scrape_that_fails_accuses_nobody_else() -> None:
    """Rank 0 hangs in its loader, and rank 2 waits for it in a receive: it has called less than the others.

    The host of rank 0 is not heard once, long after it was named, and is named again at the next scrape.
    """
    job = stalled(4)
    gap = 13
    of_rank_0 = [given for given in job.inputs if 'rank="0"' in given["series"]]
    job.inputs = [given for given in job.inputs if given not in of_rank_0]
    heard = f"x{gap - 1} stale"
    for metric, value, labels in (
        ("argus_rank_up", 1, {}),
        ("argus_rank_number", 0, {}),
        ("argus_group_expected_ranks", 4, {"group": "dp"}),
        ("argus_rank_overdue_number", 0, {}),
        ("argus_collective_sequence", 29, {"group": "dp"}),
        (
            "argus_phase_open_timestamp_seconds",
            62,
            {"phase": "data", "kind": "host", "waits": "none", "overdue": "true"},
        ),
    ):
        job.add(metric, f"{value}{heard} {value}x{SAMPLES}", rank=0, **labels)
    job.inputs += [given for given in of_rank_0 if "iteration" in given["series"]]
    for rank in (1, 2, 3):
        entered(job, rank, 30 if rank == 2 else 31)
        is_in(job, rank, "pp-recv" if rank == 2 else "grad_sync", "comm")
    ranks = f"max by (rank) ({CULPRITS})"
    job.expect(ranks, f"{15 * (gap - 1)}s", {'{rank="0"}': 1})
    job.expect(ranks, f"{15 * gap}s", {})
    job.expect(ranks, f"{15 * (gap + 1)}s", {'{rank="0"}': 1})
    job.run()
