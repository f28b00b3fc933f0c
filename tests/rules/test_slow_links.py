"""Which hop of a ring is slow, by how long NCCL's steps are on the wire."""

from __future__ import annotations

from rules.scenario import STORIES, Scenario

pytestmark = STORIES
AT = "5m"
SAMPLES = 20
RATIO = "max by (rank, node, to_rank, to_node) (rank:argus_network_wire:ratio)"


def ring(*wire: float, megabytes: tuple[int, ...] = (), operation: str = "AllReduce") -> Scenario:
    """Each rank on a host of its own sends to the next; `wire`: seconds of a scrape's 15 on the wire."""
    job = Scenario(("job", "nccl"))
    job.ranks(range(len(wire)), SAMPLES)
    for rank, seconds in enumerate(wire):
        before, after = (rank - 1) % len(wire), (rank + 1) % len(wire)
        own = {"rank": rank, "member": rank, "group": "dp:pp0.tp0", "communicator": "0xab"}
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, node=f"host-{rank}")
        waits = "argus_nccl_network_wait_seconds_total"
        job.add(waits, f"0+{seconds}x{SAMPLES}", **own, peer=after, wait="send_wire")
        job.add(waits, f"0+{15 - seconds}x{SAMPLES}", **own, peer=after, wait="send_peer")
        job.add(waits, f"0+9x{SAMPLES}", **own, peer=before, wait="receive_peer")
        sent = (megabytes or (100,) * len(wire))[rank]
        job.add("argus_nccl_network_sent_bytes_total", f"0+{sent}000000x{SAMPLES}", **own, peer=after)
        entered = {key: value for key, value in own.items() if key != "member"}
        job.add("argus_nccl_entered_sequence", f"0+4x{SAMPLES}", **entered, operation=operation)
    return job


def test_the_slow_hop_is_named_from_end_to_end() -> None:
    """Rank 1 sends at half speed, in a ring of four; its neighbours wait for as long, and are not slow."""
    job = ring(2, 4, 2, 2)
    job.expect(RATIO, AT, {'{rank="1", node="host-1", to_rank="2", to_node="host-2"}': 2})
    job.run()


def test_of_two_hops_the_quicker_is_usual() -> None:
    job = ring(8, 2)
    job.expect(RATIO, AT, {'{rank="0", node="host-0", to_rank="1", to_node="host-1"}': 4})
    job.run()


def test_who_carries_more_is_longer_on_the_wire() -> None:
    """As in a tree."""
    job = ring(2, 4, 2, 2, megabytes=(100, 200, 100, 100))
    job.expect(RATIO, AT, {})
    job.run()


def test_sends_of_a_program_are_not_compared() -> None:
    """Small ones take longer for each byte, and nothing says that they are alike."""
    job = ring(2, 4, 2, 2, operation="Send")
    job.expect(RATIO, AT, {})
    job.run()


def test_what_hardly_takes_time_is_not_compared() -> None:
    job = ring(0.02, 0.04, 0.02, 0.02)
    job.expect(RATIO, AT, {})
    job.run()
