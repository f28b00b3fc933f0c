"""Where the steps and phases of a profiler's recording lay on the GPU.

Profilers tell when the host entered and left them, the GPU was elsewhere. A CUDA event recorded at that
moment would be passed once the GPU has done what was launched on its stream before: there the boundary is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.replay.recording import Array, RankRecording

Times = NDArray[np.int64]

GPU_SPAN_DTYPE: Final = np.dtype(
    [
        ("step", "<u8"),
        ("after_ns", "<i8"),
        ("duration_ns", "<u8"),
        ("phase_id", "<u4"),
        ("kind", "u1"),
        ("padding", "u1", (3,)),
    ]
)
"""`wire.GpuSpan` as numpy sees it."""


@dataclass(frozen=True)
class OnGpu:
    """Times as in the recording.

    Attributes:
        marks: step (int64) and when the GPU ended it, ascending; the first before the first step.
        stream, device: where these marks lie.
        spans: GPU_SPAN_DTYPE ascending by end.
        span_ends: of these.
    """

    marks: list[tuple[int, int]]
    stream: int
    device: int
    spans: Array
    span_ends: Times


def on_gpu(recording: RankRecording) -> OnGpu | None:
    """None where the recording does not tell when kernels were launched, or has no steps."""
    kernels, iterations = recording.kernels, recording.iterations
    compute = recording.compute
    if not len(iterations) or not compute.any() or not (kernels["issue_ns"] >= 0).any():
        return None
    streams = stream_keys(kernels)
    keys, of = np.unique(streams[compute], return_inverse=True)
    home = kernels[streams == keys[np.argmax(np.bincount(of, kernels["duration_ns"][compute]))]]
    passed = _Passed(home)

    marks: dict[int, int] = {}
    for step, start, duration in iterations.tolist():
        marks.setdefault(step - 1, start)
        marks[step] = start + duration
    steps = np.array(sorted(marks), np.int64)
    ended = np.array([marks[step] for step in steps.tolist()], np.int64)
    ended_on_gpu = np.maximum.accumulate(passed(ended))

    chosen = recording.spans[recording.spans["kind"] != wire.Kind.HOST]
    begin = chosen["start_ns"].astype(np.int64)
    end = passed(begin + chosen["duration_ns"].astype(np.int64))
    before = np.searchsorted(ended, begin, side="right") - 1
    known = before >= 0
    chosen, begin, end, before = chosen[known], passed(begin[known]), end[known], before[known]
    spans = np.zeros(len(chosen), GPU_SPAN_DTYPE)
    spans["step"] = steps[before] + 1
    spans["after_ns"] = begin - ended_on_gpu[before]
    spans["duration_ns"] = end - begin
    spans["phase_id"], spans["kind"] = chosen["phase_id"], chosen["kind"]
    order = np.argsort(end, kind="stable")
    return OnGpu(
        list(zip(steps.tolist(), ended_on_gpu.tolist(), strict=True)),
        int(home["stream"][0]),
        int(home["device"][0]),
        spans[order],
        end[order],
    )


class _Passed:
    """When a stream passes an event that the host records at some time."""

    def __init__(self, kernels: Array) -> None:
        start = kernels["start_ns"].astype(np.int64)
        launched = np.where(kernels["issue_ns"] >= 0, start - kernels["issue_ns"], start)
        order = np.argsort(launched, kind="stable")
        self._launched = launched[order]
        self._ended = np.maximum.accumulate((start + kernels["duration_ns"].astype(np.int64))[order])

    def __call__(self, times: Times) -> Times:
        before = np.searchsorted(self._launched, times, side="left") - 1
        return np.where(before >= 0, np.maximum(times, self._ended[np.maximum(before, 0)]), times)
