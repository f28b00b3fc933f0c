"""What holds for every simulated job."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from argus_core import wire
from argus_simulator.engine.clockwork import LATENCY_S
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape, JobStep
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.topology import Topology
from simulator.engine.jobs import QUIET, STEP_S, TOPOLOGIES, ends, phase_ns, play, same

FAULTS = {
    "kernels": Fault("kernels", (1,), factor=2.0),
    "some kernels": Fault("kernels", (1,), factor=5.0, share=0.05),
    "link": Fault("link", (1,), factor=4.0),
    "pause": Fault("pause", (1,), seconds=0.6, position=0.5),
    "launch": Fault("launch", (1,), factor=20.0),
    "data": Fault("data", (1,), seconds=0.2),
    "sync": Fault("sync", (0, 1, 2, 3), seconds=1e-3, phases="*-forward"),
    "work": Fault("work", (1,), factor=2.0, scatter=0.2, drift_steps=1),
    "late": Fault("late", (1,), seconds=0.1, phases="dp-*"),
    "count": Fault("count", (1,), scatter=0.4),
}
HARMLESS = {
    "kernels": Fault("kernels", (1,), factor=1.0),
    "some kernels": Fault("kernels", (1,), factor=1.0, share=0.05),
    "link": Fault("link", (1,), factor=1.0),
    "pause": Fault("pause", (1,), seconds=0.0),
    "launch": Fault("launch", (1,), factor=1.0),
    "data": Fault("data", (1,), seconds=0.0),
    "work": Fault("work", (1,), factor=1.0),
    "late": Fault("late", (1,), seconds=0.0),
    "count": Fault("count", (1,), scatter=0.0),
    "not yet": Fault("kernels", (1,), factor=9.0, onset_step=99),
    "by no chance": Fault("kernels", (1,), factor=9.0, period_steps=3, active_steps=1, chance=0.0),
}  # fmt: skip


def exchanges(step: JobStep) -> list[np.ndarray]:
    """Nodes of each collective of a step."""
    exchange = step.plan.exchange
    return [np.flatnonzero(exchange == number) for number in range(int(exchange.max()) + 1)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("fault", [None, *FAULTS.values()], ids=["healthy", *FAULTS])
def test_members_of_a_collective_end_together_a_body_after_the_last_arrival(
    topology: Topology, fault: Fault | None
) -> None:
    """One end for all members, later than the last of them came; on the records too."""
    for step in play(topology, [fault] if fault else [], steps=3):
        for members in exchanges(step):
            assert len(members) >= 2
            assert len(set(step.times.end[members].tolist())) == 1
            assert step.times.end[members[0]] > step.times.arrival[members].max()
            assert np.ptp(np.rint(step.times.end[members] * 1e9)) == 0


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("fault", [None, *FAULTS.values()], ids=["healthy", *FAULTS])
def test_a_stream_runs_one_kernel_at_a_time_after_its_launch(topology: Topology, fault: Fault | None) -> None:
    """First in, first out, in the order of launch; nothing starts before it was launched."""
    for step in play(topology, [fault] if fault else [], steps=3):
        for rank in range(topology.ranks):
            records = step.kernels_of(rank)
            assert np.all(records["issue_ns"] > 0)
            for stream in np.unique(records["stream"]):
                own = records[records["stream"] == stream]
                assert np.all(own["start_ns"][:-1] + own["duration_ns"][:-1] <= own["start_ns"][1:])


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_the_parts_of_the_critical_path_sum_to_the_iteration(topology: Topology) -> None:
    """From the end of the step back to its start, each moment is accounted to one cause."""
    for step in play(topology, [FAULTS["data"]], steps=3):
        plan, times = step.plan, step.times
        node = int(np.argmax(times.end))
        parts = []
        while node >= topology.ranks:
            if plan.exchange[node] >= 0:
                members = np.flatnonzero(plan.exchange == plan.exchange[node])
                last = int(members[np.argmax(times.arrival[members])])
                parts.append(times.end[node] - times.arrival[last])  # the transfer
                node = last
            elif any(node in range(level.receives, level.collectives) for level in plan.levels):
                level = next(one for one in plan.levels if one.receives <= node < one.collectives)
                sender = int(level.sends[node - level.receives])
                if times.end[node] == times.end[sender] + LATENCY_S:
                    parts.append(LATENCY_S)
                    node = sender
                    continue
                parts.append(times.end[node] - times.arrival[node])
            else:
                parts.append(times.end[node] - times.arrival[node])  # its kernels
            needed = plan.needs[:, node]
            cause = int(needed[np.argmax(times.end[needed])])
            if times.arrival[node] > times.free[node]:  # it waited for its launch
                parts.append(times.arrival[node] - times.host[node])
                cause = int(plan.before[node])
                while cause >= topology.ranks:  # the host did nothing but launch
                    parts.append(times.host_end[cause] - times.host[cause])
                    cause = int(plan.before[cause])
            node = cause
        begin = step.data_end_ns[node] / 1e9
        assert sum(parts) == pytest.approx(times.end.max() - begin, abs=2e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_healthy_ranks_of_one_role_differ_by_little(seed: int) -> None:
    """The medians of a compute kernel of 50 us or more lie 0.3 to 3 % apart."""
    topology = Topology(dp=16)
    steps = play(
        topology, seed=seed, steps=30, noise=dataclasses.replace(QUIET, kernel_cv=0.03, rank_cv=0.004)
    )
    names = steps[0].plan.names
    spreads = []
    for number, name in enumerate(names, start=1):
        if name.startswith("nccl"):
            continue
        medians = []
        for rank in range(topology.ranks):
            own = np.concatenate([step.kernels_of(rank) for step in steps])
            medians.append(np.median(own["duration_ns"][own["name_id"] == number]))
        if min(medians) >= 50_000:
            spreads.append(max(medians) / min(medians) - 1)
    assert len(spreads) >= 8
    assert 0.003 < float(np.median(spreads)) < 0.03


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_one_seed_is_one_job(topology: Topology) -> None:
    """The same bytes for the same seed, others for another."""
    fault = FAULTS["some kernels"]
    assert same(play(topology, [fault], seed=7), play(topology, [fault], seed=7))
    assert not same(play(topology, [fault], seed=7), play(topology, [fault], seed=8))


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("fault", HARMLESS.values(), ids=HARMLESS)
def test_a_fault_of_no_magnitude_is_health(topology: Topology, fault: Fault) -> None:
    """Every byte is as without it."""
    assert same(play(topology, [fault]), play(topology))


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize(
    ("name", "key", "sizes"),
    [
        ("kernels", "factor", (1.0, 1.01, 1.5, 3.0)),
        ("some kernels", "factor", (1.0, 2.0, 20.0)),
        ("link", "factor", (1.0, 1.3, 6.0)),
        ("pause", "seconds", (0.0, 0.01, 0.3, 1.0)),
        ("launch", "factor", (1.0, 2.0, 10.0, 40.0)),
        ("data", "seconds", (0.0, 0.01, 0.2)),
        ("sync", "seconds", (0.0, 1e-3, 1e-2)),
        ("late", "seconds", (0.0, 0.01, 0.2)),
    ],
)
def test_a_larger_fault_never_ends_a_step_earlier(
    topology: Topology, name: str, key: str, sizes: tuple[float, ...]
) -> None:
    """With common random numbers no rank's step ends earlier for more of a fault."""
    before = None
    for size in sizes:
        now = ends(play(topology, [dataclasses.replace(FAULTS[name], **{key: size})], steps=3))
        if before is not None:
            assert np.all(now >= before)
        before = now


@pytest.mark.parametrize("topology", [Topology(dp=2, pp=4), Topology(dp=2, tp=2, pp=2), Topology(dp=4, pp=3)])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_sends_match_receives_and_few_microbatches_are_in_flight(
    topology: Topology, microbatches: int
) -> None:
    """Nothing is received before it was sent; a stage holds at most PP - stage of them."""
    (step,) = play(topology, steps=1, model=ModelSettings(microbatches=microbatches))
    plan, times = step.plan, step.times
    sent = received = 0
    for level in plan.levels:
        receivers = np.arange(level.receives, level.collectives)
        received += len(receivers)
        assert np.all(times.end[receivers] > times.end[level.sends])
        assert np.all(plan.microbatch[receivers] == plan.microbatch[level.sends])
    sent = sum(plan.phases[plan.phase[node]].endswith("-send") for node in plan.comm)
    assert sent == received == 2 * (topology.pp - 1) * microbatches * topology.dp * topology.tp
    for rank in range(topology.ranks):
        stage, flight, seen = topology.coordinates(rank)["pp"], 0, set()
        for node in plan.nodes_of[rank]:
            phase, microbatch = plan.phases[plan.phase[node]], int(plan.microbatch[node])
            if phase.startswith(("attention-", "mlp-")):
                way = phase.rpartition("-")[2]
                if (way, microbatch) not in seen:
                    seen.add((way, microbatch))
                    flight += 1 if way == "forward" else -1
                    assert 0 <= flight <= topology.pp - stage
        assert len(seen) == 2 * microbatches


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_a_host_stall_shorter_than_its_lead_costs_nothing(topology: Topology) -> None:
    """Late in the step the host is far ahead; a stall beyond its lead costs the difference at most."""
    healthy = play(topology, noise=QUIET, steps=2)
    short = play(topology, [Fault("pause", (1,), seconds=0.02, position=0.9)], noise=QUIET, steps=2)
    long = play(topology, [Fault("pause", (1,), seconds=STEP_S, position=0.9)], noise=QUIET, steps=2)
    assert np.array_equal(ends(short), ends(healthy))
    assert STEP_S * 0.1 < (ends(long) - ends(healthy))[0].max() / 1e9 < STEP_S


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_victims_only_wait(topology: Topology) -> None:
    """The computation of every other rank is as long as without the fault; only their waits are not."""
    healthy = play(topology, steps=3)
    for name in ("kernels", "data", "late"):
        faulty = play(topology, [FAULTS[name]], steps=3)
        for one, other in zip(healthy, faulty, strict=True):
            for rank in range(topology.ranks):
                if rank == 1:
                    continue
                before, after = one.kernels_of(rank), other.kernels_of(rank)
                computes = before["stream"] == 7
                assert np.allclose(
                    before["duration_ns"][computes], after["duration_ns"][computes], rtol=0, atol=1
                )


@pytest.mark.parametrize("fault", [None, *FAULTS.values()], ids=["healthy", *FAULTS])
@pytest.mark.parametrize("topology", [Topology(dp=4), Topology(dp=4, tp=2), Topology(dp=4, pp=2)], ids=str)
def test_relabelling_replicas_relabels_the_job(topology: Topology, fault: Fault | None) -> None:
    """Swap the noise and the faults of replicas and the records swap with them."""
    new_place = [2, 0, 3, 1]  # replica d is now called new_place[d]

    def renamed(rank: int) -> int:
        at = topology.coordinates(rank)
        return topology.rank_at({**at, "dp": new_place[at["dp"]]})

    streams = [0] * topology.ranks
    for rank in range(topology.ranks):
        streams[renamed(rank)] = rank
    # A host's own speed stays where it is.
    noise = dataclasses.replace(QUIET, kernel_cv=0.1, step_cv=0.02, body_cv=0.1, rank_cv=0.01, loader_cv=0.2)
    plain = play(topology, [fault] if fault else [], noise=noise, steps=3)
    moved = dataclasses.replace(fault, ranks=tuple(sorted(map(renamed, fault.ranks)))) if fault else None
    other = play(topology, [moved] if moved else [], noise=noise, steps=3, streams=streams)
    for before, after in zip(plain, other, strict=True):
        for rank in range(topology.ranks):
            first, second = before.kernels_of(rank), after.kernels_of(renamed(rank))
            for field in ("start_ns", "duration_ns", "issue_ns", "stream", "name_id"):
                assert np.array_equal(first[field], second[field]), field
            assert before.end_ns[rank] == after.end_ns[renamed(rank)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("step_s", [0.1, 0.5, 4.0])
def test_a_healthy_step_lasts_what_was_asked_for(topology: Topology, step_s: float) -> None:
    """Without noise to a tenth of a per cent, whatever the topology."""
    job = Job(JobShape(topology, step_s, noise=QUIET), [], 1)
    first, second = job.next_step(), job.next_step()
    assert float(np.max(second.end_ns - second.start_ns)) / 1e9 == pytest.approx(step_s, rel=1e-2)
    assert first.end_ns.max() == second.start_ns.max()


def test_the_late_rank_has_the_shortest_collective() -> None:
    """Propagation: who comes last waits for nobody, its peers wait for it."""
    for step in play(Topology(dp=8), [Fault("kernels", (2,), factor=1.6)], noise=QUIET):
        waits = [phase_ns(step, rank, "dp-allreduce") for rank in range(8)]
        assert int(np.argmin(waits)) == 2


def test_issue_latency_rises_with_a_slow_gpu_and_falls_with_a_slow_host() -> None:
    """The launch queue: a device that is late lets it fill, a host that is late empties it."""

    def latency(fault: Fault | None, rank: int = 1) -> float:
        step = play(Topology(dp=4), [fault] if fault else [], noise=QUIET, steps=1)[0]
        own = step.kernels_of(rank)
        return float(np.median(own["issue_ns"][own["operation"] == wire.Operation.KERNEL]))

    healthy = latency(None)
    assert latency(Fault("kernels", (1,), factor=1.5)) > 1.2 * healthy
    assert latency(Fault("kernels", (1,), factor=1.5), rank=0) >= healthy
    assert latency(Fault("launch", (1,), factor=20)) < 0.3 * healthy
    assert latency(Fault("sync", (0, 1, 2, 3))) < 0.3 * healthy
    assert latency(Fault("data", (1,), seconds=0.1)) == pytest.approx(healthy, rel=0.01)


def test_launches_wait_for_room_in_the_queue() -> None:
    """A queue of an eighth of a step keeps the host about so far ahead."""
    deep = play(Topology(dp=2), noise=QUIET, steps=1)[0]
    short = play(Topology(dp=2), noise=QUIET, steps=1, queue=140)[0]
    assert short.end_ns.max() == pytest.approx(deep.end_ns.max(), rel=0.01)
    assert short.kernels_of(0)["issue_ns"].max() < 0.4 * deep.kernels_of(0)["issue_ns"].max()


def test_a_hang_lets_everyone_wait_and_nobody_end() -> None:
    """But for hangs: no step end, records of what did happen, and none with an end that never came."""
    for phases in ("data", "mlp-backward", "dp-*"):
        first, second = play(Topology(dp=4), [Fault("hang", (2,), phases=phases, onset_step=1)], steps=2)
        assert not first.hung
        assert second.hung
        assert np.all(second.end_ns == np.iinfo(np.int64).max)
        assert len(second.kernels) < len(first.kernels)
        assert int(second.kernels["duration_ns"].max()) < 10e9
