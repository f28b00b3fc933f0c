"""A job that has stopped: who holds it up, and when nobody can be named."""

from __future__ import annotations

import pytest

from rules.scenario import STORIES, Scenario
from rules.stalled_jobs import (
    AT,
    CULPRITS,
    FIRING,
    SAMPLES,
    SOON,
    all_in_one_collective,
    called,
    culprit,
    entered,
    is_in,
    page,
    stalled,
)

pytestmark = STORIES


def told_of_the_collective(job: Scenario, group: str, phase: str = "") -> None:
    """Of this group, in this phase if one is seen, and of nobody else."""
    seen = f'phase="{phase}", ' if phase else ""
    found = f'{{verdict="culprit", cause="hang-comm", {seen}group="{group}"}}'
    by = "verdict, cause, phase, group, rank" if phase else "verdict, cause, group, rank"
    job.expect(f"max by ({by}) ({CULPRITS})", AT, {found: 1})
    job.run()


def test_whoever_is_elsewhere_while_the_others_wait_is_named() -> None:
    """Three ranks in a collective, rank 2 in its loader: rank 2, with its phase, and one page."""
    job = stalled(4)
    for rank in (0, 1, 3):
        is_in(job, rank, "grad_sync", "comm")
    is_in(job, 2, "data", "host")
    job.expect(CULPRITS, AT, {culprit(2, "data", "hang-data", "algorithm"): 1})
    named = ', verdict="culprit", cause="hang-data", rank="2", phase="data"'
    job.expect(FIRING, AT, {page(named, "algorithm"): 1})
    job.expect("job:argus_lost_gpus:current", AT, {
        'job:argus_lost_gpus:current{training_job="a", cause="hang"}': 4
    })  # fmt: skip
    job.run()


def test_the_innermost_span_says_where() -> None:
    """Spans lie inside one another: the rank is where the latest began, and a collective inside one waits."""
    job = stalled(4)
    for rank in (0, 1, 3):
        is_in(job, rank, "forward", "compute", since=62)
        is_in(job, rank, "all_gather", "comm", since=63)
    is_in(job, 2, "forward", "compute", since=62)
    is_in(job, 2, "attention", "compute", since=63)
    job.expect(CULPRITS, AT, {culprit(2, "attention"): 1})
    job.run()


def test_a_backward_that_holds_the_collective_is_a_wait() -> None:
    """Its waits are known to be in it: the ranks in it wait for the one that is still in `forward`."""
    job = stalled(4)
    for rank in (0, 1, 3):
        is_in(job, rank, "backward", "compute", waits="dp")
    is_in(job, 2, "forward", "compute")
    job.expect(CULPRITS, AT, {culprit(2, "forward"): 1})
    job.run()


def test_whoever_has_entered_fewer_collectives_is_named() -> None:
    """Its mates in the tensor-parallel group are behind in their data-parallel groups too, but they wait."""
    job = stalled(8)
    for rank in range(8):
        replica, shard = divmod(rank, 2)
        # Rank 4 hangs; rank 5 waits for it in their tp group and so has not entered its dp group.
        entered(job, rank, 40 if rank == 4 else 41, f"tp:{replica}")
        entered(job, rank, 7 if replica == 2 else 8, f"dp:{shard}")
        is_in(job, rank, "all_reduce", "comm")
    job.expect(CULPRITS, AT, {culprit(4, "all_reduce"): 1})
    job.expect('count by (cause) (rank:argus_verdict:active{verdict="victim"})', AT, {'{cause="waiting"}': 7})
    job.run()


def test_a_rank_in_no_span_is_named_too() -> None:
    """A process stopped between two spans has none open; its page still tells that it is behind."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 30 if rank == 1 else 31)
        if rank != 1:
            is_in(job, rank, "grad_sync", "comm")
    job.expect(CULPRITS, AT, {culprit(1, "none"): 1})
    job.run()


def test_a_lost_rank_comes_first() -> None:
    """Its process died: the others wait for it, whatever their spans say."""
    job = stalled(4)
    up = 'argus_rank_up{training_job="a", rank="3"}'
    job.inputs = [given for given in job.inputs if given["series"] != up]
    job.add("argus_rank_up", f"1x4 0x{SAMPLES}", rank=3)
    for rank in range(3):
        is_in(job, rank, "grad_sync", "comm")
    job.expect(CULPRITS, AT, {culprit(3, "none"): 1})
    job.run()


def test_half_of_the_job_may_be_lost() -> None:
    """All processes of one of two hosts were killed: they are of the job, though nobody counts them as up."""
    job = stalled(4)
    for rank in (2, 3):
        up = f'argus_rank_up{{training_job="a", rank="{rank}"}}'
        job.inputs = [given for given in job.inputs if given["series"] != up]
        job.add("argus_rank_up", f"1x4 0x{SAMPLES}", rank=rank)
        is_in(job, rank, "grad_sync", "comm")
    for rank in (0, 1):
        is_in(job, rank, "grad_sync", "comm")
    job.expect(CULPRITS, AT, {culprit(rank, "grad_sync"): 1 for rank in (2, 3)})
    job.run()


def test_a_rank_that_has_moved_is_not_lost() -> None:
    """Its former exporter remembers it for some minutes; the new one has it, and rank 1 is elsewhere."""
    job = stalled(4)
    job.add("argus_rank_up", f"1x4 0x{SAMPLES}", rank=3, instance="former")
    for rank in (0, 2, 3):
        is_in(job, rank, "grad_sync", "comm")
    is_in(job, 1, "data", "host")
    job.expect(CULPRITS, AT, {culprit(1, "data", "hang-data", "algorithm"): 1})
    job.run()


def test_where_ranks_are_not_heard_nobody_is_named() -> None:
    """Rank 0's host is gone with its exporter; rank 2, which waits for it, has called less than rank 3."""
    job = stalled(4)
    gone = '{training_job="a", rank="0"'
    heard = (given for given in job.inputs if gone not in given["series"])
    job.inputs = [*heard, *(given for given in job.inputs if "iteration" in given["series"])]
    for rank in (1, 3):
        entered(job, rank, 31)
        is_in(job, rank, "grad_sync", "comm")
    entered(job, 2, 30)
    is_in(job, 2, "pp-recv", "comm")
    job.expect(CULPRITS, AT, {})
    job.expect(FIRING, SOON, {page("", severity="info"): 1})
    job.expect(FIRING, AT, {page(""): 1})
    job.run()


def test_a_rank_that_is_lost_to_nccl_is_named() -> None:
    """Its exporter still has its connection: the process is stopped, and RAS hears nothing of it."""
    job = all_in_one_collective(4)
    job.add("argus_nccl_ras_rank_absent", f"_x8 1x{SAMPLES}", rank=3, absence="unresponsive")
    job.expect(CULPRITS, AT, {culprit(3, "grad_sync"): 1})
    job.run()


def test_a_rank_that_has_launched_less_is_named_where_all_have_called() -> None:
    """Python has called on every rank, and NCCL of rank 1 has not launched it."""
    job = all_in_one_collective(4)
    job.add("argus_nccl_ras_rank_lacking_launches", f"_x8 1x{SAMPLES}", rank=1, function="AllReduce")
    job.expect(CULPRITS, AT, {culprit(1, "grad_sync"): 1})
    job.run()


def test_a_stopped_process_pages_at_once() -> None:
    """All have called, and the kernel says who is stopped."""
    job = all_in_one_collective(4)
    job.add("argus_rank_stopped", f"_x5 1x{SAMPLES}", rank=3)
    named = ', verdict="culprit", cause="hang-host", rank="3", phase="grad_sync"'
    job.expect(FIRING, SOON, {page(named): 1})
    job.run()


def test_what_nothing_proves_is_an_info_until_three_minutes_have_passed() -> None:
    """They may go on after all."""
    job = all_in_one_collective(4)
    label = ', verdict="culprit", cause="hang-comm", phase="grad_sync"'
    job.expect(FIRING, SOON, {page(label, severity="info"): 1})
    job.expect(FIRING, AT, {page(label): 1})
    job.run()


def recorded(job: Scenario, rank: int, started: int | None, completed: int, group: str = "dp") -> None:
    if started is not None:
        job.add("argus_collective_started_sequence", f"_x6 {started}x{SAMPLES}", rank=rank, group=group)
    job.add("argus_collective_completed_sequence", f"_x6 {completed}x{SAMPLES}", rank=rank, group=group)


def test_the_gpu_that_has_not_started_what_others_have_is_named() -> None:
    """Its host has called as much as theirs."""
    job = all_in_one_collective(4)
    for rank in range(4):
        recorded(job, rank, 30 if rank == 1 else 31, 30)
    job.expect(CULPRITS, AT, {culprit(1, "grad_sync"): 1})
    job.run()


def on_gpu(job: Scenario, rank: int, phase: str, kind: str) -> None:
    """By events of the hooks: what the GPU is in, while the iteration is overdue."""
    job.add("argus_phase_gpu_timestamp_seconds", f"_x6 61x{SAMPLES}", rank=rank, phase=phase, kind=kind)


def test_the_gpu_that_computes_while_all_others_communicate_is_named() -> None:
    """All hosts have called: hooks, recorder and RAS accuse nobody."""
    job = all_in_one_collective(4)
    for rank in range(4):
        on_gpu(job, rank, *(("forward", "compute") if rank == 2 else ("grad_sync", "comm")))
    job.expect(CULPRITS, AT, {culprit(2, "grad_sync"): 1})
    job.expect("count(ALERTS{severity='page'})", SOON, {"{}": 1})
    job.run()


@pytest.mark.parametrize("others", [(("backward", "compute"),), ()])
def test_a_gpu_is_named_only_beside_all_others(others: tuple[tuple[str, str], ...]) -> None:
    """Two compute: one may wait in what hooks do not see. Or one tells nothing, and it may be that one."""
    job = all_in_one_collective(4)
    waits = ("grad_sync", "comm")
    for rank, inside in enumerate((waits, waits, ("forward", "compute"), *others)):
        on_gpu(job, rank, *inside)
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
    job.run()


def test_a_rank_in_a_collective_that_has_not_ended_is_behind_nobody() -> None:
    """Rank 0 is first in `dp`; rank 2 waits in a collective of its own, so rank 1 holds both up."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 30 if rank in (1, 2) else 31)
        is_in(job, rank, "forward" if rank == 1 else "grad_sync", "compute" if rank == 1 else "comm")
    job.add("argus_collective_sequence", f"9x{SAMPLES}", rank=2, group="tp")
    job.add("argus_collective_completed_sequence", f"_x6 8x{SAMPLES}", rank=2, group="tp")
    job.expect(CULPRITS, AT, {culprit(1, "forward"): 1})
    job.run()


def test_who_called_something_else_than_the_most_is_named() -> None:
    """All have entered a collective of one number; code that diverges makes it two collectives."""
    job = all_in_one_collective(4)
    for rank in range(4):
        called(job, rank, "barrier" if rank == 2 else "all_reduce")
    job.expect(CULPRITS, AT, {culprit(2, "grad_sync"): 1})
    job.run()


def test_halves_that_called_different_things_accuse_nobody() -> None:
    """Which of them is right cannot be told: their group is named, at once, as that never ends."""
    job = all_in_one_collective(4)
    for rank in range(4):
        called(job, rank, "barrier" if rank < 2 else "all_reduce")
    job.expect(f"max by (cause, group, rank) ({CULPRITS})", AT, {'{cause="hang-comm", group="dp"}': 1})
    job.expect("count by (severity) (ALERTS)", SOON, {'{severity="page"}': 1})
    job.run()


def test_a_group_that_called_different_things_is_behind_nobody() -> None:
    """None of them can go on: others wait for both, wherever they are."""
    job = pair_behind_all_others()
    for rank in (2, 3):
        is_in(job, rank, "data", "host")
        called(job, rank, "barrier" if rank == 2 else "all_reduce", 41, "tp:1")
    told_of_the_collective(job, "tp:1")


def test_a_look_at_different_moments_is_no_divergence() -> None:
    """A rank of which another number was seen was in another collective."""
    job = all_in_one_collective(4)
    for rank in range(4):
        called(job, rank, "barrier" if rank == 2 else "all_reduce", 30 if rank == 2 else 31)
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
    job.run()


def test_what_was_called_comes_before_what_was_launched() -> None:
    """RAS does not count sends and receives: a rank that waits in one lacks launches too."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 30 if rank == 2 else 31)
        is_in(job, rank, "grad_sync", "comm")
    job.add("argus_nccl_ras_rank_lacking_launches", f"_x8 1x{SAMPLES}", rank=1, function="AllReduce")
    job.expect(CULPRITS, AT, {culprit(2, "grad_sync"): 1})
    job.run()


def test_everybody_in_the_same_collective_is_the_collective_itself() -> None:
    """Nobody is elsewhere or behind: the phase is named, and no rank."""
    job = all_in_one_collective(4)
    label = 'verdict="culprit", cause="hang-comm"'
    job.expect(
        f"max by (verdict, cause, phase, rank) ({CULPRITS})", AT, {f'{{{label}, phase="grad_sync"}}': 1}
    )
    job.expect(FIRING, AT, {page(f', {label}, phase="grad_sync"'): 1})
    job.run()


def replicas_of_two(hanging: int | None) -> Scenario:
    """Four replicas of two shards; nobody of shard 0 is through with its all-reduce, and all of shard 1 are.

    Shard 1 waits in the next collective, of all ranks. `hanging` has not entered that of shard 0.
    """
    job = stalled(8)
    for rank in range(8):
        replica, shard = divmod(rank, 2)
        entered(job, rank, 41, f"tp:{replica}")
        entered(job, rank, 7 if rank == hanging else 8, f"dp:{shard}")
        entered(job, rank, 5 if shard == 0 else 6, "world")
        if rank == hanging:
            is_in(job, rank, "forward", "compute")
        else:
            is_in(job, rank, "dp-all-reduce" if shard == 0 else "world-all-reduce", "comm")
    return job


def test_a_broken_collective_of_one_group_is_named_though_others_have_gone_on() -> None:
    """All of dp:0 have entered it and are in it."""
    job = replicas_of_two(hanging=None)
    label = 'verdict="culprit", cause="hang-comm", phase="dp-all-reduce", group="dp:0"'
    job.expect(f"max by (verdict, cause, phase, group, rank) ({CULPRITS})", AT, {f"{{{label}}}": 1})
    job.expect(FIRING, AT, {page(f", {label}"): 1})
    job.run()


def test_a_group_that_waits_for_one_of_its_own_is_not_broken() -> None:
    """Rank 4 is still in its forward: it holds up dp:0, and with it everybody."""
    job = replicas_of_two(hanging=4)
    job.expect(CULPRITS, AT, {culprit(4, "forward"): 1})
    job.run()


def entered_and_ended(job: Scenario, rank: int, group: str, collectives: int, ended: int) -> None:
    entered(job, rank, collectives, group)
    recorded(job, rank, None, ended, group)


def test_hosts_that_have_queued_past_a_broken_collective_are_behind_nobody() -> None:
    """On a GPU nobody's host waits in it: it goes on until the queue of launches is full.

    Shard 0's is full first, as its GPUs stand in the all-reduce of dp:0: it has called less in tp.
    """
    job = stalled(8)
    for rank in range(8):
        replica, shard = divmod(rank, 2)
        is_in(job, rank, "forward", "compute")
        entered_and_ended(job, rank, f"tp:{replica}", 41 if shard == 0 else 44, 40)
        entered_and_ended(job, rank, f"dp:{shard}", 8, 7 if shard == 0 else 8)
    told_of_the_collective(job, "dp:0")


def test_a_group_whose_members_wait_for_another_stage_is_not_broken() -> None:
    """Behind the other replica, as those are for whom they wait; in communication, but of another group."""
    job = stalled(8)
    for rank in range(8):
        replica, stage, shard = rank // 4, rank // 2 % 2, rank % 2
        hangs = (replica, stage) == (1, 1)
        entered_and_ended(job, rank, f"tp:{replica}.{stage}", 41, 40 if hangs else 41)
        entered_and_ended(job, rank, f"dp:{stage}.{shard}", 8 - replica, 7)
        is_in(job, rank, "all-reduce" if hangs else "pp-recv" if replica else "dp-all-reduce", "comm")
    told_of_the_collective(job, "tp:1.1", "all-reduce")


def pair_behind_all_others() -> Scenario:
    """Replicas of two shards; replica 1 has called as much in its own group, and less in those of others."""
    job = stalled(8)
    for rank in range(8):
        replica, shard = divmod(rank, 2)
        entered(job, rank, 41 if replica == 1 else 44, f"tp:{replica}")
        entered(job, rank, 7 if replica == 1 else 8, f"dp:{shard}")
    return job


def test_of_whom_nothing_is_recorded_a_group_that_stopped_at_one_number_waits_for_itself() -> None:
    """Both stopped in the same place, which is no accident of two hosts: their collective does not end."""
    job = pair_behind_all_others()
    told_of_the_collective(job, "tp:1")


def test_a_group_that_waits_for_another_one_is_not_broken() -> None:
    """Replica 0 waits for replica 1 in an all-to-all that it has not called: both are behind all others."""
    job = stalled(12)
    for rank in range(12):
        replica, shard = divmod(rank, 2)
        entered(job, rank, 41 if replica < 2 else 44, f"tp:{replica}")
        entered(job, rank, 7 if replica < 2 else 8, f"dp:{shard}")
        if replica < 2:
            entered(job, rank, 5 - replica, f"ep:{shard}")
    told_of_the_collective(job, "tp:1")


def test_whoever_waits_in_a_broken_collective_has_launched_less_and_is_not_named() -> None:
    """The others have begun the next step; RAS tells of what the pair lacks in their groups."""
    job = pair_behind_all_others()
    for rank in range(8):
        recorded(job, rank, None, 40 if rank in (2, 3) else 44, f"tp:{rank // 2}")
    for rank in (2, 3):
        job.add("argus_nccl_ras_rank_lacking_launches", f"_x8 1x{SAMPLES}", rank=rank, function="AllReduce")
    told_of_the_collective(job, "tp:1")


def test_a_group_that_is_elsewhere_does_not_wait_for_itself() -> None:
    """Storage of one host hangs: both of its loaders hang, and no collective."""
    job = pair_behind_all_others()
    for rank in (2, 3):
        is_in(job, rank, "data", "host")
    found = {culprit(rank, "data", cause="hang-data", team="algorithm"): 1 for rank in (2, 3)}
    job.expect(CULPRITS, AT, found)
    job.run()


def test_a_collective_within_a_phase_of_the_host_is_one_in_which_a_group_may_wait() -> None:
    """Such as those of a checkpoint."""
    job = pair_behind_all_others()
    for rank in (2, 3):
        is_in(job, rank, "checkpoint", "host")
        is_in(job, rank, "all-reduce", "comm", since=63)
    told_of_the_collective(job, "tp:1", "all-reduce")


def test_all_in_backward_accuses_nobody() -> None:
    """Whether they wait in it or one of them hangs in it cannot be told: the page names no rank."""
    job = stalled(4)
    for rank in range(4):
        is_in(job, rank, "backward", "compute", waits="dp")
    others = 'max by (verdict, cause, rank) (rank:argus_verdict:active{verdict!="victim"})'
    job.expect(others, AT, {'{verdict="abstain", cause="stall"}': 1})
    job.expect(FIRING, AT, {page(""): 1})
    job.run()


def test_more_than_half_of_the_ranks_are_never_to_blame() -> None:
    """One rank ran ahead by a collective: the three behind it are not three culprits."""
    job = stalled(4)
    for rank in range(4):
        entered(job, rank, 31 if rank == 0 else 30)
    job.expect('rank:argus_verdict:active{verdict="culprit"}', AT, {})
    job.run()


def test_a_job_that_runs_has_no_stall_verdict() -> None:
    """Open spans and a rank one collective behind are how a healthy job looks at any scrape."""
    job = stalled(4)
    job.inputs = [given for given in job.inputs if "last_timestamp" not in given["series"]]
    job.add("argus_job_last_iteration_timestamp_seconds", f"0+15x{SAMPLES}")
    for rank in range(4):
        entered(job, rank, 30 if rank == 1 else 31)
        is_in(job, rank, "data" if rank == 1 else "grad_sync", "host" if rank == 1 else "comm")
    job.expect("rank:argus_verdict:active", AT, {})
    job.expect(FIRING, AT, {})
    job.run()
