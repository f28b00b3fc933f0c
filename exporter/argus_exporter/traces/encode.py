"""A window of a rank as a Perfetto file (docs/traces.md says what is in it)."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import kernel_id
from argus_core.kernel_records import KernelArray
from argus_core.version import installed_version
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.place.topology import Identity
from argus_exporter.traces import kernel_packets
from argus_exporter.traces.lanes import nested, side_by_side
from argus_exporter.traces.nccl_lists import lists
from argus_exporter.traces.packets import Annotation, Thread, TraceWriter
from argus_exporter.traces.window import TraceWindow

_KERNELS_AT_ONCE: Final = 8192
"""Kernels whose packets are made and compressed together: 0.7 MB."""
_DEPTH_POINTS: Final = 2000
"""Points of the queue depth in one window: more than a screen is wide."""
_CATEGORIES: Final = tuple(operation.name.lower() for operation in wire.Operation)
_COORDINATES: Final = ("dp", "tp", "pp", "ep")


def encode(window: TraceWindow) -> bytes:
    """The file of a window; the same window gives the same bytes."""
    target = io.BytesIO()
    encode_to(window, target)
    return target.getvalue()


def encode_to(window: TraceWindow, target: BinaryIO) -> None:
    """Write the file of a window.

    Raises:
        ArgusExporterError: the package `perfetto` is not installed.
    """
    identity = window.identity
    writer = TraceWriter(target, identity.training_job, identity.rank)
    writer.begin(process_name(identity))
    _write_iterations(writer, window)
    _write_spans(writer, window)
    _write_layers(writer, window)
    _write_kernels(writer, window)
    _write_pauses(writer, window)
    _write_samples(writer, window)
    if window.drops:
        times, lost = np.array([(window.begin_ns, 0), *window.drops], np.int64).T
        writer.counter("records dropped", "records", times, lost)
    _write_window(writer, window)  # last: a file without it was cut off
    writer.flush()


def process_name(identity: Identity) -> str:
    """`rank 3 (dp1 tp0 pp2)`."""
    at = identity.coordinates
    place = " ".join(f"{name}{at[name]}" for name in _COORDINATES if name in at)
    return f"rank {identity.rank} ({place})" if place else f"rank {identity.rank}"


def _write_window(writer: TraceWriter, window: TraceWindow) -> None:
    """The instant that says whose trace this is, on a thread named `argus`."""
    identity = window.identity
    annotations: list[Annotation] = [
        ("training_job", identity.training_job),
        ("rank", identity.rank),
        ("node", identity.node),
        ("gpu_uuid", identity.gpu_uuid),
        ("role", identity.role),
        ("world_size", identity.world_size),
        *sorted(identity.coordinates.items()),
        *((f"{name}_size", size) for name, size in sorted(identity.sizes.items())),
    ]
    if window.first_step is not None and window.last_step is not None:
        annotations += [("first_step", window.first_step), ("last_step", window.last_step)]
    annotations += [
        ("start_ns", window.begin_ns),
        ("end_ns", window.end_ns),
        ("dropped", window.dropped),
        ("argus_version", installed_version()),
    ]
    thread = writer.thread("argus")
    thread.start()
    thread.instant(window.begin_ns, "argus", "window", annotations)


def _write_iterations(writer: TraceWriter, window: TraceWindow) -> None:
    slices = [
        (int(start), int(start + duration), "iteration", f"step {step}", (("step", int(step)),))
        for step, start, duration in window.iterations.tolist()
    ]
    _write_nested(writer, "iterations", slices)


def _write_spans(writer: TraceWriter, window: TraceWindow) -> None:
    spans = window.spans
    microbatches = bool(np.any(spans["microbatch"]))
    by_source: dict[str, list[_Slice]] = defaultdict(list)
    for span, group in zip(spans.tolist(), window.groups, strict=True):
        start, duration, step, phase_id, _, kind, source, microbatch, _ = span
        source_name = wire.Source(source).name.lower()
        annotations: tuple[Annotation, ...] = (
            ("kind", wire.Kind(kind).name.lower()),
            ("group", group),
            ("source", source_name),
            ("step", step),
        )
        if microbatches:
            annotations += (("microbatch", microbatch),)
        by_source[source_name].append((start, start + duration, "phase", window.texts[phase_id], annotations))
    for source_name, slices in sorted(by_source.items()):
        _write_nested(writer, f"phases {source_name}", slices)


def _write_layers(writer: TraceWriter, window: TraceWindow) -> None:
    by_source: dict[str, list[_Slice]] = defaultdict(list)
    for one in window.layers:
        annotations = ("step", one.step), ("microbatch", one.microbatch)
        named = "layer", f"{one.kind} {one.index}", annotations
        by_source[one.source.name.lower()].append((one.start_ns, one.start_ns + one.duration_ns, *named))
    for source_name, slices in sorted(by_source.items()):
        _write_nested(writer, f"layers {source_name}", slices)


def _write_pauses(writer: TraceWriter, window: TraceWindow) -> None:
    slices = [
        (pause.start_ns, pause.start_ns + pause.duration_ns, pause.category, pause.name, ())
        for pause in window.pauses
    ]
    _write_nested(writer, "collector", slices)


_Slice = tuple[int, int, str, str, tuple[Annotation, ...]]
"""Begin, end, category, name, annotations."""


def _write_nested(writer: TraceWriter, name: str, slices: Sequence[_Slice]) -> None:
    """Slices that may lie within one another; those that cross go to threads `NAME #2`, ..."""
    ordered = sorted(slices, key=lambda one: (one[0], -one[1], one[3], one[4]))
    starts = np.array([one[0] for one in ordered], np.int64)
    ends = np.array([one[1] for one in ordered], np.int64)
    lanes = nested(starts, ends)
    for lane in range(int(lanes.max(initial=-1)) + 1):
        thread = writer.thread(_lane_name(name, lane))
        thread.start()
        open_until: list[int] = []
        for index in np.flatnonzero(lanes == lane).tolist():
            start, end, category, slice_name, annotations = ordered[index]
            while open_until and open_until[-1] <= start:
                thread.end(open_until.pop())
            thread.begin(start, category, slice_name, annotations)
            open_until.append(min((end, *open_until[-1:])))  # less only where there are too many lanes
        while open_until:
            thread.end(open_until.pop())


def _write_kernels(writer: TraceWriter, window: TraceWindow) -> None:
    kernels = window.kernels[np.argsort(window.kernels["start_ns"], kind="stable")]
    known = kernels["issue_ns"] >= 0
    # Flow ids differ between ranks and between windows: no window has more than one kernel a microsecond.
    serial = np.uint64(window.begin_ns // 1000) + np.arange(len(kernels), dtype=np.uint64)
    flows = np.uint64(writer.rank & 0xFFFFFF) << np.uint64(40) | serial & np.uint64((1 << 40) - 1)
    _write_launches(writer, window, kernels[known], flows[known])
    keys = stream_keys(kernels)
    by_name: dict[str, list[int]] = defaultdict(list)
    for key in np.unique(keys).tolist():
        by_name[window.streams[key]].append(key)
    for name, of_name in sorted(by_name.items()):
        places = np.flatnonzero(np.isin(keys, of_name))
        starts = kernels["start_ns"][places].astype(np.int64)
        lanes = side_by_side(starts, starts + kernels["duration_ns"][places].astype(np.int64))
        for lane in range(int(lanes.max()) + 1):
            mine = places[lanes == lane]
            thread = writer.thread(_lane_name(f"stream {name}", lane))
            _write_stream(thread, window, _cut_off(kernels[mine]), flows[mine])


def _cut_off(kernels: KernelArray) -> KernelArray:
    """Kernels of one lane, ascending by start: one that overlaps the next ends where that begins."""
    gaps = np.diff(kernels["start_ns"], append=np.iinfo(kernels["start_ns"].dtype).max)
    kernels["duration_ns"] = np.minimum(kernels["duration_ns"], gaps)
    return kernels


def _write_stream(
    thread: Thread, window: TraceWindow, kernels: KernelArray, flows: NDArray[np.uint64]
) -> None:
    """Kernels, copies and memory sets that do not overlap, ascending by start."""
    does = lists(kernels, window.operations, window.members)
    ids, id_of = np.unique(kernels["name_id"], return_inverse=True)
    full = [window.texts[name_id] for name_id in ids.tolist()]
    short = [kernel_id(name) for name in full]
    names, texts = sorted(set(full)), sorted({*short, *does.texts})
    name_of = np.array([names.index(name) + 1 for name in full], np.uint64)[id_of]
    text_of = np.array([texts.index(text) + 1 for text in short], np.uint64)[id_of]
    number_of = {text: number for number, text in enumerate(texts, start=1)}
    list_of = np.array([number_of[text] if text else 0 for text in does.texts], np.uint64)
    thread.start(names=names, categories=_CATEGORIES, annotations=_ANNOTATIONS, texts=texts)
    for at in range(0, len(kernels), _KERNELS_AT_ONCE):
        part = slice(at, at + _KERNELS_AT_ONCE)
        thread.writer.add_packed(
            _slices(
                thread.number,
                kernels[part],
                (name_of[part], text_of[part], list_of[part]),
                does.sequences[part],
                flows[part],
            )
        )


def _slices(
    sequence: int,
    kernels: KernelArray,
    texts: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]],
    sequences: NDArray[np.int64],
    flows: NDArray[np.uint64],
) -> bytes:
    """Packets of kernels; all have the shape of `kernels`.

    Args:
        texts: interned ids of name, short id and list (0: none).
        sequences: as of `Lists`.
    """
    names, short, does = texts
    known = kernels["issue_ns"] >= 0
    words = kernels["kilobytes"]
    sized = kernels["operation"] != wire.Operation.KERNEL
    launched = ~sized & (words >= wire.LAUNCHED_BY_NCCL)
    single = launched & (words & np.uint32(wire.LAUNCHED_ONE) > 0)
    collectives = launched & (sequences >= 0)
    kinds = np.select(
        [sized, single, collectives, launched & (does > 0), launched],
        [_SIZED, _SINGLE, _COLLECTIVES, _LISTED, _SEVERAL],
        0,
    )
    parts = []
    for with_flow in (False, True):
        for kind in range(_LISTED + 1):
            places = np.flatnonzero((known == with_flow) & (kinds == kind))
            if not len(places):
                continue
            some = kernels[places]
            rows = kernel_packets.slices(
                sequence,
                some["start_ns"],
                some["start_ns"] + some["duration_ns"],
                names[places],
                some["operation"].astype(np.uint64) + np.uint64(1),
                texts=[(1, short[places]), *([(6, does[places])] if kind in (_COLLECTIVES, _LISTED) else [])],
                numbers=_numbers(kind, words[places].astype(np.uint64), sequences[places]),
                terminates=flows[places] if with_flow else None,
            )
            parts.append((places, rows))
    return kernel_packets.interleave(parts, len(kernels))


_SIZED, _SINGLE, _SEVERAL, _COLLECTIVES, _LISTED = 1, 2, 3, 4, 5
"""What the number of a record tells: bytes of a copy; of a kernel of NCCL the communicator, with the sequence
number of its one operation, or how many operations it does, and perhaps which: collectives alone, or any."""
_ANNOTATIONS: Final = ("kernel", "bytes", "communicator", "sequence", "operations", "list")


def _numbers(
    kind: int, words: NDArray[np.uint64], sequences: NDArray[np.int64]
) -> list[tuple[int, NDArray[np.uint64]]]:
    """Annotations by their place in _ANNOTATIONS, from 1 on."""
    if kind == _SIZED:
        return [(2, words * np.uint64(1024))]
    # Slot and generation: equal for the kernels of one communicator, and for no others of the rank.
    communicator = words >> np.uint64(wire.LAUNCHED_GENERATION) & np.uint64(0x7FFF)
    low = words & np.uint64(wire.LAUNCHED_ONE - 1)
    if kind == _SINGLE:
        return [(3, communicator), (4, low)]
    if kind == _COLLECTIVES:
        return [(3, communicator), (4, sequences.astype(np.uint64)), (5, low)]
    return [(3, communicator), (5, low)] if kind else []


def _write_launches(
    writer: TraceWriter, window: TraceWindow, kernels: KernelArray, flows: NDArray[np.uint64]
) -> None:
    if not len(kernels):
        return
    times = kernels["start_ns"].astype(np.int64) - kernels["issue_ns"]
    order = np.argsort(times, kind="stable")
    thread = writer.thread("launches")
    thread.start(names=("launch",), categories=("launch",))
    for at in range(0, len(order), _KERNELS_AT_ONCE):
        some = order[at : at + _KERNELS_AT_ONCE]
        rows = kernel_packets.launches(thread.number, times[some].astype(np.uint64), 1, 1, flows[some])
        writer.add_packed(rows.tobytes())
    depth = _queue_depth(times, kernels["start_ns"].astype(np.int64), window)
    writer.counter("queue depth", "kernels", *depth)


def _queue_depth(
    launched: NDArray[np.int64], started: NDArray[np.int64], window: TraceWindow
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times and values: most kernels launched and not yet started in each of `_DEPTH_POINTS` parts.

    Between points the depth is at most what the point before it says.
    """
    times = np.concatenate((launched, started))
    change = np.repeat(np.array([1, -1]), len(launched))
    order = np.lexsort((-change, times))  # at one instant launches first: a kernel never starts before
    times, depth = times[order], np.cumsum(change[order])
    length = max((window.end_ns - window.begin_ns) // _DEPTH_POINTS, 1)
    part = (times - window.begin_ns) // length
    begins = np.flatnonzero(np.diff(part, prepend=part[0] - 1))
    most = np.maximum.reduceat(depth, begins)
    return np.append(times[begins], times[-1]), np.append(most, 0)


def _write_samples(writer: TraceWriter, window: TraceWindow) -> None:
    """Samples of a stretch of time are spread over it evenly: when each was taken is not known."""
    by_thread: dict[str, list[tuple[int, int, tuple[str, ...], int]]] = defaultdict(list)
    for samples in window.samples:
        for (name, frames), count in samples.counts.items():
            by_thread[name].append((samples.begin_ns, samples.end_ns, frames, count))
    for name, entries in sorted(by_thread.items()):
        stacks = {frames: iid for iid, frames in enumerate(sorted({entry[2] for entry in entries}), start=1)}
        thread = writer.thread(f"stacks {name}")
        thread.start()
        thread.stacks({iid: frames for frames, iid in stacks.items()})
        for time_ns, frames in sorted(_spread(entries)):
            thread.sample(time_ns, stacks[frames])


def _spread(
    entries: Sequence[tuple[int, int, tuple[str, ...], int]],
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for begin_ns, end_ns, frames, count in entries:
        for index in range(count):
            yield begin_ns + (end_ns - begin_ns) * (2 * index + 1) // (2 * count), frames


def _lane_name(name: str, lane: int) -> str:
    return name if lane == 0 else f"{name} #{lane + 1}"
