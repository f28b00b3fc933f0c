"""The steps of a fleet: what holds for every job, at a size that `run` cannot play."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.fleet import program
from argus_simulator.fleet.faults import Faults, FleetFault
from argus_simulator.fleet.ranks import Layout
from argus_simulator.fleet.steps import Steps, window_steps

LAYOUT = Layout(dp=32, tp=4, pp=4, ep=4)
STEP = 4.0


def steps(*faults: FleetFault) -> Steps:
    return Steps(LAYOUT, STEP, Faults(LAYOUT, faults), seed=3)


def played(job: Steps, count: int = 8) -> Steps:
    for _ in range(count):
        job.advance(job.next_step_end)
    return job


def mean(job: Steps, phase: program.FleetPhase) -> np.ndarray:
    """Seconds a span of a phase takes on each rank since the start, shape (ranks,)."""
    fresh = Steps(LAYOUT, STEP, job.faults, seed=3)
    place = job.phases.index(phase)
    spent = job.totals.phase_seconds[place] - fresh.totals.phase_seconds[place]
    return np.asarray(spent / (job.totals.phase_count[place] - fresh.totals.phase_count[place]))


def iteration(job: Steps) -> float:
    fresh = Steps(LAYOUT, STEP, job.faults, seed=3)
    spent = job.totals.iteration_seconds - fresh.totals.iteration_seconds
    return float(spent.mean() / (job.totals.steps - fresh.totals.steps))


def test_members_of_a_collective_leave_together() -> None:
    """Each group's members share the end of each collective."""
    running = steps(FleetFault("77", phase="forward", factor=2.0)).running
    for index, phase in enumerate(steps().operations):
        if phase.along is not None:
            ends = running.boundaries[index]
            assert np.array_equal(ends, LAYOUT.last_of_group(ends, phase.along)), phase.name


def test_parts_sum_to_the_step() -> None:
    """What the operations of a step take is the iteration time, on every rank."""
    running = steps().running
    assert np.allclose(running.durations().sum(axis=0), running.end - running.start)
    assert (running.durations() > 0).all()


def test_healthy_ranks_differ_by_little() -> None:
    """Compute of ranks with one role stays within 3 % or so over a window."""
    forward = mean(played(steps(), 16), program.FORWARD)
    assert 0.003 < forward.max() / forward.min() - 1 < 0.06


def test_a_slow_rank_is_long_in_its_phase_and_short_in_the_collective() -> None:
    """Its peers wait for it: the wait is theirs (propagation P0)."""
    job = played(steps(FleetFault("77", phase="backward", factor=1.5)))
    backward, all_reduce = mean(job, program.BACKWARD), mean(job, program.DP_ALL_REDUCE)
    peers = LAYOUT.coordinates["pp"] == LAYOUT.coordinates["pp"][77]

    assert backward.argmax() == 77
    assert backward[77] == pytest.approx(1.5 * np.median(backward), rel=0.05)
    tp = mean(job, program.TP_ALL_REDUCE)
    mates = LAYOUT.last_of_group((np.arange(LAYOUT.ranks) == 77).astype(float), "tp") > 0
    assert set(np.argsort(tp)[-3:]) == set(np.flatnonzero(mates)) - {77}
    assert all_reduce[peers].argmin() in np.flatnonzero(mates[peers])


def test_iteration_time_rises_with_the_fault() -> None:
    """Common random numbers: never faster with a larger fault, and unchanged at factor 1."""
    times = [
        iteration(played(steps(FleetFault("5", phase="forward", factor=factor))))
        for factor in (1.0, 1.2, 1.5, 3.0)
    ]
    assert times[0] == iteration(played(steps()))
    assert times == sorted(times)
    assert times[-1] > times[0] + 1.5 * STEP * program.FORWARD.share


def test_a_slow_link_slows_its_group_alone() -> None:
    """The whole group transfers longer; other groups' members wait elsewhere."""
    place = f"dp{LAYOUT.coordinates['dp'][9]}"
    job = played(steps(FleetFault(place, phase="tp-all-reduce", factor=3.0)))
    tp = mean(job, program.TP_ALL_REDUCE)
    slow = LAYOUT.coordinates["dp"] == LAYOUT.coordinates["dp"][9]

    assert tp[slow].min() > 2 * np.median(tp[~slow])


def test_a_slow_kernel_costs_its_share_of_the_phase() -> None:
    """Flash attention is a quarter of forward's kernels: 2x makes forward a quarter longer."""
    healthy = mean(played(steps()), program.FORWARD)
    slow = mean(played(steps(FleetFault("40", kernels="*flash_fwd*", factor=2.0))), program.FORWARD)

    assert 1.15 < slow[40] / healthy[40] < 1.35
    assert np.allclose(np.delete(slow, 40), np.delete(healthy, 40))


def test_a_late_rank_is_late_where_no_phase_looks() -> None:
    """All its phases are as long as before, but for the shorter all-reduce."""
    job = played(steps(FleetFault("3", late=0.5)))
    assert iteration(job) > iteration(played(steps())) + 0.2
    assert mean(job, program.BACKWARD)[3] == mean(played(steps()), program.BACKWARD)[3]
    assert mean(job, program.DP_ALL_REDUCE).argmin() == 3


def test_a_hang_stops_the_job_in_front_of_the_culprit() -> None:
    """The culprit never leaves forward; no step ends; everyone else waits in a collective."""
    job = steps(FleetFault("6", hang=True, onset=30.0))
    job.advance(1e6)

    assert job.next_step_end == np.inf
    place, since = job.open_operation(1e6)
    assert job.operations[place[6]] is program.FORWARD
    assert all(job.operations[number].along is not None for number in np.delete(place, 6))
    assert since.max() < 60


def test_the_same_seed_gives_the_same_fleet() -> None:
    """Bit for bit."""
    one, other = played(steps()), played(steps())
    assert np.array_equal(one.totals.phase_seconds, other.totals.phase_seconds)


@pytest.mark.parametrize(("step", "steps_a_window"), [(0.25, 256), (4.0, 16), (30.0, 2), (120.0, 1)])
def test_windows_are_as_long_as_the_exporter_makes_them(step: float, steps_a_window: int) -> None:
    """A power of two of steps that lasts about a minute."""
    from argus_exporter.kernels.kernel_windows import WindowLength

    length = WindowLength()
    for _ in range(8):
        length.add(step, 60.0)

    assert window_steps(step) == length.steps == steps_a_window
