"""Checked records of one connection into the state of its rank: a function for each type of record.

Each takes the rank, one record, and what the connection's name ids mean, and raises `WireError` where a value
is none that a producer of ours could send. Spans come by the hundred a step: they are taken by the message,
as plain tuples, and what their ids mean is looked up once in it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_exporter.kernels.communicators import CollectiveSpan
from argus_exporter.kernels.step_records import SpanOnGpu
from argus_exporter.names import NameTable
from argus_exporter.place.topology import DIMENSIONS
from argus_exporter.ranks.phases import PhaseTotals
from argus_exporter.ranks.rank_state import RankState

_UNNAMED: Final = "unnamed"
"""Instead of an empty text: an empty label is none to Prometheus."""
_ROUNDED_UP: Final = 1 + 2.0**-23
"""What a duration may gain on its way through a 32-bit float."""
_COMPUTE: Final = int(wire.Kind.COMPUTE)
_LONGEST_NS: Final = 1 << 50
"""Thirteen days: of a span on the GPU, and of what lies between it and the step before it."""


def take(rank: RankState, header: wire.Header, payload: memoryview, names: NameTable) -> None:
    """All records of one message; of types that say something about the rank.

    Raises:
        WireError: a record is not what its type allows.
    """
    match header.type:
        case wire.MessageType.SPANS:
            spans(rank, payload, names)
        case wire.MessageType.KERNELS:
            if header.count:
                kernels(rank, np.frombuffer(payload, KERNEL_DTYPE), names)
        case wire.MessageType.ITERATIONS:
            for step in wire.Iteration.unpack_all(payload):
                iteration(rank, step)
        case wire.MessageType.ACTIVITY:
            for change in wire.ActivityChange.unpack_all(payload):
                activity(rank, change)
        case wire.MessageType.WORK:
            for done in wire.Work.unpack_all(payload):
                work(rank, done, names)
        case wire.MessageType.JOB:
            for facts in wire.JobFacts.unpack_all(payload):
                job_facts(rank, facts)
        case wire.MessageType.PHASES:
            for told in wire.PhaseInfo.unpack_all(payload):
                phase_info(rank, told, names)
        case wire.MessageType.LAYERS:
            for of_layer in wire.Layer.unpack_all(payload):
                layer(rank, of_layer, names)
        case wire.MessageType.GPU_SPANS:
            gpu_spans(rank, payload, names)
        case wire.MessageType.CHANNELS:
            for state in wire.ChannelState.unpack_all(payload):
                channel_state(rank, state, names)
        case wire.MessageType.GARBAGE_COLLECTIONS:
            for collection in wire.GarbageCollection.unpack_all(payload):
                garbage_collection(rank, collection)
        case wire.MessageType.COMPILATIONS:
            for compiled in wire.Compilation.unpack_all(payload):
                compilation(rank, compiled, names)
        case wire.MessageType.STACK_NODES:
            for node in wire.StackNode.unpack_all(payload):
                rank.stacks.node(node, names)
        case wire.MessageType.STACK_SAMPLES:
            for sample in wire.StackSample.unpack_all(payload):
                stack_sample(rank, sample, names)


def spans(rank: RankState, payload: bytes | memoryview, names: NameTable) -> None:
    """All spans of a message."""
    channel, now = rank.channel(wire.Channel.PHASES), rank.phases.clock()
    counted: dict[tuple[int, int, int, int], _Alike] = {}
    for start_ns, duration_ns, _, phase, group, kind, source, _, nested in wire.Span.FORMAT.iter_unpack(
        payload
    ):
        seconds = _own_seconds(duration_ns, nested, "span of", phase, names)
        of = counted.get((phase, group, kind, source))
        if of is None:
            of = counted[phase, group, kind, source] = _alike(rank, names, phase, group, kind, source)
        channel.records += 1
        if of.totals is None:
            channel.dropped["phases_limit"] += 1
            continue
        of.totals.add(now, seconds)
        if of.along:
            end_ns = start_ns + duration_ns
            rank.kernels.collective(CollectiveSpan(start_ns, end_ns, of.along, of.on_device))


class _Alike(NamedTuple):
    """What becomes of the spans of a message that have the same phase, group, kind and source.

    Attributes:
        totals: where they count; None: the rank has too many phases.
        along: the dimension that they are evidence of; empty: none.
        on_device: the GPU measured them.
    """

    totals: PhaseTotals | None
    along: str
    on_device: bool


def _alike(rank: RankState, names: NameTable, phase_id: int, group_id: int, kind: int, source: int) -> _Alike:
    phase, named = names.text(phase_id) or _UNNAMED, names.text(group_id)
    try:
        kind_, source_ = wire.Kind(kind), wire.Source(source)
    except ValueError as error:
        raise wire.WireError("value", f"span of {phase!r}: {error}") from error
    totals = rank.phases.totals(phase, kind_.name.lower(), named, source_.name.lower())
    is_evidence = kind_ is wire.Kind.COMM and source_ is not wire.Source.KERNEL and named in DIMENSIONS
    return _Alike(totals, named if is_evidence else "", source_ is wire.Source.EVENT)


def gpu_spans(rank: RankState, payload: bytes | memoryview, names: NameTable) -> None:
    """All spans of a message where they lay on the GPU."""
    phases: dict[int, str] = {}
    for step, after_ns, duration_ns, phase_id, kind in wire.GpuSpan.FORMAT.iter_unpack(payload):
        phase = phases.get(phase_id)
        if phase is None:
            phase = phases[phase_id] = names.text(phase_id) or _UNNAMED
        if not (abs(after_ns) < _LONGEST_NS and duration_ns < _LONGEST_NS):
            detail = f"{duration_ns} ns that begin {after_ns} ns after a mark"
            raise wire.WireError("value", f"GPU span of {phase!r}: {detail}")
        rank.kernels.gpu_span(step, SpanOnGpu(phase, kind == _COMPUTE, after_ns, duration_ns))


def layer(rank: RankState, record: wire.Layer, names: NameTable) -> None:
    kind = names.text(record.layer_id) or _UNNAMED
    try:
        wire.Source(record.source)
    except ValueError as error:
        raise wire.WireError("value", f"layer {kind!r}: {error}") from error
    seconds = _own_seconds(record.duration_ns, record.nested_seconds, "layer", record.layer_id, names)
    channel = rank.channel(wire.Channel.PHASES)
    channel.records += 1
    if not rank.layers.sampled(kind, record.microbatch, seconds):
        channel.dropped["layers_limit"] += 1


def phase_info(rank: RankState, record: wire.PhaseInfo, names: NameTable) -> None:
    phase = names.text(record.phase_id) or _UNNAMED
    try:
        kind = wire.Kind(record.kind).name.lower()
    except ValueError as error:
        raise wire.WireError("value", f"phase {phase!r}: {error}") from error
    if not rank.phases.tell_waits(phase, kind, wire.waits_text(record.waits)):
        rank.channel(wire.Channel.PHASES).dropped["phases_limit"] += 1


def iteration(rank: RankState, record: wire.Iteration) -> None:
    for total in (record.total_seconds, record.total_squared):
        _check_total(total, "iteration total")
    if rank.iterations is not None and record == rank.iterations.last:
        return  # told again on a new connection
    rank.channel(wire.Channel.PHASES).records += 1
    rank.stepped(record)


def kernels(rank: RankState, records: KernelArray, names: NameTable) -> None:
    rank.channel(wire.Channel.KERNELS).records += len(records)
    own = records.copy()  # the packet's memory is not ours to keep
    own["name_id"] = names.internal_ids(records["name_id"])
    rank.kernels.add(own)


def job_facts(rank: RankState, record: wire.JobFacts) -> None:
    rank.trains(wire.decode_text(record.model), wire.decode_text(record.backend))


def work(rank: RankState, record: wire.Work, names: NameTable) -> None:
    _check_total(record.total, "work total")
    if not rank.worked(names.text(record.unit_id) or _UNNAMED, record.total):
        rank.channel(wire.Channel.PHASES).dropped["units_limit"] += 1


def garbage_collection(rank: RankState, record: wire.GarbageCollection) -> None:
    rank.channel(wire.Channel.PHASES).records += 1
    rank.host.collected(record)


def compilation(rank: RankState, record: wire.Compilation, names: NameTable) -> None:
    channel = rank.channel(wire.Channel.PHASES)
    channel.records += 1
    if not rank.host.compiled(record, names.text(record.compiler_id) or _UNNAMED):
        channel.dropped["compilers_limit"] += 1


def stack_sample(rank: RankState, record: wire.StackSample, names: NameTable) -> None:
    if not rank.stacks.sample(record, names):
        rank.channel(wire.Channel.STACKS).dropped["stacks_limit"] += record.count


def activity(rank: RankState, record: wire.ActivityChange) -> None:
    try:
        rank.activity = wire.Activity(record.activity)
    except ValueError as error:
        raise wire.WireError("value", str(error)) from error


def channel_state(rank: RankState, record: wire.ChannelState, names: NameTable) -> None:
    try:
        channel = rank.channel(wire.Channel(record.channel))
    except ValueError as error:
        raise wire.WireError("value", str(error)) from error
    channel.up = bool(record.up)
    channel.reason = names.text(record.reason_id) or ("" if channel.up else "unknown")
    channel.cpu_seconds = record.cpu_ns / 1e9
    if record.dropped > channel.dropped["source"] and record.channel != wire.Channel.STACKS:
        rank.kernels.anatomy.records.lost()
    channel.dropped["source"] = record.dropped
    if record.channel == wire.Channel.STACKS:
        rank.stacks.sampled_inside(channel.up, names.text(record.reason_id))
        rank.settle_stacks()


def _own_seconds(duration_ns: int, nested: float, what: str, name_id: int, names: NameTable) -> float:
    """The duration without what is nested in it."""
    inclusive = duration_ns / 1e9
    if not 0 <= nested <= inclusive * _ROUNDED_UP:
        name = names.text(name_id) or _UNNAMED
        raise wire.WireError("value", f"{what} {name!r}: {nested} s of its {inclusive} s in other spans")
    return max(inclusive - nested, 0.0)


def _check_total(total: float, what: str) -> None:
    if not (math.isfinite(total) and total >= 0):
        raise wire.WireError("value", f"{what} {total} is not a finite number of 0 or more")
