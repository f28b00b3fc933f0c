"""What is ordered, and what is measured of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_simulator.score.playing import Log, Order, effect_of
from argus_simulator.score.scene import Scene
from argus_simulator.score.suites import Playable

START = 1000.0


def slowed(folder: Path, factor: float) -> Scene:
    """Eight ranks, one of which computes `factor` times as long from step 20 on."""
    file = folder / f"{factor}.yaml"
    fault = f"{{mechanism: kernels, ranks: [3], factor: {factor}, onset_step: 20}}"
    file.write_text(f"faults: {{slow: {fault}}}\ntruth: {{row: slow}}\n")
    return Scene(Playable(str(file), 3))


def step_ends(of: Scene, steps: int) -> list[float]:
    """Unix times at which the steps of a job would end."""
    job = of.scenario.job()
    return [START + int(job.next_step().end_ns.max()) / 1e9 for _ in range(steps)]


def test_the_effect_is_measured_against_the_same_seed_without_the_fault(tmp_path: Path):
    """A GPU at a third of its speed makes steps more than twice as long; the healthy steps do not count."""
    slow = slowed(tmp_path, 3.0)
    ends = step_ends(slow, 60)
    assert effect_of(slow, START, ends) == pytest.approx(1.7, abs=0.2)
    assert effect_of(slow, START, ends[:20]) is None


def test_noise_alone_has_no_effect(tmp_path: Path):
    """The twin has the same noise: what is left is the fault, however small."""
    healthy = slowed(tmp_path, 1.0)
    assert effect_of(healthy, START, step_ends(healthy, 60)) == pytest.approx(0, abs=1e-3)


def test_orders_and_logs_survive_their_files():
    """They travel between processes as JSON."""
    order = Order(Playable("faults/pp-bubble", 5, "mid", "wide"), "job-1", "job-2", "/s", "/l")
    assert Order.from_json(order.as_json()) == order
    log = Log(0.5, 1.0, 2.0, (1.5, 2.0), None, 0.1, 3)
    assert Log.from_json(log.as_json()) == log


def test_a_scrape_gap_is_known_to_who_runs_the_stack():
    """Only in its steps."""
    gap = Scene(Playable("controls/scrape-gap", 3))
    ((first, end),) = gap.scenario.scrape_gaps
    assert end is not None
    assert [gap.unscraped(step) for step in (first - 1, first, end - 1, end)] == [False, True, True, False]
