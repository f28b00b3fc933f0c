"""When a finding pages, how long it stays, what it silences: on played evidence, by the shipped rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from rules.scenario import STEP, STORIES, Scenario

pytestmark = STORIES
SAMPLES = 160
FLAVOURS = pytest.mark.parametrize("flavour", ["rules", "rules/portable"])
SUSPECT = "rank:argus_phase_suspect:lost_ratio"
FORWARD = {"phase": "forward", "kind": "compute", "group": "dp", "source": "event"}
PAGES = 'ALERTS{alertstate="firing", severity="page"}'


def job_of(*concerns: str, flavour: str = "rules", evaluation: int = STEP) -> Scenario:
    job = Scenario(("job", *concerns), flavour=flavour, evaluation=evaluation)
    job.ranks(range(4), SAMPLES)
    return job


def values(costs: Iterable[float | None]) -> str:
    """One sample each; None where there is none, as a rule that finds nothing leaves it."""
    return " ".join("stale" if cost is None else f"{cost:g}" for cost in costs)


def lasting(cost: float, begin: int, end: int = SAMPLES) -> list[float | None]:
    """Evidence in samples [begin, end)."""
    return [cost if begin <= sample < end else None for sample in range(SAMPLES)]


def paged(job: Scenario, at: Sequence[int], expected: Sequence[int]) -> None:
    """Expect a page at these samples of `at`, and at none of the others."""
    for sample in at:
        job.expect(f"count({PAGES})", f"{sample * STEP}s", {"{}": 1} if sample in expected else {})


@FLAVOURS
@pytest.mark.parametrize(("evaluations", "pages"), [(10, False), (12, True)])
def test_a_single_pause_does_not_page(flavour: str, evaluations: int, pages: bool) -> None:
    """One stall stays in a mean of two minutes and in the grid of the statistics: ten evaluations at most."""
    job = job_of("verdicts", flavour=flavour)
    job.add(SUSPECT, values(lasting(0.08, 20, 20 + evaluations)), rank=2, **FORWARD)
    job.expect(f"count(count_over_time({PAGES}[35m])) > 0", "36m", {"{}": 1} if pages else {})
    job.run()


STEPS = 15
"""In each scrape interval, of a second each."""
USUAL = {"forward": 0.4, "backward": 0.5, "data": 0.01}
ONCE: dict[str, tuple[range, dict[int, tuple[str, float]]]] = {
    "a stall of 6 s": (range(0), {40: ("forward", 6.0)}),
    "a stall of 10 s in data": (range(0), {40: ("data", 10.0)}),
    "a slow first step": (range(0), {1: ("forward", 10.0)}),
    "suspended for ten minutes": (range(40, 80), {80: ("forward", 6.0)}),
}
"""Samples of which nobody makes a step, and by sample in which phase rank 2 is late, and by how much."""


@pytest.mark.parametrize("story", ONCE)
def test_what_happens_once_does_not_page(story: str) -> None:
    """From the counters: rank 2 is late once, the others wait for it in backward; nothing was announced."""
    suspended, stalls = ONCE[story]
    job = job_of("work", "phases", "masked", "verdicts")
    for rank in range(4):
        totals: dict[str, list[float]] = {name: [0.0] for name in ("steps", *USUAL)}
        for sample in range(1, SAMPLES):
            where, late = stalls.get(sample, ("", 0.0))
            # All wait for rank 2, so all make as many steps as it does.
            steps = 0.0 if sample in suspended else STEPS - late
            grown = {"steps": steps} | {phase: steps * each for phase, each in USUAL.items()}
            if late:
                grown[where if rank == 2 else "backward"] += late
            for name, total in totals.items():
                total.append(total[-1] + grown[name])
        for phase in USUAL:
            count, seconds = (" ".join(f"{total:.6g}" for total in totals[name]) for name in ("steps", phase))
            job.phase(rank, phase, count, seconds, kind="host" if phase == "data" else "compute")
    job.expect(f"count(count_over_time({PAGES}[35m]))", "36m", {})
    job.run()


@FLAVOURS
def test_a_constant_fault_is_one_page(flavour: str) -> None:
    """Evidence that comes and goes with noise: the page begins after 150 s and has no holes."""
    job = job_of("verdicts", flavour=flavour)
    noisy = [
        None if sample < 20 else 0.06 if sample < 34 or sample % 20 < 11 else 0.04
        for sample in range(SAMPLES)
    ]
    job.add(SUSPECT, values(noisy), rank=2, **FORWARD)
    paged(job, range(28, 150), range(30, 150))
    job.run()


@FLAVOURS
def test_a_page_stays_for_five_minutes(flavour: str) -> None:
    """And no longer: what was mended an hour ago wakes nobody again."""
    job = job_of("verdicts", flavour=flavour)
    job.add(SUSPECT, values(lasting(0.2, 20, 60)), rank=2, **FORWARD)
    ends = 60 + 300 // STEP
    paged(job, [29, 35, 59, 70, ends - 2, ends + 3], [35, 59, 70, ends - 2])
    job.run()


@pytest.mark.parametrize("first", ["late", "history"])
def test_who_is_named_does_not_depend_on_what_was_found_first(first: str) -> None:
    """A late rank that explains the loss against history is named, whichever of the two came first."""
    job = job_of("verdicts")
    begin = {"late": 20, "history": 20} | {first: 8}
    late = {"phase": "dp-allreduce", "kind": "comm", "group": "dp", "source": "event"}
    job.add("rank:argus_collective_late:lost_ratio", values(lasting(0.1, begin["late"])), rank=3, **late)
    job.add(
        "job:argus_history:lost_ratio",
        values(lasting(0.1, begin["history"])),
        cause="unexplained",
        team="infrastructure",
    )
    named = {'{rank="3", cause="collective-late"}': 1}
    job.expect('max by (rank, cause) (rank:argus_verdict:active{verdict="culprit"})', "20m", named)
    job.run()


@pytest.mark.parametrize(("cost", "explains"), [(0.002, False), (0.1, False), (0.125, True)])
def test_a_culprit_silences_a_regression_that_it_explains_by_size(cost: float, explains: bool) -> None:
    """1.5x slower is a third of the time: a kernel that costs 0.2 % hid it."""
    job = job_of("verdicts")
    job.add(SUSPECT, values(lasting(cost, 10)), rank=2, **FORWARD)
    job.add("job:argus_iteration:regression_ratio", values(lasting(1.5, 30)), rank=0, window="10m")
    job.add(
        "job:argus_iteration:regression_split_timestamp_seconds",
        values(lasting(30 * STEP, 30)),
        rank=0,
        window="10m",
    )
    regression = 'ALERTS{alertname="ArgusIterationRegression", alertstate="firing", severity="page"}'
    job.expect(f"count({regression})", "20m", {} if explains else {"{}": 1})
    job.expect(f"count({regression})", "35m", {} if explains else {"{}": 1})
    job.run()


@pytest.mark.parametrize("flavour", ["rules", "rules/portable"])
def test_a_regression_that_the_scan_forgets_for_minutes_is_one_page(flavour: str) -> None:
    """Between the ten minutes' window and the half hour's there were four in which nothing was found."""
    job = job_of("verdicts", flavour=flavour)
    found = [1.4 if 30 <= sample < 70 or sample >= 87 else None for sample in range(SAMPLES)]
    job.add("job:argus_iteration:regression_ratio", values(found), rank=0, window="10m")
    when = values(None if ratio is None else 30 * STEP for ratio in found)
    job.add("job:argus_iteration:regression_split_timestamp_seconds", when, rank=0, window="10m")
    paged(job, range(42, 150, 3), range(42, 150, 3))
    job.run()
