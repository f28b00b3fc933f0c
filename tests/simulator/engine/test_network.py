"""What NCCL's plugin would count: only a slow hop is longer on the wire, and a broken one stands there."""

from __future__ import annotations

import dataclasses

import pytest

from argus_core.nccl_page import STEP_STATES, NcclPageReader
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.network import Traffic
from argus_simulator.engine.settings import NoiseSettings
from argus_simulator.lab import load_scenario
from argus_simulator.nccl_memory import Memory
from argus_simulator.topology import Topology

RING = Topology(dp=8, ranks_per_host=2)
"""Hops between hosts: 1 to 2, 3 to 4, 5 to 6 and 7 to 0."""
STEPS = 3


def shape(topology: Topology) -> JobShape:
    quiet = {one.name: 0.0 for one in dataclasses.fields(NoiseSettings) if one.name.endswith("_cv")}
    return JobShape(topology, 0.5, noise=NoiseSettings(**quiet, outlier_probability=0.0))  # type: ignore[arg-type]


def counted(*faults: Fault, topology: Topology = RING) -> dict[tuple[str, int, int], dict[str, float]]:
    """By (group, rank, peer) the seconds in each state after some steps, as the exporter reads them."""
    job, traffic = Job(shape(topology), faults, 0), Traffic(topology)
    for _ in range(STEPS):
        done = job.next_step()
        traffic.add(done)
    found = {}
    for rank in range(topology.ranks):
        groups = traffic.groups(done.plan, rank)
        memory = Memory(rank, groups)
        traffic.write(rank, memory, lambda seconds: round(1 + seconds * 1e9))
        page = NcclPageReader(memory.descriptor).read()
        for (group, members), one in zip(groups.items(), page.communicators, strict=True):
            for peer in one.peers:
                seconds = [ns / 1e9 for ns in peer.ns]
                found[group, rank, members[peer.rank]] = dict(zip(STEP_STATES, seconds, strict=True))
    return found


def wire(counts: dict[tuple[str, int, int], dict[str, float]]) -> dict[tuple[int, int], float]:
    """Of the ring's hops."""
    sent = {(rank, peer): of["send_wait"] for (group, rank, peer), of in counts.items() if group[:2] == "dp"}
    return {hop: seconds for hop, seconds in sent.items() if seconds > 0}


HEALTHY = counted()


def test_hops_of_a_ring_are_alike_on_the_wire() -> None:
    found = wire(HEALTHY)
    assert set(found) == {(1, 2), (3, 4), (5, 6), (7, 0)}
    assert max(found.values()) == pytest.approx(min(found.values()))


@pytest.mark.parametrize(("inward", "slow", "before"), [(False, (5, 6), (3, 4)), (True, (3, 4), (1, 2))])
def test_a_slow_hop_alone_is_longer_on_the_wire(
    inward: bool, slow: tuple[int, int], before: tuple[int, int]
) -> None:
    """Of rank 4's host, what it sends or receives. The hop before finds no room, the others have no data."""
    found = counted(Fault("link", (4,), factor=3.0, dimension="dp", inward=inward))
    ratios = {hop: seconds / wire(HEALTHY)[hop] for hop, seconds in wire(found).items()}
    assert ratios == {hop: pytest.approx(3.0 if hop == slow else 1.0, rel=0.01) for hop in ratios}
    room = {
        (rank, peer): of["send_peer_wait"] - HEALTHY[group, rank, peer]["send_peer_wait"]
        for (group, rank, peer), of in found.items()
        if (rank, peer) in ratios
    }
    assert max(room, key=lambda hop: room[hop]) == before


def test_a_late_rank_makes_no_hop_longer_on_the_wire() -> None:
    """Its neighbours wait for it: the one before it for room, the one after it for data."""
    late = counted(Fault("kernels", (4,), factor=1.5))
    assert wire(late) == pytest.approx(wire(HEALTHY), rel=0.01)
    waits = {
        (rank, peer, state): seconds - HEALTHY[group, rank, peer][state]
        for (group, rank, peer), of in late.items()
        for state, seconds in of.items()
    }
    assert waits[3, 4, "send_peer_wait"] == max(
        of for (*_, state), of in waits.items() if state[:4] == "send"
    )


def test_a_broken_collective_stands_on_the_wire_of_one_hop() -> None:
    """What one end has sent, the other waits for; nobody else has anything on the wire."""
    scenario = load_scenario("faults/hang-comm", seed=0)
    topology, job = scenario.topology.build(), scenario.job()
    job.jump(scenario.faults["broken"].onset_step)
    done = job.next_step()
    waits = Traffic(topology).waits(done)
    ((rank, to),) = scenario.truth.links
    sent = [(at, peer) for at, of in waits.items() for *_, peer, state in of if state == "send_wait"]
    assert sent == [(rank, to)]
    assert (rank, "receive_wait") in {(peer, state) for *_, peer, state in waits[to]}


@pytest.mark.parametrize("name", ["rdma-link-quality", "nvlink-degraded", "gdr-down"])
def test_the_truth_names_the_hop_that_is_played_slow(name: str) -> None:
    """By seed another rank and direction; none within a host, and none where all are slow."""
    seen = set()
    for seed in range(4):
        scenario = load_scenario(f"faults/{name}", seed=seed)
        job = scenario.job()
        job.jump(min(fault.onset_step for fault in scenario.faults.values()))
        played = {(rank, to) for _, rank, to in job.next_step().slow}
        assert set(scenario.truth.links) == (played if name == "rdma-link-quality" else set())
        seen |= set(scenario.truth.links)
    assert len(seen) == (4 if name == "rdma-link-quality" else 0)
