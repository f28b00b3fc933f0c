"""How bench.overhead turns answers into the figures that are judged."""

from __future__ import annotations

import math

import pytest
from bench.overhead import Cost, Hooks, Interval, Phases, added, report
from bench.overhead_hooks import measured

FUNCTIONS, C_CALLS, BYTECODES = 10, 31, 706
"""Of a step with five spans, an iteration, its work and a collective that Python calls; bytecodes of 3.11."""
LAYERS = {"layers_share": 0.0005}


def test_interval_is_students() -> None:
    """Three values: mean 2, deviation 1, 4.30 standard errors to either side."""
    interval = Interval.of([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.high - interval.mean == pytest.approx(4.30 / math.sqrt(3))
    assert interval.mean - interval.low == pytest.approx(4.30 / math.sqrt(3))


def test_one_round_has_no_interval() -> None:
    """A single value says nothing about its spread."""
    assert math.isnan(Interval.of([5.0]).low)


def test_added_is_the_median_over_the_turns() -> None:
    """One turn in which the machine did something else does not count."""
    off = [{"cpu_s": 1.0}, {"cpu_s": 1.0}, {"cpu_s": 1.0}]
    phases = [{"cpu_s": 1.2}, {"cpu_s": 9.0}, {"cpu_s": 1.1}]
    assert added({"off": off, "phases": phases}, "phases", "cpu_s", steps=10) == pytest.approx(0.02)


def test_the_report_has_the_promised_keys() -> None:
    """What CI and the docs read; null where nothing was measured."""
    phases = Phases(Cost(Interval(30.0, -9.0, 69.0), 0.001), 250.0)
    hooks = {"back_to_back": Hooks(Interval(10.0, 9.0, 11.0), 250.0, {"functions": 8.0})}
    result = report(hooks, phases, phases, {"rss_growth_mb": 0.5}, None, {}, LAYERS)
    assert list(result)[:7] == [
        "phases_us_per_step",
        "traceml_us_per_step",
        "stacks_core_share",
        "rss_growth_mb",
        "overhead_pct",
        "torch_profiler_pct",
        "layers_share",
    ]
    assert result["phases_us_per_step"] == 10.0, "of the hooks, not of processes that are placed by chance"
    assert result["detail"]["hooks"]["back_to_back"]["added_us_95"]["high"] == 11.0
    assert result["overhead_pct"] is None
    assert result["traceml_us_per_step"] is None
    assert "not installed" in result["detail"]["back_to_back"]["traceml"]
    beside = Phases(phases.cost, phases.step_us, Cost(Interval(70.0, 60.0, 80.0), 0.002))
    result_beside = report(hooks, beside, phases, {"rss_growth_mb": 0.5}, None, {}, LAYERS)
    assert result_beside["traceml_us_per_step"] == 70.0
    assert result_beside["detail"]["back_to_back"]["traceml_added_us_95"]["high"] == 80.0
    measured = {"overhead_pct": {"all": {"mean": 0.3}}, "torch_profiler_pct": {"mean": 7.0}}
    with_gpu = report(hooks, phases, phases, {"rss_growth_mb": 0.5}, 0.008, measured, LAYERS)
    assert with_gpu["overhead_pct"]["all"]["mean"] == 0.3


@pytest.mark.torch
@pytest.mark.slow
def test_a_usual_step_runs_as_little_of_ours_as_ever() -> None:
    """Counted, not timed: the same on each machine. Without the hooks nothing runs, or `measured` fails."""
    pytest.importorskip("torch")
    counts = measured(processes=1, turns=1, steps=1, collective=True).counts
    assert 8 < counts["functions"] <= FUNCTIONS
    assert 8 < counts["c_calls"] <= C_CALLS
    assert 100 < counts["bytecodes"] <= BYTECODES
