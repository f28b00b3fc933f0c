"""The anatomy of phases from a real GPU's marks, events and kernels.

Besides the sums: how long kernels run in an iteration, against torch.profiler's timeline of the same
training without ARGUS; and how far inside a kernel of its stream a boundary of a span falls. Between kernels
is where it belongs, so this is what the two clocks are apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_exporter.kernels.anatomy import COMPUTE
from argus_exporter.kernels.phase_anatomy import PhaseAnatomy
from argus_exporter.kernels.step_records import SpanOnGpu
from bench.gpu_day.collector import Connection, collecting
from bench.gpu_day.observe import attached, base_environment, trained
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day

_SIZE = ("40", "4")
"""Steps, and micro-batches of a step."""


def run(day: Day) -> dict[str, Any]:
    with collecting(day.work) as collector:
        trained(attached(day, collector.path), "-m", "bench.gpu_day.starts", "micro_batches", *_SIZE)
        collector.wait_ended()
    timeline_ns = int(trained(base_environment(day), "-m", "bench.gpu_day.starts", "profiled", *_SIZE))
    day.reach(f"kernels run for {timeline_ns / 1e3:.0f} us of a step, says torch.profiler")
    phases = next((one for one in collector.connections if one.gpu_spans), None)
    gpu = next(iter(collector.with_kernels()), None)
    if day.dry and phases is None:
        raise NotRun("the stand-ins have no CUDA events: spans have no place among kernels")
    if phases is None or gpu is None:
        raise RuntimeError("no spans on the GPU, or no kernels, came")
    kernels = gpu.kernels
    marks = kernels[kernels["mark"] != 0]
    made = PhaseAnatomy(gpu.names, (), 2.0, lambda dimension: dimension or "unknown")
    for iteration in phases.iterations:
        made.records.iteration(iteration)
    for span in phases.gpu_spans:
        is_compute = span.kind == wire.Kind.COMPUTE
        on_gpu = SpanOnGpu(phases.names[span.phase_id], is_compute, span.after_ns, span.duration_ns)
        made.records.span(span.step, on_gpu, 0.0)
    made.records.kernels(kernels, 0.0)
    made.advance(60.0)
    divided = sum(sum(totals.parts) for totals in made.phases.values()) / 1e9
    day.reach(f"divided {divided:.3f} s of {len(made.phases)} phases")
    own = [
        span.duration_ns / 1e9 - span.nested_seconds
        for span in phases.spans
        if (span.kind, span.source) == (wire.Kind.COMPUTE, wire.Source.EVENT)
        and span.step in {one.step for one in phases.gpu_spans}
    ]
    inside = _inside_us(phases, kernels, marks)
    return {
        "marks": len(marks),
        "marks_missing": max(len(phases.iterations) - len(marks), 0),
        "spans_divided": sum(totals.spans for totals in made.phases.values()),
        "parts_over_span_off": abs(divided / sum(own) - 1),
        "compute_off": abs((made.iterations or [0])[COMPUTE] / (len(marks) - 1) / timeline_ns - 1),
        "boundaries_inside_ratio": len(inside) / max(2 * len(phases.gpu_spans), 1),
        "boundaries_inside_us_p99": float(np.quantile(inside, 0.99)) if len(inside) else 0.0,
    }


def _inside_us(phases: Connection, kernels: KernelArray, marks: KernelArray) -> np.ndarray[Any, Any]:
    """Of the boundaries that fall into a kernel of their stream: how far from its nearer edge."""
    last = max(one.step for one in phases.iterations)
    ends = {
        wire.marked_step(int(mark["mark"]), last): int(mark["start_ns"]) + int(mark["duration_ns"])
        for mark in marks
    }
    at = [
        ends[span.step - 1] + span.after_ns + off
        for span in phases.gpu_spans
        if span.step - 1 in ends
        for off in (0, span.duration_ns)
    ]
    home = kernels[(kernels["stream"] == marks["stream"][0]) & (kernels["mark"] == 0)]
    begins = np.sort(home["start_ns"].astype(np.int64))
    ends_of = np.sort((home["start_ns"] + home["duration_ns"]).astype(np.int64))
    times = np.array(at, np.int64)
    place = np.maximum(np.searchsorted(begins, times, side="right") - 1, 0)
    near = np.minimum(times - begins[place], ends_of[place] - times)
    return np.asarray(near[near > 0] / 1e3)
