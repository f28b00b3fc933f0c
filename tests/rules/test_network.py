"""A job that has stopped: whose GPU stands, and which link loses something, by NCCL's plugin."""

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
    page,
)

pytestmark = STORIES


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


def test_no_gpu_stands_where_what_was_called_differs() -> None:
    """Two of one host have called different collectives: their GPUs are in them, and take nothing else."""
    job = over_network(0, 0, 1, 1)
    oldest(job, 0, "receive_peer", 3)
    oldest(job, 1, "send_peer", 2)
    oldest(job, 2, "receive_own_gpu", 1)
    for rank, operation in ((2, "barrier"), (3, "all_reduce")):
        entered(job, rank, 31, "tp")
        called(job, rank, operation, group="tp")
    job.expect('rank:argus_stall_suspect:bool{stage=~"still|link"}', AT, {})
    job.expect(f"max by (cause, group, rank) ({CULPRITS})", AT, {'{cause="hang-comm", group="tp"}': 1})
    job.run()


def launched(job: Scenario, rank: int, **operations: int) -> None:
    """By NCCL's plugin, in a communicator of all ranks."""
    for operation, number in operations.items():
        job.add(
            "argus_nccl_entered_sequence",
            f"{number}x{SAMPLES}",
            rank=rank,
            group="dp",
            communicator="0xab",
            operation=operation,
        )


def test_who_called_something_else_than_the_most_is_named_without_a_recorder() -> None:
    """All have called as much; one of them a Broadcast in place of an AllReduce."""
    job = over_network(0, 0, 1, 1)
    for rank in range(4):
        launched(
            job,
            rank,
            **({"AllReduce": 30, "Broadcast": 2} if rank == 2 else {"AllReduce": 31, "Broadcast": 1}),
        )
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-host", rank="2"}': 1})
    job.expect("count(ALERTS{severity='page'})", SOON, {"{}": 1})
    job.run()


def test_of_halves_that_called_different_things_nobody_is_named_without_a_recorder() -> None:
    """Nor is who lacks launches by NCCL's RAS, which does not count a Broadcast."""
    job = over_network(0, 1)
    launched(job, 0, AllReduce=31)
    launched(job, 1, AllReduce=30, Broadcast=1)
    job.add("argus_nccl_ras_rank_lacking_launches", f"_x8 1x{SAMPLES}", rank=1, function="AllReduce")
    job.expect(f"max by (cause, group, rank) ({CULPRITS})", AT, {'{cause="hang-comm", group="dp"}': 1})
    job.expect("count(ALERTS{severity='page'})", SOON, {"{}": 1})
    job.run()


@pytest.mark.parametrize("numbers", [(31, 30, 30, 30), (30, 31, 31, 31)])
def test_who_is_ahead_or_behind_has_called_nothing_else(numbers: tuple[int, ...]) -> None:
    """A launch that waits for room on its GPU is called and not counted yet, before NCCL 2.28."""
    job = over_network(0, 0, 1, 1)
    for rank, number in enumerate(numbers):
        launched(job, rank, AllReduce=number, AllGather=7)
    job.expect('rank:argus_stall_suspect:bool{stage=~"differs|alone"}', AT, {})
    job.expect(f"max by (cause, rank) ({CULPRITS})", AT, {'{cause="hang-comm"}': 1})
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
