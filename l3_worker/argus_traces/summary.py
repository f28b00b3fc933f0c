"""Where one rank's time went: phases, streams, overlap, the critical path, and idle time of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core.kernel_names import is_collective, kernel_id
from argus_traces.intervals import (
    NOTHING,
    complement,
    covered,
    intersection,
    length,
    spans_of,
    union,
)
from argus_traces.tables import RankTrace, Slices, Spans

KERNEL_CATEGORIES: Final = ("kernel", "memcpy", "memset")
_STREAM: Final = "stream "
_OTHER_THREADS: Final = "_bootstrap"
"""Frame of threads that Python started: the training thread has none (EROICA 4.2)."""
_MAIN_THREAD: Final = "MainThread"


@dataclass(frozen=True)
class PhaseTime:
    """Spans of one phase. Times in seconds."""

    phase: str
    kind: str
    source: str
    group: str
    count: int
    total: float
    median: float
    longest: float


@dataclass(frozen=True)
class StreamTime:
    """One stream: how long it was busy, seconds and share of the window."""

    stream: str
    count: int
    busy: float
    busy_ratio: float


@dataclass(frozen=True)
class FunctionBeta:
    """EROICA's beta: the share of the window in which nothing more critical than this function ran."""

    function: str
    category: str
    beta: float
    total: float


@dataclass(frozen=True)
class UnlikeFunction:
    """A function whose beta on a rank is above that of the others. `usual`: their median."""

    rank: int
    function: str
    category: str
    beta: float
    usual: float


@dataclass(frozen=True)
class Voids:
    """FLARE's void percentages as shares, and the idle time within steps in which no launch was waiting.

    inter_step: time between the last kernel of a step and the first of the next, over the time of the steps.
    minority: idle GPU within steps although a kernel was launched, over the time within steps.
    host: idle GPU within steps with nothing launched, over the time within steps.
    """

    inter_step: float
    minority: float
    host: float
    steps: int


@dataclass(frozen=True)
class Summary:
    """What one rank did in its window.

    Attributes:
        seconds: length of the window.
        busy_ratio: share of it in which any kernel or copy ran.
        communication, hidden: seconds of communication, and of these while computation ran.
        voids: None without two steps and kernels.
    """

    name: str
    rank: int
    seconds: float
    busy_ratio: float
    communication: float
    hidden: float
    phases: tuple[PhaseTime, ...]
    streams: tuple[StreamTime, ...]
    betas: tuple[FunctionBeta, ...]
    voids: Voids | None

    @property
    def overlap_ratio(self) -> float:
        """Share of communication that computation hid; 0 without communication."""
        return self.hidden / self.communication if self.communication else 0.0


def summarise(trace: RankTrace) -> Summary:
    """Everything that one rank's trace says by itself."""
    begin, end = _extent(trace)
    kernels = trace.of(*KERNEL_CATEGORIES)
    compute, memory, communication = _classes(trace, kernels)
    busy = union(spans_of(kernels))
    computing, communicating = union(spans_of(kernels[compute])), union(spans_of(kernels[communication]))
    return Summary(
        name=trace.window.name,
        rank=trace.window.rank,
        seconds=(end - begin) / 1e9,
        busy_ratio=length(busy) / max(end - begin, 1),
        communication=length(communicating) / 1e9,
        hidden=int(covered(computing, communicating).sum()) / 1e9,
        phases=tuple(_phases(trace)),
        streams=tuple(_streams(trace, kernels, end - begin)),
        betas=tuple(_betas(trace, kernels, (compute, memory, communication), begin, end)),
        voids=_voids(trace, kernels),
    )


def _extent(trace: RankTrace) -> tuple[int, int]:
    begin, end = trace.window.start_ns, trace.window.end_ns
    if end <= begin and len(trace.slices):
        begin, end = int(trace.slices["start_ns"].min()), int(trace.slices["end_ns"].max())
    return begin, end


def _classes(
    trace: RankTrace, kernels: Slices
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # shapes (n,), bool
    collective = np.array([is_collective(text) for text in trace.strings], bool)
    copies = np.array([text in ("memcpy", "memset") for text in trace.strings], bool)
    memory = copies[kernels["category"]] if len(kernels) else np.zeros(0, bool)
    communication = (collective[kernels["name"]] if len(kernels) else np.zeros(0, bool)) & ~memory
    return ~memory & ~communication, memory, communication


def _phases(trace: RankTrace) -> Iterator[PhaseTime]:
    slices = trace.of("phase")
    columns = ["name", "kind", "source", "group"]
    keys, inverse = np.unique(slices[columns], return_inverse=True)
    found = []
    for number, key in enumerate(keys):
        of_key = slices[inverse == number]
        seconds = (of_key["end_ns"] - of_key["start_ns"]) / 1e9
        name, kind, source, group = (trace.text(int(key[column])) for column in columns)
        found.append(
            PhaseTime(
                name, kind, source, group, len(of_key),
                float(seconds.sum()), float(np.median(seconds)), float(seconds.max()),
            )
        )  # fmt: skip
    yield from sorted(found, key=lambda one: -one.total)


def _streams(trace: RankTrace, kernels: Slices, window_ns: int) -> Iterator[StreamTime]:
    for track in np.unique(kernels["track"]):
        of_track = kernels[kernels["track"] == track]
        busy = length(union(spans_of(of_track)))
        name = trace.tracks[int(track)].removeprefix(_STREAM)
        yield StreamTime(name, len(of_track), busy / 1e9, busy / max(window_ns, 1))


def _betas(
    trace: RankTrace, kernels: Slices, classes: tuple[np.ndarray, ...], begin: int, end: int
) -> Iterator[FunctionBeta]:
    """By priority compute > memory > communication > host; a function counts while nothing above it runs.

    Source: EROICA 4.2, equations 2 and 3. Functions of one class may be critical together, so that the sum
    over functions can exceed 1 where streams compute side by side.
    """
    above, found = NOTHING, []
    for category, mask in zip(("compute", "memory", "communication"), classes, strict=True):
        of_class = kernels[mask]
        for name in np.unique(of_class["name"]):
            spans = union(spans_of(of_class[of_class["name"] == name]))
            free = length(spans) - int(covered(above, spans).sum())
            function = kernel_id(trace.text(int(name)))
            found.append(FunctionBeta(function, category, free / max(end - begin, 1), length(spans) / 1e9))
        above = union(np.concatenate((above, spans_of(of_class))))
    for function, spans in _host_functions(trace):
        free = length(spans) - int(covered(above, spans).sum())
        found.append(FunctionBeta(function, "host", free / max(end - begin, 1), length(spans) / 1e9))
    found += _sampled(trace, above, begin, end)
    yield from sorted(found, key=lambda one: -one.beta)


def _host_functions(trace: RankTrace) -> Iterator[tuple[str, Spans]]:
    """What the host is known to have done, innermost only: pauses, and host phases outside of pauses."""
    pauses = trace.of("gc", "compile")
    for name in np.unique(pauses["category"]):
        yield trace.text(int(name)), union(spans_of(pauses[pauses["category"] == name]))
    inner = complement(union(spans_of(pauses)))
    phases = trace.of("phase")
    host = phases[[trace.text(int(one)) == "host" for one in phases["kind"]]] if len(phases) else phases
    for name in np.unique(host["name"]):
        yield trace.text(int(name)), intersection(union(spans_of(host[host["name"] == name])), inner)


def _sampled(trace: RankTrace, above: Spans, begin: int, end: int) -> Iterator[FunctionBeta]:
    """Innermost Python functions of the training thread, by the share of samples while the GPU was idle."""
    samples = trace.samples
    if not len(samples):
        return
    named = np.array([*(_MAIN_THREAD in track for track in trace.tracks), False])[samples["track"]]
    started = np.array([_OTHER_THREADS in trace.text(int(one)) for one in samples["stack"]])
    main = named if named.any() else ~started
    if not main.any():
        return
    points = np.stack([samples["time_ns"], samples["time_ns"] + 1], axis=1)
    critical = main & (covered(above, points) == 0)
    total = float(samples["weight"][main].sum())
    seconds = (end - begin) / 1e9
    for stack in np.unique(samples["stack"][main]):
        of_stack = samples["stack"] == stack
        weight = float(samples["weight"][of_stack & main].sum())
        free = float(samples["weight"][of_stack & critical].sum())
        leaf = trace.text(int(stack)).rpartition(";")[2]
        yield FunctionBeta(leaf, "python", free / total, weight / total * seconds)


def step_bounds(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """Step numbers and the host time at which each begins, ascending; empty without iterations."""
    iterations = trace.of("iteration")
    return iterations["step"].astype(np.int64), iterations["start_ns"].astype(np.int64)


def launches_of(trace: RankTrace, kernels: Slices) -> np.ndarray:
    """When each kernel was launched, ns, shape (n,); the kernel's start where that is not known."""
    launches = trace.of("launch")
    launches = launches[launches["flow"] > 0]
    result = kernels["start_ns"].astype(np.int64)
    if not len(launches):
        return result
    order = np.argsort(launches["flow"])
    flows = launches["flow"][order]
    position = np.minimum(np.searchsorted(flows, kernels["flow"]), len(flows) - 1)
    known = (flows[position] == kernels["flow"]) & (kernels["flow"] > 0)
    return np.where(known, launches["start_ns"][order][position], result)


def _voids(trace: RankTrace, kernels: Slices) -> Voids | None:
    """Source: FLARE 5.2.2, equations 1 and 2. A kernel belongs to the step in which it was launched."""
    steps, begins = step_bounds(trace)
    if len(steps) < 2 or not len(kernels):
        return None
    launched = launches_of(trace, kernels)
    step = np.searchsorted(begins, launched, side="right") - 1
    first, last = [], []
    for number in range(len(steps)):
        of_step = kernels[step == number]
        if len(of_step):
            first.append(int(of_step["start_ns"].min()))
            last.append(int(of_step["end_ns"].max()))
    if len(first) < 2:
        return None
    total = first[-1] - first[0]
    gaps = np.maximum(np.array(first[1:]) - np.array(last[:-1]), 0)
    inter = int(gaps.sum())
    within = union(np.stack([np.array(first[:-1]), np.array(last[:-1])], axis=1))
    idle = intersection(complement(union(spans_of(kernels))), within)
    waiting = union(np.stack([launched, kernels["start_ns"].astype(np.int64)], axis=1))
    minority = int(covered(waiting, idle).sum())
    inside = max(total - inter, 1)
    return Voids(inter / max(total, 1), minority / inside, (length(idle) - minority) / inside, len(first) - 1)
