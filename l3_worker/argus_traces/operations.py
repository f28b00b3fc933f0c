"""What ran on all ranks as one table: kernels and copies, or phases where a rank has no kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_names import collective_phase, is_collective
from argus_traces.intervals import covered, spans_of, union
from argus_traces.summary import KERNEL_CATEGORIES, launches_of, step_bounds
from argus_traces.tables import RankTrace, Slices, Times, Window

COMPUTE, MEMORY, COMMUNICATION, HOST = range(4)

OPERATION: Final = np.dtype(
    [
        ("rank", "<i4"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("launch", "<i8"),
        ("launched", "?"),
        ("kind", "u1"),
        ("name", "<i4"),
        ("stream", "<i4"),
        ("phase", "<i4"),
        ("group", "<i4"),
        ("step", "<i8"),
        ("microbatch", "<i8"),
        ("occurrence", "<i4"),
        ("communicator", "<i4"),
        ("sequence", "<i4"),
        ("list", "<i4"),
    ]
)
"""One operation. `rank`: position among the traces; `name`, `stream`, `phase`, `group`: positions in the
strings, -1: unknown; `launched`: the launch is known; `occurrence`: number among the like in a step;
`communicator`, `sequence`, `list`: as of a slice."""

Operations = NDArray[np.void]

# A communication phase that was derived from a kernel has the kernel's own times, up to rounding.
_SAME_NS: Final = 5_000
_NESTING: Final = 4
_DIMENSION: Final = re.compile(r"stream nccl:(dp|tp|ep|world)(?:\.\d+)?")


@dataclass(frozen=True)
class Fleet:
    """All operations, sorted by rank and start, and what their numbers mean."""

    traces: tuple[RankTrace, ...]
    operations: Operations
    strings: tuple[str, ...]

    def name(self, rank: int) -> str:
        """A rank as people call it."""
        return self.traces[rank].window.name


class _Strings:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": -1}
        self.texts: list[str] = []

    def of(self, text: str) -> int:
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]

    def remap(self, trace: RankTrace) -> NDArray[np.int32]:
        """Positions of the trace's strings here; the last entry serves -1."""
        return np.array([*(self.of(text) for text in trace.strings), -1], np.int32)


def gather(traces: Sequence[RankTrace]) -> Fleet:
    """The operations of all ranks; times as each host's clock has them."""
    strings = _Strings()
    parts = [_of_rank(position, trace, strings) for position, trace in enumerate(traces)]
    table = np.concatenate(parts) if parts else np.empty(0, OPERATION)
    _count_occurrences(table)
    return Fleet(tuple(traces), table, tuple(strings.texts))


def _of_rank(position: int, trace: RankTrace, strings: _Strings) -> Operations:
    kernels, phases = trace.of(*KERNEL_CATEGORIES), trace.of("phase")
    table = _from_kernels(trace, kernels, phases, strings) if len(kernels) else _from_phases(trace, strings)
    table["rank"] = position
    steps, begins = step_bounds(trace)
    unknown = table["step"] < 0
    if len(steps):
        number = np.searchsorted(begins, table["launch"], side="right") - 1
        table["step"][unknown] = np.where(number < 0, steps[0] - 1, steps[np.maximum(number, 0)])[unknown]
    else:
        table["step"][unknown] = 0
    ordered: Operations = table[np.argsort(table["start"], kind="stable")]
    return ordered


def _from_kernels(trace: RankTrace, kernels: Slices, phases: Slices, strings: _Strings) -> Operations:
    remap = strings.remap(trace)
    table = _blank(len(kernels))
    table["start"], table["end"] = kernels["start_ns"], kernels["end_ns"]
    table["launch"] = launches_of(trace, kernels)
    table["launched"] = table["launch"] < table["start"]
    table["name"] = remap[kernels["name"]]
    table["communicator"], table["sequence"] = kernels["communicator"], kernels["sequence"]
    table["list"] = remap[kernels["list"]]
    stream = np.array([*(strings.of(track.removeprefix("stream ")) for track in trace.tracks), -1], np.int32)
    table["stream"] = stream[kernels["track"]]
    collective = np.array([*(is_collective(text) for text in trace.strings), False])
    copies = np.array([*(text in ("memcpy", "memset") for text in trace.strings), False])
    table["kind"] = np.where(
        copies[kernels["category"]], MEMORY, np.where(collective[kernels["name"]], COMMUNICATION, COMPUTE)
    )
    texts = np.array([*trace.strings, ""], object)
    _describe_communications(trace, table, kernels, phases, texts, strings)
    compute = phases[texts[phases["kind"]] == "compute"]
    on_device = compute[texts[compute["source"]] == "event"]
    on_host = compute[texts[compute["source"]] != "event"]
    for described, times in ((on_device, table["start"]), (on_host, table["launch"])):
        missing = table["phase"] < 0
        inside = _enclosing(described, times.astype(np.int64))
        _describe(table, described, np.where(missing, inside, -1), remap, group=False)
    return table


def _describe_communications(
    trace: RankTrace,
    table: Operations,
    kernels: Slices,
    phases: Slices,
    texts: NDArray[np.object_],
    strings: _Strings,
) -> None:
    """Phase and group of communication kernels, from the surest source that knows.

    The phase that was derived from the kernel; the host phase in which it was launched; the dimension in its
    stream's name (`nccl:dp`); the phase on the device in which it began.
    """
    remap = strings.remap(trace)
    comm = phases[texts[phases["kind"]] == "comm"]
    sources = texts[comm["source"]]
    derived, on_host = comm[sources == "kernel"], comm[sources == "host"]
    on_device = comm[(sources != "kernel") & (sources != "host")]
    bare = table["kind"] == COMMUNICATION
    _describe(table, derived, np.where(bare, _same(kernels, derived), -1), remap, group=True)
    bare &= table["group"] < 0
    inside = _enclosing(on_host, table["launch"].astype(np.int64))
    _describe(table, on_host, np.where(bare & table["launched"], inside, -1), remap, group=True)
    bare &= table["group"] < 0
    _name_by_stream(trace, table, kernels, bare, strings)
    bare &= table["group"] < 0
    inside = _enclosing(on_device, table["start"].astype(np.int64))
    _describe(table, on_device, np.where(bare, inside, -1), remap, group=True)


def _name_by_stream(
    trace: RankTrace, table: Operations, kernels: Slices, bare: NDArray[np.bool_], strings: _Strings
) -> None:
    """Group from the stream's dimension, phase from the kernel's name. Transfers of a pipeline stay unknown:
    a kernel does not say whether it sends or receives."""
    for track, name in enumerate(trace.tracks):
        match = _DIMENSION.fullmatch(name)
        group = _group(trace.window, match[1]) if match else ""
        if not group:
            continue
        chosen = bare & (kernels["track"] == track)
        table["group"][chosen] = strings.of(group)
        for kernel in np.unique(kernels["name"][chosen]).tolist():
            phase = collective_phase(trace.text(kernel)) or "collective"
            table["phase"][chosen & (kernels["name"] == kernel)] = strings.of(phase)


def _group(window: Window, dimension: str) -> str:
    """Name of the rank's process group along a dimension; empty where its place does not say."""
    at, of = window.coordinates, window.sizes
    if dimension == "world":
        return "world"
    if dimension == "ep" and {"dp", "ep"} <= at.keys() and "ep" in of:
        shared: list[tuple[str, int]] = [(name, at[name]) for name in ("pp", "tp") if name in at]
        shared.append(("block", at["dp"] // of["ep"]))
    elif dimension in ("dp", "tp") and dimension in at:
        shared = [(name, at[name]) for name in ("dp", "pp", "tp") if name in at and name != dimension]
    else:
        return ""
    return ":".join((dimension, ".".join(f"{name}{index}" for name, index in shared))).rstrip(":")


def _blank(count: int) -> Operations:
    table = np.zeros(count, OPERATION)
    for name in ("phase", "group", "step", "microbatch", "communicator", "sequence", "list"):
        table[name] = -1
    return table


def _describe(
    table: Operations, phases: Slices, which: NDArray[np.int64], remap: NDArray[np.int32], *, group: bool
) -> None:
    """Take name, step and microbatch (and group) of the phases at `which`, -1: none."""
    known = which >= 0
    if not len(phases) or not known.any():
        return
    found = phases[which[known]]
    table["phase"][known] = remap[found["name"]]
    table["microbatch"][known] = found["microbatch"]
    table["step"][known] = found["step"]
    if group:
        table["group"][known] = remap[found["group"]]


def _same(kernels: Slices, phases: Slices) -> NDArray[np.int64]:
    """For each kernel the phase with its times, -1: none. `phases` are sorted by start."""
    result = np.full(len(kernels), -1, np.int64)
    if not len(phases):
        return result
    first = np.searchsorted(phases["start_ns"], kernels["start_ns"] - _SAME_NS)
    for ahead in range(_NESTING):
        index = np.minimum(first + ahead, len(phases) - 1)
        same = (np.abs(phases["start_ns"][index] - kernels["start_ns"]) <= _SAME_NS) & (
            np.abs(phases["end_ns"][index] - kernels["end_ns"]) <= _SAME_NS
        )
        result = np.where((result < 0) & same, index, result)
    return result


def _enclosing(phases: Slices, times: Times) -> NDArray[np.int64]:
    """For each time the latest phase that holds it, -1: none. Looks `_NESTING` phases back."""
    result = np.full(len(times), -1, np.int64)
    if not len(phases):
        return result
    last = np.searchsorted(phases["start_ns"], times, side="right") - 1
    for back in range(_NESTING):
        index = np.maximum(last - back, 0)
        inside = (last - back >= 0) & (phases["end_ns"][index] > times)
        result = np.where((result < 0) & inside, index, result)
    return result


def _from_phases(trace: RankTrace, strings: _Strings) -> Operations:
    """Without kernels: communications, and beside them the innermost other phase at each moment.

    A communication inside a phase interrupts it: what waits there is no work of the phase.
    """
    phases = trace.of("phase")
    comm = np.array([trace.text(int(kind)) == "comm" for kind in phases["kind"]], bool)
    work, talk = phases[~comm], phases[comm]
    around = _enclosing(work, talk["start_ns"].astype(np.int64))
    within = (
        (around >= 0) & (talk["end_ns"] <= work["end_ns"][np.maximum(around, 0)])
        if len(work)
        else around >= 0
    )
    waits = union(spans_of(talk[within]))
    edges = np.unique(np.concatenate((spans_of(work).reshape(-1), waits.reshape(-1))))
    inner = _enclosing(work, edges[:-1])
    waiting = covered(waits, np.stack([edges[:-1], edges[:-1] + 1], axis=1)) > 0
    inner = np.where(waiting, -1, inner)
    # Neighbouring pieces of one phase belong together.
    first = np.flatnonzero(np.diff(inner, prepend=-2)) if len(inner) else inner
    ends = np.append(edges[first[1:]], edges[-1:]) if len(inner) else inner
    keep = inner[first] >= 0
    return np.concatenate(
        (
            _of_phases(trace, work[inner[first][keep]], edges[:-1][first][keep], ends[keep], strings),
            _of_phases(trace, talk, talk["start_ns"], talk["end_ns"], strings),
        )
    )


def _of_phases(trace: RankTrace, phases: Slices, starts: Times, ends: Times, strings: _Strings) -> Operations:
    remap = strings.remap(trace)
    kinds = {"compute": COMPUTE, "comm": COMMUNICATION, "host": HOST}
    table = _blank(len(phases))
    table["start"], table["end"], table["launch"] = starts, ends, starts
    table["kind"] = [kinds.get(trace.text(int(kind)), COMPUTE) for kind in phases["kind"]]
    table["name"] = table["phase"] = remap[phases["name"]]
    tracks = np.array([*(strings.of(track) for track in trace.tracks), -1], np.int32)
    table["stream"] = tracks[phases["track"]]
    table["group"] = remap[phases["group"]]
    table["step"], table["microbatch"] = phases["step"], phases["microbatch"]
    return table


def _count_occurrences(table: Operations) -> None:
    """Number operations of one rank, step, name, phase and group in order of start."""
    keys = np.stack([table[name].astype(np.int64) for name in ("rank", "step", "name", "phase", "group")])
    order = np.lexsort((table["start"], *keys))
    if not len(order):
        return
    ordered = keys[:, order]
    fresh = np.concatenate(([True], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))
    begins = np.flatnonzero(fresh)
    run = np.cumsum(fresh) - 1
    table["occurrence"][order] = np.arange(len(order)) - begins[run]
