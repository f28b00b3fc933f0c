"""A job that has stopped: who holds it up, and when nobody can be named."""

from __future__ import annotations

from rules.scenario import STORIES, Scenario

pytestmark = STORIES

SAMPLES = 20
AT = "4m"
"""The last iteration ended at 1m; five usual durations of 4 s are less than the least, a minute."""
CULPRITS = 'rank:argus_verdict:active{verdict="culprit"}'


def stalled(ranks: int) -> Scenario:
    """A job of `ranks` whose iterations end at 1m."""
    job = Scenario(("job", "evidence", "decision"))
    job.ranks(range(ranks), SAMPLES)
    job.add("argus_iteration_duration_seconds_count", f"0+4x4 16x{SAMPLES - 5}", rank=0)
    job.add("argus_iteration_duration_seconds_sum", f"0+16x4 64x{SAMPLES - 5}", rank=0)
    job.add("argus_iteration_duration_seconds_squared_total", f"0+64x4 256x{SAMPLES - 5}", rank=0)
    job.add("argus_iteration_last_timestamp_seconds", f"0+15x4 60x{SAMPLES - 5}", rank=0)
    return job


def is_in(job: Scenario, rank: int, phase: str, kind: str, since: int = 62) -> None:
    """From the stall on, the rank has this span open; before it, there is none at a scrape."""
    job.add("argus_phase_open_timestamp_seconds", f"_x5 {since}x{SAMPLES}", rank=rank, phase=phase, kind=kind)


def entered(job: Scenario, rank: int, collectives: int, group: str = "dp") -> None:
    job.add("argus_collective_sequence", f"{collectives}x{SAMPLES}", rank=rank, group=group)


def culprit(rank: int, phase: str, cause: str = "hang-host", team: str = "operations") -> str:
    return (
        'rank:argus_verdict:active{training_job="a", verdict="culprit", level="L1", '
        f'rank="{rank}", phase="{phase}", cause="{cause}", team="{team}"}}'
    )


def page(labels: str, team: str = "operations", severity: str = "page") -> str:
    return (
        f'ALERTS{{alertname="ArgusTrainingStalled", alertstate="firing", severity="{severity}", level="L1", '
        f'training_job="a", team="{team}"{labels}}}'
    )


FIRING = 'ALERTS{alertstate="firing"}'


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
        is_in(job, rank, "backward", "compute")
        job.waits(rank, "backward", "dp", SAMPLES)
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


def all_in_one_collective(ranks: int) -> Scenario:
    """All have called it, so what the hooks see accuses nobody."""
    job = stalled(ranks)
    for rank in range(ranks):
        entered(job, rank, 31)
        is_in(job, rank, "grad_sync", "comm")
    return job


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


SOON = "2m30s"
"""A minute and a half after the last iteration."""


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


def recorded(job: Scenario, rank: int, started: int | None, completed: int) -> None:
    if started is not None:
        job.add("argus_collective_started_sequence", f"_x6 {started}x{SAMPLES}", rank=rank, group="dp")
    job.add("argus_collective_completed_sequence", f"_x6 {completed}x{SAMPLES}", rank=rank, group="dp")


def test_the_gpu_that_has_not_started_what_others_have_is_named() -> None:
    """Its host has called as much as theirs."""
    job = all_in_one_collective(4)
    for rank in range(4):
        recorded(job, rank, 30 if rank == 1 else 31, 30)
    job.expect(CULPRITS, AT, {culprit(1, "grad_sync"): 1})
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


def called(job: Scenario, rank: int, operation: str, number: int = 31) -> None:
    """By torch's flight recorder, which is looked at while the iteration is overdue."""
    job.add(
        "argus_collective_operation_sequence",
        f"_x6 {number}x{SAMPLES}",
        rank=rank,
        group="dp",
        operation=operation,
    )


def test_who_called_something_else_than_the_most_is_named() -> None:
    """All have entered a collective of one number; code that diverges makes it two collectives."""
    job = all_in_one_collective(4)
    for rank in range(4):
        called(job, rank, "barrier" if rank == 2 else "all_reduce")
    job.expect(CULPRITS, AT, {culprit(2, "grad_sync"): 1})
    job.run()


def test_halves_that_called_different_things_accuse_nobody() -> None:
    """Which of them is right cannot be told: the collective is named."""
    job = all_in_one_collective(4)
    for rank in range(4):
        called(job, rank, "barrier" if rank < 2 else "all_reduce")
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
    job.run()


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


def test_hosts_that_have_queued_past_a_broken_collective_are_behind_nobody() -> None:
    """On a GPU nobody's host waits in it: it goes on until the queue of launches is full.

    Shard 0's is full first, as its GPUs stand in the all-reduce of dp:0: it has called less in tp.
    """
    job = stalled(8)
    for rank in range(8):
        replica, shard = divmod(rank, 2)
        is_in(job, rank, "forward", "compute")
        for group, called_, ended in (
            (f"tp:{replica}", 41 if shard == 0 else 44, 40),
            (f"dp:{shard}", 8, 7 if shard == 0 else 8),
        ):
            entered(job, rank, called_, group)
            job.add("argus_collective_completed_sequence", f"_x6 {ended}x{SAMPLES}", rank=rank, group=group)
    found = '{verdict="culprit", cause="hang-comm", group="dp:0"}'
    job.expect(f"max by (verdict, cause, group, rank) ({CULPRITS})", AT, {found: 1})
    job.run()


def test_a_group_whose_members_wait_for_another_stage_is_not_broken() -> None:
    """Behind the other replica, as those are for whom they wait; in communication, but of another group."""
    job = stalled(8)
    for rank in range(8):
        replica, stage, shard = rank // 4, rank // 2 % 2, rank % 2
        hangs = (replica, stage) == (1, 1)
        for group, called_, ended in (
            (f"tp:{replica}.{stage}", 41, 40 if hangs else 41),
            (f"dp:{stage}.{shard}", 8 - replica, 7),
        ):
            entered(job, rank, called_, group)
            job.add("argus_collective_completed_sequence", f"_x6 {ended}x{SAMPLES}", rank=rank, group=group)
        is_in(job, rank, "all-reduce" if hangs else "pp-recv" if replica else "dp-all-reduce", "comm")
    found = '{verdict="culprit", cause="hang-comm", phase="all-reduce", group="tp:1.1"}'
    job.expect(f"max by (verdict, cause, phase, group, rank) ({CULPRITS})", AT, {found: 1})
    job.run()


def test_all_in_backward_accuses_nobody() -> None:
    """Whether they wait in it or one of them hangs in it cannot be told: the page names no rank."""
    job = stalled(4)
    for rank in range(4):
        is_in(job, rank, "backward", "compute")
        job.waits(rank, "backward", "dp", SAMPLES)
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
    job.add("argus_iteration_last_timestamp_seconds", f"0+15x{SAMPLES}", rank=0)
    for rank in range(4):
        entered(job, rank, 30 if rank == 1 else 31)
        is_in(job, rank, "data" if rank == 1 else "grad_sync", "host" if rank == 1 else "comm")
    job.expect("rank:argus_verdict:active", AT, {})
    job.expect(FIRING, AT, {})
    job.run()


def over_network(*hosts: int) -> Scenario:
    """All have called one collective of dp; `hosts`: that of each rank."""
    job = all_in_one_collective(len(hosts))
    for rank, host in enumerate(hosts):
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, node=f"host-{host}")
    return job


def oldest(
    job: Scenario, rank: int, wait: str, peer: int, operation: str = "AllReduce", since: int = 62
) -> None:
    """Since a second of the story: by NCCL's plugin, at scrapes from 1m30s on."""
    job.add(
        "argus_nccl_network_oldest_timestamp_seconds",
        f"_x6 {since}x{SAMPLES}",
        rank=rank,
        member=rank,
        group="dp",
        communicator="0xab",
        operation=operation,
        peer=peer,
        wait=wait,
    )


def ring_of_three_and(job: Scenario, standing: int) -> None:
    """Four members: the one before it finds no room, the others get nothing, and it takes nothing."""
    for rank in range(4):
        before, after = (rank - 1) % 4, (rank + 1) % 4
        oldest(job, rank, "receive_own_gpu" if rank == standing else "receive_peer", before)
        oldest(job, rank, "send_peer" if after == standing else "send_own_gpu", after)


def test_the_gpu_that_takes_nothing_of_what_has_arrived_is_named() -> None:
    """All have called; three of four hosts wait for a peer. It is proof, so it pages at once."""
    job = over_network(0, 1, 2, 3)
    ring_of_three_and(job, standing=2)
    job.expect(CULPRITS, AT, {culprit(2, "grad_sync"): 1})
    job.expect("count(ALERTS{severity='page'})", SOON, {"{}": 1})
    job.run()


def test_of_a_host_with_several_ranks_none_is_named() -> None:
    """Which of them takes nothing cannot be told: what is between them goes over NVLink."""
    job = over_network(0, 0, 1, 1)
    oldest(job, 0, "receive_peer", 3)
    oldest(job, 1, "send_peer", 2)
    oldest(job, 2, "receive_own_gpu", 1)
    oldest(job, 3, "send_own_gpu", 0)
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
    job.expect("count by (node) (rank:argus_stall_suspect:bool{stage='still'})", AT, {'{node="host-1"}': 2})
    job.expect("count(ALERTS{severity='page'})", SOON, {"{}": 1})
    job.run()


def test_a_send_that_waits_for_its_own_gpu_alone_proves_nothing() -> None:
    """Its data would come over NVLink from the rank beside it, which gets none."""
    job = over_network(0, 0, 1, 1)
    for entry, leaving in ((0, 1), (2, 3)):
        oldest(job, entry, "receive_peer", (leaving + 2) % 4)
        oldest(job, leaving, "send_own_gpu", (leaving + 1) % 4)
    job.expect('rank:argus_stall_suspect:bool{stage=~"still|link"}', AT, {})
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
    job.run()


def test_a_send_to_one_peer_has_its_data_itself() -> None:
    """A stage of a pipeline: its own GPU does not fill what the next one waits for."""
    job = over_network(0, 1, 2, 3)
    oldest(job, 1, "send_own_gpu", 2, "Send")
    for rank in (0, 2, 3):
        oldest(job, rank, "receive_peer", (rank - 1) % 4, "Recv")
    job.expect(CULPRITS, AT, {culprit(1, "grad_sync"): 1})
    job.run()


def link(rank: int, to: int, lacks: str, hosts: tuple[int, int]) -> str:
    return (
        'rank:argus_stall_suspect:bool{training_job="a", stage="link", communicator="0xab", group="dp", '
        f'rank="{rank}", node="host-{hosts[0]}", to_rank="{to}", to_node="host-{hosts[1]}", lacks="{lacks}"}}'
    )


LINKS = 'rank:argus_stall_suspect:bool{stage="link"}'


def test_what_is_sent_and_does_not_arrive_is_lost_between_the_two() -> None:
    """From rank 1 to rank 2; who gets nothing after them is not told."""
    job = over_network(0, 1, 2, 3)
    for rank in range(4):
        oldest(job, rank, "receive_peer", (rank - 1) % 4)
        oldest(job, rank, "send_wire" if rank == 1 else "send_own_gpu", (rank + 1) % 4)
    job.expect(LINKS, AT, {link(1, 2, "data", (1, 2)): 1})
    named = ', verdict="culprit", cause="hang-comm", group="dp", phase="grad_sync"'
    job.expect(FIRING, SOON, {page(named): 1})
    job.run()


def test_room_that_is_not_heard_of_is_lost_on_its_way_back() -> None:
    """Rank 2 has posted its receive, and rank 1 finds no room there: from rank 2 to rank 1."""
    job = over_network(0, 1, 2, 3)
    for rank in range(4):
        oldest(job, rank, "receive_peer", (rank - 1) % 4)
        oldest(job, rank, "send_peer" if rank == 1 else "send_own_gpu", (rank + 1) % 4)
    job.expect(LINKS, AT, {link(2, 1, "room", (2, 1)): 1})
    job.run()


def test_hosts_on_which_two_gpus_stand_are_not_named() -> None:
    """One of them may wait for the other in a way that NCCL does not see."""
    job = over_network(0, 1, 2, 3)
    ring_of_three_and(job, standing=2)
    job.inputs = [
        given for given in job.inputs if not ("oldest" in given["series"] and 'rank="0"' in given["series"])
    ]
    oldest(job, 0, "receive_own_gpu", 3)
    job.expect('rank:argus_stall_suspect:bool{stage=~"still|link"}', AT, {})
    job.run()


def test_steps_that_have_stood_for_less_than_half_of_the_least_say_nothing() -> None:
    """They stand since 3m40s."""
    job = over_network(0, 1, 2, 3)
    for rank in range(4):
        oldest(job, rank, "receive_own_gpu" if rank == 2 else "receive_peer", (rank - 1) % 4, since=220)
    job.expect('rank:argus_stall_suspect:bool{stage="network"}', AT, {})
    job.run()
