"""The same timelines written by the exporter's own encoder lead to the same verdicts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.encode import encode
from argus_exporter.traces.nccl_lists import OPERATION_DTYPE
from argus_exporter.traces.window import Pause as PauseRecord
from argus_exporter.traces.window import TraceWindow
from argus_simulator.engine.faults import Fault
from argus_simulator.traces.encode import Clock, clocks_of
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import RankTimeline, play, usual_shape
from argus_traces.blame import blame
from argus_traces.clocks import align
from argus_traces.exchanges import match
from argus_traces.operations import Fleet, gather
from argus_traces.reader import read

Span = tuple[str, int, int, int, wire.Kind, wire.Source, int, str]


def _spans(layout: Layout, timeline: RankTimeline, clock: Clock) -> Iterator[Span]:
    """(phase, begin, end, step, kind, source, microbatch, group): what the producer and the kernels tell."""
    compared = layout.group(timeline.rank, "dp")
    for one in timeline.done:
        operation = one.operation
        microbatch = max(operation.microbatch, 0)
        where = (operation.phase, clock.ns(one.start), clock.ns(one.end), one.step)
        if operation.kind == "comm":
            yield (*where, wire.Kind.COMM, wire.Source.KERNEL, microbatch, operation.group)
        elif operation.kind == "compute":
            yield (*where, wire.Kind.COMPUTE, wire.Source.EVENT, microbatch, compared)
    for span in timeline.host:
        if span.category == "data":
            begin, end = clock.ns(span.start), clock.ns(span.end)
            yield "data", begin, end, span.step, wire.Kind.HOST, wire.Source.HOST, 0, compared


def _window(
    layout: Layout,
    timeline: RankTimeline,
    clock: Clock,
    words: Mapping[float, int] | None = None,
    lists: Mapping[float, int] | None = None,
) -> TraceWindow:
    """What the exporter would hold of the rank.

    Args:
        words: of NCCL's kernels, by start (`wire.launched_by`).
        lists: of those that do two gathers, the number of the first.
    """
    names = sorted({one.operation.name for one in timeline.done})
    streams = sorted({one.operation.stream for one in timeline.done})
    spans = list(_spans(layout, timeline, clock))
    texts = dict(enumerate([*names, *sorted({span[0] for span in spans})]))
    ids = {text: number for number, text in texts.items()}
    kernels = np.zeros(len(timeline.done), KERNEL_DTYPE)
    for record, one in zip(kernels, timeline.done, strict=True):
        start = clock.ns(one.start)
        record["start_ns"], record["duration_ns"] = start, clock.ns(one.end) - start
        record["issue_ns"] = start - clock.ns(one.launch)
        record["name_id"], record["stream"] = ids[one.operation.name], streams.index(one.operation.stream)
        copy = one.operation.kind == "memory"
        record["operation"] = wire.Operation.MEMCPY if copy else wire.Operation.KERNEL
        record["kilobytes"] = (words or {}).get(one.start, 0)
    table = np.zeros(len(spans), SPAN_DTYPE)
    for record, (phase, begin, end, step, kind, source, microbatch, _) in zip(table, spans, strict=True):
        record["start_ns"], record["duration_ns"], record["step"] = begin, end - begin, step
        record["phase_id"], record["kind"], record["source"] = ids[phase], kind, source
        record["microbatch"] = microbatch
    steps = [
        (span.step, clock.ns(span.start), clock.ns(span.end) - clock.ns(span.start))
        for span in timeline.host
        if span.category == "iteration"
    ]
    place = layout.place(timeline.rank)
    return TraceWindow(
        identity=Identity(
            "llm", timeline.rank, world_size=layout.ranks, coordinates=place,
            sizes={"dp": layout.dp, "tp": layout.tp, "pp": layout.pp},
            node=layout.host(timeline.rank), role=layout.role(timeline.rank),
        ),
        begin_ns=steps[0][1],
        end_ns=steps[-1][1] + steps[-1][2],
        first_step=steps[0][0],
        last_step=steps[-1][0],
        texts=texts,
        kernels=kernels,
        operations=np.frombuffer(
            b"".join(
                wire.NcclOperation(clock.ns(start), (words or {})[start], first + place, -1, 1, place).pack()
                for start, first in (lists or {}).items()
                for place in range(2)
            ),
            OPERATION_DTYPE,
        ),
        streams={stream_key(0, number): name for number, name in enumerate(streams)},
        spans=table,
        groups=[span[7] for span in spans],
        iterations=np.array(steps, ITERATION_DTYPE),
        pauses=tuple(
            PauseRecord(
                span.category, span.category, clock.ns(span.start), clock.ns(span.end) - clock.ns(span.start)
            )
            for span in timeline.host
            if span.category in ("gc", "compile")
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "cause", "ranks"),
    [
        (None, None, ()),
        (Fault("kernels", (5,), factor=1.8, phases="*-backward"), "gpu-compute", (5,)),
        (
            Fault("pause", (2,), seconds=0.4, kind="gc", position=0.3, onset_step=1, end_step=2),
            "host-gc",
            (2,),
        ),
        (Fault("link", (4, 5, 6, 7), dimension="dp", factor=6.0), "link-slow", (4, 5, 6, 7)),
    ],
    ids=["healthy", "compute", "gc", "link"],
)
def test_verdicts_hold_for_files_of_the_exporter(
    fault: Fault | None, cause: str | None, ranks: tuple[int, ...]
) -> None:
    """Compressed packets, launches as instants, flows by rank and time, microbatch 0 where none is known."""
    layout = Layout(4, 1, 2)
    faults = () if fault is None else (fault,)
    timelines = play(usual_shape(layout), faults, 5, 21)
    clocks = clocks_of(layout, 21)
    files = [encode(_window(layout, one, clocks[layout.host(one.rank)])) for one in timelines]
    found = blame([read([data], str(rank)) for rank, data in enumerate(files)])
    assert found.model.exchanges.unmatched == 0
    assert [(one.cause, one.ranks) for one in found.findings] == ([] if cause is None else [(cause, ranks)])


FIRST = wire.LAUNCHED_ONE - 5
"""NCCL's number of the first collective here: the kernels' 15 bits begin anew within the window."""


def _numbers(timeline: RankTimeline, *, communicators: int = 1) -> dict[float, int]:
    """What its kernels say where NCCL's plugin is on: a number by communicator, which ranks count apart.

    Args:
        communicators: of each group, in turns.
    """
    called: Counter[tuple[str, int]] = Counter()
    of_group: Counter[str] = Counter()
    groups = sorted({one.operation.group for one in timeline.done}, reverse=timeline.rank % 2 == 1)
    words = {}
    for one in timeline.done:
        group = one.operation.group
        if one.operation.kind == "comm":
            which = of_group[group] % communicators
            of_group[group] += 1
            slot = communicators * groups.index(group) + which
            words[one.start] = wire.launched_by(slot, 1, sequence=FIRST + called[group, which])
            called[group, which] += 1
    return words


def _some_in_twos(words: Mapping[float, int]) -> tuple[dict[float, int], dict[float, int]]:
    """Every other kernel does two gathers, whose first has the number of the collective before it.

    Their words, and the numbers of the first ones.
    """
    numbers = {start: word % wire.LAUNCHED_ONE for start, word in words.items()}
    lists = {start: number - 1 for start, number in numbers.items() if number % 2}
    slots = {start: (words[start] >> wire.LAUNCHED_SLOT) % 64 for start in lists}
    several = {start: wire.launched_by(slot, 1, operations=2) for start, slot in slots.items()}
    return {**words, **several}, lists


def _with_losses(*, numbered: bool, communicators: int = 1, in_twos: bool = False) -> Fleet:
    """Four ranks; of the tensor-parallel collectives of a step rank 1 lacks the first, rank 0 the last."""
    layout = Layout(2, 2, 1)
    timelines = play(usual_shape(layout), (), 3, 21)
    clocks = clocks_of(layout, 21)
    traces = []
    for timeline in timelines:
        words = _numbers(timeline, communicators=communicators) if numbered else {}
        words, lists = _some_in_twos(words) if in_twos else (words, {})
        done = list(timeline.done)
        for step in range(3) if timeline.rank < 2 else ():
            mine = [one for one in done if one.step == step and one.operation.group.startswith("tp:")]
            done.remove(mine[-1 if timeline.rank == 0 else 0])
        lossy = dataclasses.replace(timeline, done=done)
        window = _window(layout, lossy, clocks[layout.host(timeline.rank)], words, lists)
        traces.append(read([encode(window)], str(timeline.rank)))
    return gather(traces)


def _apart(fleet: Fleet) -> list[int]:
    """ns between the ends of what was matched, on one clock: those of one collective are equal."""
    exchanges = match(fleet)
    operations, _ = align(fleet, exchanges)
    return [int(np.ptp(operations["end"][list(one.members)])) for one in exchanges.all]


@pytest.mark.parametrize("in_twos", [False, True], ids=["one", "several"])
def test_collectives_are_matched_by_the_number_that_nccl_gave_them(in_twos: bool) -> None:
    """Each rank lacks another one of each step: those have no partner, and all others have the right one."""
    fleet = _with_losses(numbered=True, in_twos=in_twos)
    exchanges = match(fleet)
    numbers = fleet.operations["sequence"]
    assert all(len({int(numbers[member]) for member in one.members}) == 1 for one in exchanges.all)
    assert exchanges.unmatched == 6
    assert max(_apart(fleet)) < 100_000
    steps = [one.step for one in exchanges.all if one.scope == "tp:dp0.pp0"]
    assert Counter(steps) == {0: 30, 1: 30, 2: 30}


@pytest.mark.parametrize(("numbered", "communicators"), [(False, 1), (True, 2)])
def test_without_numbers_of_one_communicator_order_decides(numbered: bool, communicators: int) -> None:
    """As many on both sides: each is taken for the one beside it."""
    fleet = _with_losses(numbered=numbered, communicators=communicators)
    assert match(fleet).unmatched == 0
    assert max(_apart(fleet)) > 1_000_000
