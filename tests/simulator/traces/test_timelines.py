"""Simulated timelines obey what real ones obey, and give nothing of their cause away."""

from __future__ import annotations

from collections import defaultdict

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.schedule import one_forward_one_backward
from argus_simulator.traces.cases import KINDS, make
from argus_simulator.traces.encode import Clock, clocks_of, encode
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import RankTimeline, play, usual_shape

LAYOUTS = [Layout(8), Layout(4, 2), Layout(2, 2, 2), Layout(2, 1, 4), Layout(8, ep=4), Layout(4, 1, 2, 4)]


def four_steps(layout: Layout, *faults: Fault, seed: int = 1) -> list[RankTimeline]:
    return play(usual_shape(layout), faults, 4, seed)


def gc(seconds: float, position: float = 0.3) -> Fault:
    return Fault("pause", (5,), seconds=seconds, kind="gc", position=position, onset_step=1, end_step=2)


def end(timelines: list[RankTimeline]) -> float:
    """When the job ends, seconds."""
    return max(span.end for one in timelines for span in one.host)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_members_of_a_communication_leave_together_after_the_last_came(layout: Layout) -> None:
    """And the transfer takes time."""
    members = defaultdict(list)
    for timeline in four_steps(layout):
        for one in timeline.done:
            if one.operation.exchange is not None:
                members[one.step, one.operation.exchange].append(one)
    assert members
    for together in members.values():
        assert len(together) == together[0].operation.peers >= 2
        ends = [one.end for one in together]
        assert max(ends) - min(ends) < 3e-6
        assert min(ends) - max(one.start for one in together) > 1e-6


def test_what_is_received_was_sent() -> None:
    """A receive ends after its send, in the same microbatch of the same direction."""
    sent, received = {}, {}
    for timeline in four_steps(Layout(2, 1, 4)):
        for one in timeline.done:
            half, _, direction = one.operation.phase.partition("_")
            stage = Layout(2, 1, 4).place(timeline.rank)["pp"]
            key = one.operation.group, direction, one.step, one.operation.microbatch
            if half == "send":
                sent[key, stage + (1 if direction == "forward" else -1)] = one
            elif half == "recv":
                received[key, stage] = one
    assert sent.keys() == received.keys()
    assert len(sent) == 2 * 2 * 3 * 4 * 4  # both directions, replicas, hops, microbatches, steps
    assert all(received[key].end > one.end > one.start for key, one in sent.items())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_stream_runs_one_operation_at_a_time_after_its_launch(layout: Layout) -> None:
    """In order of launch, never before it."""
    for timeline in four_steps(layout):
        free: dict[str, float] = defaultdict(float)
        for one in timeline.done:
            assert one.launch < one.start <= one.end
            assert one.start >= free[one.operation.stream]
            free[one.operation.stream] = one.end


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 4), (4, 4), (4, 8), (4, 2)])
def test_one_forward_one_backward_keeps_few_microbatches_in_flight(stages: int, microbatches: int) -> None:
    """Every microbatch once each way, backward after forward, at most stages - stage in flight."""
    for stage in range(stages):
        order = one_forward_one_backward(stage, stages, microbatches)
        assert sorted(order) == sorted(
            (way, m) for way in ("backward", "forward") for m in range(microbatches)
        )
        flight = 0
        for way, microbatch in order:
            flight += 1 if way == "forward" else -1
            assert 0 <= flight <= stages - stage
            assert way == "forward" or ("forward", microbatch) in order[: order.index((way, microbatch))]


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes() -> None:
    """In another process too: nothing depends on hashes or time."""
    assert make("argus-case-4", 3).files == make("argus-case-4", 3).files
    assert make("argus-case-4", 3).files != make("argus-case-4", 4).files


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("kernels", (3,), factor=factor) for factor in (1.0, 1.2, 2.0)],
        [Fault("link", (4, 6), dimension="dp", factor=factor) for factor in (1.0, 2.0, 5.0)],
        [Fault("launch", (2,), factor=factor) for factor in (1.0, 10.0, 40.0)],
        [gc(seconds) for seconds in (0.0, 0.15, 0.4)],
    ],
    ids=["kernels", "link", "launch", "pause"],
)
def test_a_stronger_fault_never_makes_the_job_faster(faults: list[Fault]) -> None:
    """Noise is addressed by seed, so a fault of no strength is no fault, and more costs more."""
    layout = Layout(2, 2, 2)
    healthy = end(four_steps(layout))
    ends = [end(four_steps(layout, fault)) for fault in faults]
    assert ends[0] == pytest.approx(healthy)
    assert healthy <= ends[1] < ends[2]


def test_a_short_pause_is_hidden_by_the_launch_queue() -> None:
    """Late in a step the host is far ahead: 10 ms cost nothing."""
    layout = Layout(8)
    pause = gc(0.01, position=0.9)
    assert end(four_steps(layout, pause)) == pytest.approx(end(four_steps(layout)), rel=1e-6)


def test_files_say_nothing_of_the_cause() -> None:
    """All texts of a faulty file also stand in the healthy file of the same job, but for slices of pauses."""
    layout = Layout(2, 1, 4)
    texts = []
    for faults in ((), (Fault("kernels", (3,), factor=2.0), Fault("link", (0,), dimension="pp", factor=3.0))):
        timeline = four_steps(layout, *faults)[3]
        trace = perfetto_trace_pb2.Trace.FromString(encode(layout, timeline, Clock()))
        found = set()
        for packet in trace.packet:
            data = packet.interned_data
            found |= {one.name for one in data.event_names} | {
                one.name for one in data.debug_annotation_names
            }
            found |= {one.str.decode() for one in data.debug_annotation_string_values}
        texts.append(found)
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_every_kind_states_its_cause_beside_the_files() -> None:
    """All but the healthy one; the fault costs what makes it worth finding."""
    for kind in KINDS:
        case = make(kind, 11)
        assert len(case.files) == 8
        assert case.truth.healthy == (kind == "healthy")
        assert case.truth.healthy or (case.cost_ratio >= 0.03 and case.truth.ranks)


def test_clocks_are_off_by_host() -> None:
    """Ranks of one host share a clock; hosts differ by milliseconds."""
    clocks = clocks_of(Layout(8, ranks_per_host=4), 3)
    assert len(clocks) == 2
    first, second = (clock.ns(1.0) for clock in clocks.values())
    assert 1_000 < abs(first - second) < 20_000_000
