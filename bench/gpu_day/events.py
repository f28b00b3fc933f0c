"""CUDA events of a step with 64 micro-batches: no span is dropped for want of one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from argus_core import wire
from bench.gpu_day.collector import collecting
from bench.gpu_day.observe import attached, trained
from bench.gpu_day.step import Day

MICRO_BATCHES = 64
_STEPS, _WARM = 20, 3


def run(day: Day) -> dict[str, Any]:
    with collecting(day.work) as collector:
        command = ("-m", "bench.gpu_day.starts", "micro_batches", str(_STEPS), str(MICRO_BATCHES))
        trained(attached(day, collector.path), *command)
        collector.wait_ended()
    phases = [one for one in collector.connections if one.spans]
    if len(phases) != 1:
        raise RuntimeError(f"spans came over {len(phases)} connections, not 1")
    spans, names = phases[0].spans, phases[0].names
    by_phase = Counter((names[span.phase_id], span.step) for span in spans)
    last = max(span.step for span in spans)
    steps = range(min(span.step for span in spans) + _WARM, last)  # the last step may have no end
    day.reach(f"{len(spans)} spans of {last} steps")
    sources = Counter(wire.Source(span.source).name.lower() for span in spans)
    return {
        "steps": len(steps),
        "forwards_missing": sum(abs(MICRO_BATCHES - by_phase["forward", step]) for step in steps),
        "backwards_missing": sum(abs(MICRO_BATCHES - by_phase["backward", step]) for step in steps),
        "spans": len(spans),
        "spans_by_source": dict(sources),
        "on_events_ratio": sources["event"] / len(spans),
        "dropped": phases[0].dropped(wire.Channel.PHASES),
    }
