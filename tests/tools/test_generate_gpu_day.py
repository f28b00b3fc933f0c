"""Pages say what a GPU showed, and nothing where none did."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from bench.gpu_day.result import Machine, Result
from bench.gpu_day.steps import STEPS
from tools.generate_gpu_day import (
    NOT_YET,
    PAGES,
    kernels_block,
    launches_block,
    overhead_block,
    page,
    results,
    status_block,
    steps_block,
)

GPU = Machine("an H200", "580.1", "13.0", "2.13.0+cu130", "a processor")
KERNELS = Result(
    step="kernels",
    commit="0123456789ab",
    machine=GPU,
    started="2026-12-01T08:00:00+00:00",
    seconds=20.0,
    prediction="equal",
    outcome="ok",
    measured={"count_ratio": 1.0},
    gates={"count_ratio": (1.0, ">= 0.999", True), "p50_off": (0.001, "<= 0.01", True)},
)
ADDED = {
    "added_percent_95": {"mean": 0.123, "low": -0.01, "high": 0.256},
    "median_ms": 50.5,
    "p99_ms": 55.3,
}
OVERHEAD = dataclasses.replace(
    KERNELS,
    step="overhead-50",
    outcome="failed",
    why="stacks_percent_high is 1.2, not <= 1",
    measured={
        "off": {"median_ms": 50.4, "p99_ms": 55.1},
        "phases": ADDED,
        "kernels": ADDED,
        "stacks": ADDED,
        "goal_met": True,
    },
    gates={},
)


def row(lines: list[str], step: str) -> str:
    (found,) = (line for line in lines if line.startswith(f"| `{step}` "))
    return found


def test_without_a_result_every_step_says_not_yet() -> None:
    rows = [line for line in steps_block({}) if line.startswith("| `")]
    assert len(rows) == len(STEPS)
    assert all(line.endswith(f" {NOT_YET} |") for line in rows)
    assert f": {NOT_YET}; 0 of {len(STEPS)}" in status_block({})[0]


def test_a_result_says_outcome_machine_and_numbers() -> None:
    seen = {"kernels": KERNELS, "overhead-50": OVERHEAD}
    assert row(steps_block(seen), "kernels").endswith("| ok (an H200, 0123456789ab) |")
    assert row(kernels_block(seen), "kernels").endswith("| count_ratio 1, p50_off 0.001 |")
    assert "failed: stacks_percent_high is 1.2, not <= 1" in row(steps_block(seen), "overhead-50")
    added = "+0.12 % (-0.01 to +0.26); 50.5 ms (55.3)"
    cells = f"50.4 ms (55.1) | {added} | {added} | {added} | - | met |"  # NCCL takes two ranks
    assert row(overhead_block(seen), "overhead-50").endswith(cells)
    assert row(overhead_block(seen), "overhead-nccl").endswith(" | not yet" * 6 + " |")
    assert f"1 are ok, 1 failed and {len(STEPS) - 2} were not run, on an H200" in status_block(seen)[0]


def test_what_a_launch_costs_is_told_with_its_interval() -> None:
    kinds = ("host_us", "gpu_us", "graph_us")
    measured = {f"{kind}_without": 2.0 for kind in kinds}
    for kind in kinds:
        for of in (kind, f"{kind}_with_latency"):
            measured |= {f"{of}_added": 0.7, f"{of}_added_low": 0.5, f"{of}_added_high": 0.9}
    told = dataclasses.replace(KERNELS, step="launches", measured=measured)
    rows = launches_block({"launches": told})[2:]
    assert all(line.endswith("| 2.00 | 0.700 (0.500 to 0.900) | 0.700 (0.500 to 0.900) |") for line in rows)
    assert all(line.endswith(f"| {NOT_YET} | {NOT_YET} | {NOT_YET} |") for line in launches_block({})[2:])


@pytest.mark.parametrize(
    "nothing",
    [{"outcome": "not run", "why": "no NVIDIA GPU"}, {"dry": {"reached": []}}],
    ids=["not run", "dry"],
)
def test_what_was_not_measured_is_not_shown(tmp_path: Path, nothing: dict[str, object]) -> None:
    dataclasses.replace(KERNELS, **nothing).write(tmp_path)  # type: ignore[arg-type]
    assert results(tmp_path) == {}
    KERNELS.write(tmp_path)
    assert results(tmp_path) == {"kernels": KERNELS}


def test_only_blocks_are_written() -> None:
    text = "by hand\n<!-- gpu-day: status -->\nold\n<!-- end -->\nby hand too\n"
    made = page(text, {})
    assert made.startswith("by hand\n<!-- gpu-day: status -->\nThe day on a GPU")
    assert made.endswith("<!-- end -->\nby hand too\n")
    assert "old" not in made
    assert page(made, {}) == made


def test_every_page_has_a_block() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert [name for name in PAGES if "<!-- gpu-day: " not in (docs / name).read_text()] == []
