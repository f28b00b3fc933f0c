"""The same timelines written by the exporter's own encoder lead to the same verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.encode import encode
from argus_exporter.traces.window import Pause as PauseRecord
from argus_exporter.traces.window import TraceWindow
from argus_simulator.engine.faults import Fault
from argus_simulator.traces.encode import Clock, clocks_of
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import RankTimeline, play, usual_shape
from argus_traces.blame import blame
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


def _window(layout: Layout, timeline: RankTimeline, clock: Clock) -> TraceWindow:
    """What the exporter would hold of the rank."""
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
