"""Invariants of the simulated job (fault catalogue, section 3)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from argus_core.wire import Kind
from argus_simulator import kernels, schedule
from argus_simulator.faults import FAULT_PHASES, Fault
from argus_simulator.job import Job, JobShape, RankStep, Span
from argus_simulator.noise import NoiseLevels
from argus_simulator.timeline import Busy, Deadlock, Join, execute
from argus_simulator.topology import Topology

QUIET = NoiseLevels(step_cv=0.0, kernel_cv=0.0, outlier_probability=0.0)
ROUGH = NoiseLevels(step_cv=0.02, kernel_cv=0.1, outlier_probability=0.05, outlier_factor=10.0)
STEPS = 12


def shape(noise: NoiseLevels = ROUGH, topology: Topology | None = None) -> JobShape:
    return JobShape(topology or Topology(dp=4), 0.25, noise)


def play(job: Job, steps: int = STEPS) -> list[list[RankStep]]:
    return [job.next_step() for _ in range(steps)]


def span(done: RankStep, phase: str) -> Span:
    return next(span for span in done.spans if span.phase.name == phase)


def ends(steps: list[list[RankStep]]) -> list[list[int]]:
    return [[done.end_ns for done in step] for step in steps]


def as_plain(steps: Sequence[Sequence[RankStep]]) -> list[list[tuple[object, ...]]]:
    return [
        [(done.start_ns, done.end_ns, done.spans, done.kernels.tobytes()) for done in step] for step in steps
    ]


def test_members_of_a_collective_end_together():
    """A gradient all-reduce has one end for all ranks, whenever each arrived."""
    for step in play(Job(shape(), [Fault(rank=1, phase="backward", factor=2.0)], seed=1)):
        reduces = [span(done, "dp-all-reduce") for done in step]
        assert len({reduce.start_ns + reduce.duration_ns for reduce in reduces}) == 1


def test_a_collective_needs_its_body_after_the_last_arrival():
    """end - latest arrival is the body: 16 % of the healthy step when nothing varies."""
    for step in play(Job(shape(QUIET), [Fault(rank=1, phase="forward", factor=1.7)], seed=1)):
        reduces = [span(done, "dp-all-reduce") for done in step]
        latest = max(reduce.start_ns for reduce in reduces)
        assert reduces[0].start_ns + reduces[0].duration_ns - latest == pytest.approx(0.16 * 0.25e9, abs=1)


def test_the_late_rank_has_the_shortest_collective():
    """Propagation P0: the slow rank arrives last, so its own span is the shortest and its peers wait."""
    usual = NoiseLevels(outlier_probability=0.0)  # a hiccup of half a phase may be later than a slow rank
    for step in play(Job(shape(usual), [Fault(rank=2, phase="forward", factor=2.0)], seed=3)):
        durations = [span(done, "dp-all-reduce").duration_ns for done in step]
        assert int(np.argmin(durations)) == 2


def test_the_parts_of_a_step_sum_to_its_duration():
    """Spans and the one unobserved gap fill the iteration without overlap, to the nanosecond."""
    for step in play(Job(shape(), [], seed=5)):
        for done in step:
            gaps = [
                after.start_ns - (before.start_ns + before.duration_ns)
                for before, after in itertools.pairwise(done.spans)
            ]
            assert min(gaps) >= 0
            assert sum(gap > 0 for gap in gaps) == 1
            assert sum(span.duration_ns for span in done.spans) + sum(gaps) == done.end_ns - done.start_ns


def test_iterations_follow_one_another():
    """A rank's next step starts where the last one ended."""
    steps = play(Job(shape(), [], seed=5))
    for before, after in itertools.pairwise(steps):
        assert [done.end_ns for done in before] == [done.start_ns for done in after]


def test_kernels_of_a_stream_do_not_overlap_and_lie_in_their_step():
    """Every stream is first in, first out."""
    for step in play(Job(shape(), [Fault(rank=0, phase="data", factor=3.0)], seed=2)):
        for done in step:
            records = done.kernels
            assert int(records["start_ns"].min()) >= done.start_ns
            assert int((records["start_ns"] + records["duration_ns"]).max()) <= done.end_ns
            for stream in np.unique(records["stream"]):
                own = np.sort(records[records["stream"] == stream], order="start_ns")
                assert np.all(own["start_ns"][:-1] + own["duration_ns"][:-1] <= own["start_ns"][1:])


def test_same_seed_gives_the_same_job():
    """Spans and kernel bytes are a function of the seed alone."""
    fault = Fault(rank=3, phase="optimizer", factor=2.0, onset_step=4)
    assert as_plain(play(Job(shape(), [fault], 7))) == as_plain(play(Job(shape(), [fault], 7)))


def test_another_seed_gives_another_job():
    """The seed reaches the noise."""
    assert ends(play(Job(shape(), [], 7))) != ends(play(Job(shape(), [], 8)))


@pytest.mark.parametrize(
    "harmless",
    [
        *(Fault(rank=1, phase=phase, factor=1.0) for phase in FAULT_PHASES),
        Fault(rank=1, kernels="*flash*", factor=1.0),
        Fault(rank=1, phase="forward", factor=9.0, onset_step=STEPS),
    ],
    ids=lambda fault: fault.phase or fault.kernels,
)
def test_a_fault_of_no_magnitude_is_health(harmless: Fault):
    """Factor 1, and a fault that has not begun, leave every byte as it is."""
    assert as_plain(play(Job(shape(), [harmless], 7))) == as_plain(play(Job(shape(), [], 7)))


@pytest.mark.parametrize("phase", FAULT_PHASES)
def test_a_larger_fault_never_ends_a_step_earlier(phase: str):
    """With common random numbers every rank's step ends are non-decreasing in the factor."""
    previous = np.zeros((STEPS, 4), dtype=np.int64)
    for factor in (1.0, 1.01, 1.3, 2.0, 4.0):
        fault = Fault(rank=1, phase=phase, factor=factor)  # type: ignore[arg-type]
        now = np.array(ends(play(Job(shape(), [fault], 7))))
        assert np.all(now >= previous)
        previous = now


def test_a_fault_ends_when_told():
    """From end_step on the rank computes as if nothing had been."""
    healthy = play(Job(shape(), [], 7))
    passing = play(Job(shape(), [Fault(rank=1, phase="forward", factor=3.0, onset_step=2, end_step=4)], 7))
    durations = [[span(step[1], "forward").duration_ns for step in steps] for steps in (healthy, passing)]
    slower = [after > before for before, after in zip(*durations, strict=True)]
    assert slower == [step in (2, 3) for step in range(STEPS)]


@pytest.mark.parametrize("phase", FAULT_PHASES)
def test_a_slow_phase_takes_factor_times_as_long(phase: str):
    """The span of the culprit in the phase, and of nobody else, in nothing else that it does itself."""
    healthy = play(Job(shape(QUIET), [], 7), 3)
    slow = play(Job(shape(QUIET), [Fault(rank=2, phase=phase, factor=2.5)], 7), 3)  # type: ignore[arg-type]
    for before, after in zip(healthy[1], slow[1], strict=True):
        for was, is_ in zip(before.spans, after.spans, strict=True):
            if was.phase.kind is not Kind.COMM:
                factor = 2.5 if after.rank == 2 and was.phase.name == phase else 1.0
                assert is_.duration_ns == pytest.approx(factor * was.duration_ns, rel=1e-6)


@pytest.mark.parametrize(("phase", "factor"), [("forward", 2.0), ("backward", 2.0), ("data", 1.0)])
def test_kernels_slow_down_with_a_compute_fault_only(phase: str, factor: float):
    """A throttled GPU slows the phase's kernels alike; a slow loader leaves its copies alone."""
    healthy = play(Job(shape(QUIET), [], 7), 1)[0][1].kernels
    slow = play(Job(shape(QUIET), [Fault(rank=1, phase=phase, factor=2.0)], 7), 1)[0][1].kernels  # type: ignore[arg-type]
    names = kernels.all_names()
    own = np.isin(healthy["name_id"], [names.index(kind.name) for kind in kernels.PLANS[phase].kinds])
    assert slow["duration_ns"][own] == pytest.approx(factor * healthy["duration_ns"][own], rel=1e-4)


def test_slow_kernels_lengthen_their_phase_by_what_they_cost():
    """Kernel faults propagate from the kernels up: the phase grows by exactly the added kernel time."""
    healthy = play(Job(shape(QUIET), [], 7), 1)[0][1]
    slow = play(Job(shape(QUIET), [Fault(rank=1, kernels="*flash_fwd*", factor=3.0)], 7), 1)[0][1]
    added = int(slow.kernels["duration_ns"].sum()) - int(healthy.kernels["duration_ns"].sum())
    # The all-reduce is a kernel too, and the culprit waits there for nobody now as before: equal.
    assert added == span(slow, "forward").duration_ns - span(healthy, "forward").duration_ns > 0


def test_idling_before_the_collective_shows_in_no_own_phase():
    """late_seconds delays the rank's arrival, and only its peers' all-reduce grows."""
    healthy = play(Job(shape(QUIET), [], 7), 1)[0]
    late = play(Job(shape(QUIET), [Fault(rank=1, late_seconds=0.05)], 7), 1)[0]
    for before, after in zip(healthy, late, strict=True):
        for was, is_ in zip(before.spans, after.spans, strict=True):
            waits = was.phase is schedule.DP_ALL_REDUCE and after.rank != 1
            assert is_.duration_ns - was.duration_ns == (50_000_000 if waits else 0)


def test_relabelling_ranks_relabels_the_job():
    """Ranks are equal but for their noise: swap noise and fault, and the records swap."""
    new_name = (2, 0, 3, 1)  # rank r is now called new_name[r]
    streams = [new_name.index(rank) for rank in range(4)]
    plain = play(Job(shape(), [Fault(rank=1, phase="forward", factor=2.0)], 7))
    renamed = play(Job(shape(), [Fault(rank=new_name[1], phase="forward", factor=2.0)], 7, streams))
    for before, after in zip(plain, renamed, strict=True):
        for rank in range(4):
            was, is_ = before[rank], after[new_name[rank]]
            assert (was.start_ns, was.end_ns, was.spans) == (is_.start_ns, is_.end_ns, is_.spans)
            assert was.kernels.tobytes() == is_.kernels.tobytes()


def test_tensor_parallel_mates_wait_for_one_another_and_other_groups_do_not():
    """A slow rank delays its tp mate in the tp all-reduce; the dp all-reduce then delays the others."""
    topology = Topology(dp=2, tp=2)
    (step,) = play(Job(shape(QUIET, topology), [Fault(rank=0, phase="forward", factor=2.0)], 7), 1)
    tp = [span(done, "tp-all-reduce").duration_ns for done in step]
    assert tp[1] > tp[0] == tp[2] == tp[3]
    dp = [span(done, "dp-all-reduce").duration_ns for done in step]
    assert dp[2] > dp[0] == dp[1]


@pytest.mark.parametrize("topology", [Topology(dp=3, tp=2), Topology(dp=2, tp=4, pp=3), Topology(dp=8)])
def test_every_rank_has_one_place(topology: Topology):
    """Coordinates and ranks are inverse, and each group partitions the ranks."""
    for rank in range(topology.ranks):
        assert topology.rank_at(topology.coordinates(rank)) == rank
        for dimension in ("dp", "tp", "pp"):
            members = topology.members(rank, dimension)  # type: ignore[arg-type]
            assert rank in members
            assert all(topology.members(member, dimension) == members for member in members)  # type: ignore[arg-type]


def test_programs_that_do_not_match_are_a_deadlock():
    """A collective that one member never enters is reported with the rank that waits."""
    join = Join("dp-all-reduce", ("dp-all-reduce", 0), 10, (0, 1))
    with pytest.raises(Deadlock, match="rank 0 waits forever in dp-all-reduce"):
        execute([[join], [Busy("forward", 5)]], [0, 0])


def test_every_mode_has_events_enough_for_the_l3_worker():
    """16 steps (a window of 4 s) give each mode of each compute kernel at least 20 events."""
    for plan in kernels.PLANS.values():
        for kind in plan.kinds:
            if kind.operation is kernels.wire.Operation.KERNEL:
                per_mode = np.bincount([launch % len(kind.modes) for launch in range(kind.launches)])
                assert 16 * per_mode.min() >= 20, kind.name
