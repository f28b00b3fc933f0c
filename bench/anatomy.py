"""The anatomy of phases against brute force, what a kernel costs, and how many series it makes.

    python -m bench.anatomy [--worlds N] [--kernels N] [--traces FOLDER]

Three parts:

* random kernels and spans, divided by the exporter's code and by a timeline of one cell a nanosecond: equal;
* real traces of other people's jobs (../shared/traces or $ARGUS_TRACES), replayed into the exporter's state,
  against a sweep over the events of the JSON, which uses nothing of ours: `error_share` is the largest share
  of a phase's time that differs;
* a rank with 5,000 kernels a second (a host with 40,000) on three streams: CPU time a kernel, the least of
  three runs, and its series.

Ends in one JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_exporter.config import ExporterConfig
from argus_exporter.kernels.anatomy import PARTS
from argus_exporter.kernels.phase_anatomy import PhaseAnatomy
from argus_exporter.kernels.step_records import SpanOnGpu
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors.anatomy import AnatomyCollector
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.replay.gpu_spans import on_gpu
from argus_exporter.replay.reader import read_files
from argus_exporter.replay.recording import RankRecording, RecordingError

TRACES = Path(os.environ.get("ARGUS_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))
SNAP_NS = 30_000
HOME = 7
BEGAN_NS = 1_700_000_000_000_000_000
NAMES = {
    10: "gemm",
    11: "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    12: "Memcpy HtoD (Pinned -> Device)",
    13: "my_all_to_all_v2",
}
OF_USER = "my_all_*"
PART_OF = {10: 0, 11: 1, 12: 2, 13: 1}
BEFORE_NS = 1000
"""Of the timeline, before the first mark."""

Parts = dict[str, list[int]]
"""Nanoseconds by part, of each phase."""


@dataclass(frozen=True)
class World:
    """Steps on a GPU. Times in ns from 0 on; kernels are (start, end, name id, stream).

    `spans` are (phase, step, begin, end): of steps 1, 2, ..., which end at `marks`.
    """

    marks: list[int]
    kernels: list[tuple[int, int, int, int]]
    spans: list[tuple[str, int, int, int]]
    compute_phases: tuple[str, ...] = ("forward", "backward")


def random_world(rng: random.Random) -> World:
    """Three steps: kernels in order on the home stream, any on three others; spans nested in one another."""
    length = rng.choice((3_000, 120_000, 400_000))
    marks = [BEFORE_NS, *sorted(rng.sample(range(BEFORE_NS + 1, length), 3))]
    kernels = []
    at = rng.randrange(500)
    while at < length:
        end = at + 1 + rng.randrange(max(length // rng.choice((3, 10, 50)), 2))
        kernels.append((at, end, rng.choice((10, 10, 11)), HOME))
        at = end + rng.choice((0, rng.randrange(max(length // 20, 1))))
    for _ in range(rng.randrange(12)):
        start = rng.randrange(length)
        end = start + rng.randrange(length // 3)
        kernels.append((start, end, rng.choice((10, 11, 11, 12, 12, 13)), rng.choice((8, 9, 20))))
    rng.shuffle(kernels)
    spans = []
    for step in (1, 2, 3):
        open_ = [(marks[step - 1], marks[step])]
        for _ in range(rng.randrange(7)):
            first, last = rng.choice(open_)
            begin, end = sorted((rng.randint(first, last), rng.randint(first, last)))
            open_.append((begin, end))
            spans.append((rng.choice(("forward", "backward", "wait")), step, begin, end))
        if rng.random() < 0.2:  # around the end of a step: left out
            spans.append(("forward", step, marks[step - 1], marks[step] + SNAP_NS + 1))
    return World(marks, kernels, sorted(spans, key=lambda span: span[3]))


def divide_by_cells(world: World) -> tuple[Parts, list[int], dict[tuple[str, int], int], dict[str, int]]:
    """A timeline of one cell a nanosecond: parts by phase, of the steps, exposed by stream, spans."""
    cells = max([*world.marks, *(end for _, end, _, _ in world.kernels)]) + 1
    running = np.zeros((3, cells), np.bool_)
    waits_for = np.full(cells, -1)
    # Painted backwards: what started first lies on top.
    for start, end, name, stream in sorted(world.kernels, reverse=True):
        running[PART_OF[name], start:end] = True
        if PART_OF[name] == 1:
            waits_for[start:end] = stream
    part = np.where(running[0], 0, np.where(running[1], 1, np.where(running[2], 2, 3)))
    owner = np.full(cells, "", object)
    counts: dict[str, int] = defaultdict(int)
    snapped: list[tuple[int, int, int, str]] = []
    for phase, step, begin, end in world.spans:
        first, last = world.marks[step - 1], world.marks[step]
        if end > last + SNAP_NS:
            continue
        begin, end = (min(max(_nearer_edge(world, at), first), last) for at in (begin, end))
        snapped.append((begin, -end, len(snapped), phase))
        counts[phase] += phase in world.compute_phases
    for begin, end, _, phase in sorted(snapped):
        owner[begin:-end] = phase
    parts, exposed = {}, {}
    for phase in (phase for phase, count in counts.items() if count):
        own = owner == phase
        parts[phase] = np.bincount(part[own], minlength=4).tolist()
        for stream in np.unique(waits_for[own & (part == 1)]).tolist():
            exposed[phase, stream] = int(np.count_nonzero(own & (part == 1) & (waits_for == stream)))
    of_steps = np.bincount(part[world.marks[0] : world.marks[-1]], minlength=4).tolist()
    return parts, of_steps, exposed, {phase: count for phase, count in counts.items() if count}


def _nearer_edge(world: World, at: int) -> int:
    for start, end, _, stream in world.kernels:
        if stream == HOME and start <= at < end and min(at - start, end - at) < SNAP_NS:
            return start if at - start <= end - at else end
    return at


def anatomy(communication: tuple[str, ...] = (OF_USER,)) -> PhaseAnatomy:
    """One as a rank has it, of the names above; a stream's group is its number."""
    made = PhaseAnatomy(NAMES, communication, 2.0, lambda dimension: dimension or "unknown")
    made.label({stream: str(stream) for stream in range(100)})
    return made


def kernel_rows(rows: Iterable[tuple[int, int, int, int]], began_ns: int = BEGAN_NS) -> KernelArray:
    """Records of (start, end, name id, stream)."""
    rows = list(rows)
    records = np.zeros(len(rows), KERNEL_DTYPE)
    for place, (start, end, name, stream) in enumerate(rows):
        operation = wire.Operation.MEMCPY if name == 12 else wire.Operation.KERNEL
        records[place] = (began_ns + start, end - start, -1, name, stream, 0, operation, 0, 0)
    return records


def mark_rows(marks: Sequence[tuple[int, int]], began_ns: int = BEGAN_NS) -> KernelArray:
    """Records of marks: step and time."""
    records = np.zeros(len(marks), KERNEL_DTYPE)
    for place, (step, at) in enumerate(marks):
        operation, mark = wire.Operation.MEMSET, wire.step_mark(step)
        records[place] = (began_ns + at - 1, 1, -1, 0, HOME, 0, operation, 0, mark)
    return records


def feed(into: PhaseAnatomy, world: World, now: float = 0.0) -> None:
    """All of a world, spans before kernels; then nothing for long enough."""
    for step, (before, end) in enumerate(zip(world.marks, world.marks[1:], strict=False), 1):
        host_end = BEGAN_NS + end  # not before the GPU
        into.records.iteration(wire.Iteration(step, host_end, end - before, step, 0.0, 0.0))
    for phase, step, begin, end in world.spans:
        is_compute, after = phase in world.compute_phases, begin - world.marks[step - 1]
        into.records.span(step, SpanOnGpu(phase, is_compute, after, end - begin), now)
    rows = np.concatenate((mark_rows(list(enumerate(world.marks))), kernel_rows(world.kernels)))
    for packet in np.array_split(rows, 3):
        into.records.kernels(packet, now)
    into.advance(now + 60)


def difference(world: World) -> str:
    """What of a random world differs from brute force; empty where nothing does."""
    made = anatomy()
    feed(made, world)
    parts, of_steps, exposed, counts = divide_by_cells(world)
    found = {
        "parts": ({phase: totals.parts for phase, totals in made.phases.items()}, parts),
        "iterations": (made.iterations, of_steps),
        "exposed": (
            {(phase, int(g)): ns for phase, t in made.phases.items() for g, ns in t.exposed.items()},
            exposed,
        ),
        "spans": ({phase: totals.spans for phase, totals in made.phases.items()}, counts),
    }
    return "; ".join(f"{what}: {ours}, not {right}" for what, (ours, right) in found.items() if ours != right)


# -- real traces --------------------------------------------------------------------------------

_GPU = {"kernel": 0, "memcpy": 2, "gpu_memcpy": 2, "memset": 2, "gpu_memset": 2}
_LAUNCH = {"runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"}
_MARKS = {
    "forward": ("## forward ##", "DistributedDataParallel.forward"),
    "backward": ("## backward ##",),
    "optimizer": ("Optimizer.step#", "## optimizer ##"),
}


def divide_json(path: Path) -> tuple[Parts, list[int]]:
    """Parts of the phases and of the steps of a trace, by a sweep over its events, without our code."""
    with gzip.open(path) as file:
        trace = json.load(file)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and isinstance(e.get("cat"), str)]
    launched: dict[int, int] = {}
    gpu: list[tuple[int, int, int, tuple[int, int], int]] = []
    marks: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    steps: dict[int, tuple[int, int]] = {}
    for event in events:
        category, start = event["cat"].lower(), _ns(event["ts"])
        end = start + _ns(event.get("dur", 0))
        if category in _LAUNCH and "correlation" in event.get("args", {}):
            correlation = event["args"]["correlation"]
            launched[correlation] = min(start, launched.get(correlation, start))
        elif category in _GPU:
            part = 1 if re.match("nccl", event["name"]) else _GPU[category]
            arguments = event["args"]
            stream = arguments.get("device", 0), arguments["stream"]
            gpu.append((start, end, part, stream, arguments.get("correlation", -1)))
        elif category in ("operator", "user_annotation", "cpu_op"):
            step = re.fullmatch("ProfilerStep#([0-9]+)", event["name"])
            if step:
                known = steps.get(int(step[1]), (0, 0))
                steps[int(step[1])] = max(known, (start, end), key=lambda both: both[1] - both[0])
            for phase, names in _MARKS.items():
                for name in names:
                    if event["name"].startswith(name):
                        marks[phase, name].append((start, end))
    busy: dict[Any, int] = defaultdict(int)
    for start, end, part, stream, _ in gpu:
        busy[stream] += (part == 0) * (end - start)
    home = max(busy, key=lambda stream: busy[stream])
    at_home = [(launched.get(e[4], e[0]), e[0], e[1]) for e in gpu if e[3] == home]
    launches = [launched.get(event[4], event[0]) for event in gpu]
    used = {n for n, (begin, end) in steps.items() if any(begin <= at <= end for at in launches)}

    def passed(at: int) -> int:
        return max([at, *(end for launch, _, end in at_home if launch < at)])

    def snapped(at: int) -> int:
        for _, start, end in at_home:
            if start <= at < end and min(at - start, end - at) < SNAP_NS:
                return start if at - start <= end - at else end
        return at

    stretches: dict[str, list[tuple[int, int]]] = {}
    for phase, names in _MARKS.items():
        found = next((marks[phase, name] for name in names if marks[phase, name]), [])
        of_phase = []
        for begin, end in found:
            inside = [s for s in used if steps[s][0] <= begin <= steps[s][1]]
            if not inside:
                continue
            first, last = passed(steps[inside[0]][0]), passed(steps[inside[0]][1])
            begin, end = passed(begin), passed(end)
            if first - SNAP_NS <= begin and end <= last + SNAP_NS:
                of_phase.append((min(max(snapped(begin), first), last), min(max(snapped(end), first), last)))
        if of_phase:
            stretches[phase] = of_phase
    of_steps = [(passed(steps[step][0]), passed(steps[step][1])) for step in sorted(used)]
    # A step begins where the one before ended, on the GPU.
    of_steps = [(of_steps[at - 1][1] if at else first, last) for at, (first, last) in enumerate(of_steps)]
    device = [(start, end, part) for start, end, part, stream, _ in gpu if stream[0] == home[0]]
    return {phase: _sweep(device, own) for phase, own in stretches.items()}, _sweep(device, of_steps)


def _sweep(gpu: Sequence[tuple[int, int, int]], stretches: Sequence[tuple[int, int]]) -> list[int]:
    changes = []
    for start, end, part in gpu:
        if end > start:
            changes += [(start, part, 1), (end, part, -1)]
    for begin, end in stretches:
        if end > begin:
            changes += [(begin, 3, 1), (end, 3, -1)]
    running, parts, at = [0, 0, 0, 0], [0, 0, 0, 0], 0
    for time_ns, what, by in sorted(changes):
        if running[3]:
            parts[next((part for part in (0, 1, 2) if running[part]), 3)] += time_ns - at
        running[what] += by
        at = time_ns
    return parts


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000) if isinstance(microseconds, int) else _exact(microseconds)


def _exact(microseconds: float) -> int:
    return int(microseconds) * 1000 + round((microseconds - int(microseconds)) * 1000)


def replayed(recording: RankRecording) -> PhaseAnatomy | None:
    """The anatomy of a recording, as the exporter keeps it; None where the recording cannot have one."""
    located = on_gpu(recording)
    if located is None:
        return None
    texts = dict(enumerate(recording.texts))
    made = PhaseAnatomy(texts, (), 2.0, lambda dimension: dimension or "unknown")
    for step, start, duration in recording.iterations.tolist():
        made.records.iteration(wire.Iteration(step, start + duration, duration, 0, 0.0, 0.0))
    for step, after, duration, phase_id, kind, *_ in located.spans.tolist():
        span = SpanOnGpu(texts[phase_id], kind == wire.Kind.COMPUTE, after, duration)
        made.records.span(step, span, 0.0)
    marks = np.zeros(len(located.marks), KERNEL_DTYPE)
    marks["mark"] = [wire.step_mark(step) for step, _ in located.marks]
    marks["start_ns"] = [time_ns for _, time_ns in located.marks]
    marks["operation"] = wire.Operation.MEMSET
    marks["stream"], marks["device"] = located.stream, located.device
    made.records.kernels(marks, 0.0)
    made.records.kernels(recording.kernels, 0.0)
    made.advance(60.0)
    return made


@dataclass
class OfTraces:
    """What the traces have shown: share of time that differs by trace and phase."""

    errors: dict[tuple[str, str], float] = field(default_factory=dict)
    mean: dict[str, list[int]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def of_traces(folder: Path) -> OfTraces:
    """Compare all traces below a folder."""
    found = OfTraces()
    for path in sorted(folder.rglob("*.json.gz")):
        try:
            (recording,) = read_files([path], job="trace", assume_ranks=True)
        except RecordingError:
            found.left_out.append(path.name)  # no GPU events
            continue
        made = replayed(recording)
        if made is None:
            found.left_out.append(path.name)
            continue
        phases, of_steps = divide_json(path)
        ours = {phase: totals.parts for phase, totals in made.phases.items()}
        ours["(step)"] = made.iterations or []
        for phase, right in (phases | {"(step)": of_steps}).items():
            own = ours.get(phase) or [0] * len(PARTS)
            wrong = sum(abs(a - b) for a, b in zip(own, right, strict=True))
            found.errors[path.name, phase] = wrong / max(sum(right), 1)
            found.mean[f"{path.parent.name}/{path.name[:24]} {phase}"] = own
        for phase in ours.keys() - phases.keys() - {"(step)"}:
            found.errors[path.name, phase] = 1.0
    return found


# -- cost ---------------------------------------------------------------------------------------


@dataclass
class Cost:
    """CPU time of the anatomy alone, and the series that it makes."""

    kernels: int
    seconds: float
    series: int

    @property
    def ns_per_kernel(self) -> float:
        return self.seconds / self.kernels * 1e9


def _step_of(rng: np.random.Generator, count: int, begin_ns: int, length_ns: int) -> KernelArray:
    """One step of `count` records on four streams, as CUPTI hands them over: nearly in order."""
    records = np.zeros(count, KERNEL_DTYPE)
    start = np.sort(rng.integers(begin_ns, begin_ns + length_ns * 98 // 100, count))
    records["start_ns"] = start
    records["duration_ns"] = rng.integers(1_000, max(2 * length_ns // count, 2_000), count)
    records["name_id"] = rng.choice([10, 11, 12], count, p=[0.85, 0.1, 0.05])
    records["stream"] = np.select([records["name_id"] == 11, records["name_id"] == 12], [20, 31], HOME)
    records["operation"] = np.where(records["name_id"] == 12, wire.Operation.MEMCPY, wire.Operation.KERNEL)
    return records[np.argsort(start + rng.integers(0, 50_000, count), kind="stable")]


def cost(kernels: int, a_second: int = 5_000, step_s: float = 0.5) -> Cost:
    """One rank, packets of the wire's size, 20 spans a step."""
    rng = np.random.default_rng(0)
    now = 0.0
    state = RankState(Identity("job", 0, coordinates={"dp": 0, "tp": 0}), ExporterConfig(), lambda: now)
    made = PhaseAnatomy(NAMES, (), 2.0, lambda dimension: dimension or "unknown")
    state.kernels.anatomy = made
    made.label({20: "dp"})
    packet = wire.records_per_message(wire.Kernel)
    of_step, step_ns = int(a_second * step_s), int(step_s * 1e9)
    phases = [("forward", 0), ("backward", 0), ("optimizer", 0), *((f"wait{at}", 1) for at in range(17))]
    steps = []
    for step in range(1, kernels // of_step + 1):
        begin = BEGAN_NS + (step - 1) * step_ns
        ran = _step_of(rng, of_step, begin, step_ns)
        records = np.concatenate((ran, mark_rows([(step, step * step_ns)])))
        packets = [np.array(records[at : at + packet]) for at in range(0, len(records), packet)]
        spans = []
        for place, (phase, kind) in enumerate(phases):
            after = step_ns * place // len(phases)
            length = step_ns // len(phases)
            spans.append((step, SpanOnGpu(phase, kind == wire.Kind.COMPUTE, after, length)))
        steps.append((wire.Iteration(step, begin + step_ns, step_ns, step, 0.0, 0.0), spans, packets))
    began = time.process_time()
    for iteration, spans, packets in steps:
        now = iteration.step * step_s
        made.records.iteration(iteration)
        for step, span in spans:
            made.records.span(step, span, now)
        for each in packets:
            made.records.kernels(each, now)
        made.advance(now)
    spent = time.process_time() - began
    series = sum(len(family.samples) for family in AnatomyCollector().collect([state], now))
    return Cost(len(steps) * (of_step + 1), spent, series)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=2_000, help="random worlds (default: %(default)s)")
    parser.add_argument("--kernels", type=int, default=1_000_000, help="of the cost (default: %(default)s)")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder (default: %(default)s)")
    options = parser.parse_args(arguments)

    different = [seed for seed in range(options.worlds) if difference(random_world(random.Random(seed)))]
    print(f"random worlds: {options.worlds}, different from brute force: {different[:5] or 'none'}")
    traces = of_traces(options.traces)
    for name, parts in traces.mean.items():
        shown = "  ".join(f"{part} {ns / 1e6:9.3f} ms" for part, ns in zip(PARTS, parts, strict=True))
        print(f"{name:60} {shown}")
    if traces.left_out:
        print(f"without GPU events or steps: {', '.join(traces.left_out)}")
    spent = min((cost(options.kernels) for _ in range(3)), key=lambda each: each.ns_per_kernel)
    print(
        json.dumps(
            {
                "worlds": options.worlds,
                "different": len(different),
                "traces": len({trace for trace, _ in traces.errors}),
                "error_share": max(traces.errors.values(), default=None),
                "ns_per_kernel": round(spent.ns_per_kernel, 1),
                "series_per_rank": spent.series,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
