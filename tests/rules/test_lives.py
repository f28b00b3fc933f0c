"""What jobs go through in weeks: started anew, other work, scrapes that fail, exporters without time."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from argus_simulator.fast_play.storage import STALE, Floats
from rules.jobs import ALL_REDUCE, Job, Series, Slow, slower, uneven
from rules.played import Told, of, played

pytestmark = pytest.mark.servers
ONSET_S = 840.0
ANEW_S = 1320.0
"""When a first run has ended."""
GAP_S = 120.0
LASTING_S = 2640.0


def and_then(first: Job, second: Job) -> Series:
    """Two runs of one name, with nothing between them: of a run that has ended nothing is scraped."""
    series, gap_ms = dict(first.series()), round(1000 * (first.lasting_s + GAP_S))
    for labels, (times, values) in second.series().items():
        later = values
        if dict(labels)["__name__"].endswith("timestamp_seconds"):
            later = np.where(np.isnan(values), values, np.nan_to_num(values) + gap_ms / 1000)
        before_ms, before = series.get(labels, (times[:0], values[:0]))
        series[labels] = np.append(before_ms, times + gap_ms), np.append(before, later)
    return series


def missing(series: Series, rank: int, every: int) -> Series:
    """Each so manieth scrape of a rank's host fails."""
    found: Series = {}
    for labels, (times, values) in series.items():
        if dict(labels).get("rank") == str(rank):
            values = values.copy()
            values[every - 1 :: every] = STALE
        found[labels] = times, values
    return found


def starved(series: Series, ranks: Collection[int], every: int, scrapes: int) -> Series:
    """Now and then the exporter of some ranks has no time: what it says stands still, and then jumps."""
    found: Series = {}
    for labels, (times, values) in series.items():
        if int(dict(labels).get("rank") or -1) in ranks:
            values = values.copy()
            for begin in range(every, len(values) - scrapes - 1, every):
                values[begin : begin + scrapes] = values[begin - 1]
        found[labels] = times, values
    return found


def by_step(series: Series, name: str, share: Mapping[int, float] | float, **labels: str) -> Series:
    """Totals that each rank has beside its steps, so much a second of them."""
    found: Series = {}
    for known, drawn in series.items():
        of_rank = dict(known)
        if of_rank["__name__"] == "argus_iteration_duration_seconds_sum":
            a_second = share if isinstance(share, float) else share[int(of_rank["rank"])]
            times, seconds = drawn
            total = np.where(
                np.isnan(seconds), seconds, a_second * np.nan_to_num(seconds)
            )  # stale stays stale
            found[tuple(sorted({**of_rank, "__name__": name, **labels}.items()))] = times, total
    return found


def from_then(slow: Slow, at_s: float) -> Slow:
    def changes(phases: dict[str, Floats], begins: Floats) -> None:
        before = {phase: seconds.copy() for phase, seconds in phases.items()}
        slow(phases, begins)
        for phase, seconds in before.items():
            phases[phase] = np.where(begins >= at_s, phases[phase], seconds)

    return changes


@pytest.fixture(scope="module")
def told() -> list[Told]:
    slow_rank = slower(2, 1.5, ONSET_S)
    whole = slice(None)
    first = {"lasting_s": ANEW_S, "seed": 1}
    second = {"lasting_s": LASTING_S - ANEW_S - GAP_S, "seed": 2}
    jobs = [missing(Job(f"missed-{n}", slow=slow_rank).series(), 2, n) for n in (3, 5)]
    jobs += [
        and_then(
            Job("slower-then-anew", slow=slower(whole, 1.5, ONSET_S), **first),  # type: ignore[arg-type]
            Job("slower-then-anew", slow=slower(whole, 1.5, 0), **second),  # type: ignore[arg-type]
        ),
        and_then(
            Job("longer-steps-anew", step_s=0.5, **first),  # type: ignore[arg-type]
            Job("longer-steps-anew", step_s=0.75, first_s=9.5, **second),  # type: ignore[arg-type]
        ),
        and_then(
            Job("longer-collectives-anew", ranks=8, **first),  # type: ignore[arg-type]
            Job(
                "longer-collectives-anew",
                ranks=8,
                slow=slower(whole, 2.0, 0, np.inf, ALL_REDUCE),
                **second,  # type: ignore[arg-type]
            ),
        ),
        Job(
            "becomes-uneven",
            ranks=16,
            slow=from_then(uneven(0.4), 1500.0),
            step_s=4,
            lasting_s=LASTING_S,
        ).series(),
    ]
    busy = Job("stood-still", ranks=8, lasting_s=LASTING_S).series()
    for part, share in (("compute", 0.8), ("exposed", 0.12), ("copy", 0.03), ("idle", 0.05)):
        busy |= by_step(busy, "argus_iteration_gpu_seconds_total", share, part=part)
    for kernel, share in (("gemm", 0.7), ("norm", 0.1)):
        busy |= by_step(busy, "argus_kernel_duration_seconds_total", share, kernel=kernel, stream="compute0")
    jobs.append(starved(busy, range(4, 8), every=20, scrapes=3))
    for name, work in (("even-work", 1000.0), ("more-work", {0: 1000.0, 1: 1000.0, 2: 1000.0, 3: 1300.0})):
        even = Job(name, step_s=4, lasting_s=LASTING_S).series()
        jobs.append(even | by_step(even, "argus_work_units_total", work, unit="tokens"))
    return played(jobs, LASTING_S)


@pytest.mark.parametrize("every", [3, 5])
def test_a_slow_rank_is_paged_though_scrapes_of_its_host_fail(every: int, told: list[Told]) -> None:
    """A host without time is where scrapes fail."""
    found = of(told, f"missed-{every}")
    assert {one.rank for one in found} == {"2"}
    (page,) = [one for one in found if one.severity == "page"]
    assert page.begin_s <= ONSET_S + 300
    assert page.end_s >= 1780


def test_a_regression_ends_with_the_run_that_had_it(told: list[Told]) -> None:
    """Who starts the job anew, as it is now, has been told."""
    found = of(told, "slower-then-anew")
    assert any(one.severity == "page" for one in found)
    assert max(one.end_s for one in found) < ANEW_S + GAP_S


@pytest.mark.parametrize("job", ["longer-steps-anew", "longer-collectives-anew"])
def test_a_run_that_is_slower_from_its_start_is_no_regression_of_the_one_before(
    job: str, told: list[Told]
) -> None:
    """It may have been given more to do. With a model's history, that tells of it."""
    assert of(told, job) == []


def test_work_that_becomes_uneven_makes_nobody_slow(told: list[Told]) -> None:
    """Now one rank comes last and now another; what was usual is of when they were alike."""
    assert {one.rank for one in of(told, "becomes-uneven")} <= {""}


def test_an_exporter_without_time_accuses_nobody(told: list[Told]) -> None:
    """For 45 s what it says of its ranks and GPUs stands still, and then it catches up in one scrape."""
    assert of(told, "stood-still") == []


def test_work_that_is_even_is_so_at_every_moment_of_a_scrape(told: list[Told]) -> None:
    """Between two scrapes 4 s of a step more or less: hosts are scraped at different times."""
    assert of(told, "even-work") == []
    assert [one.alertname for one in of(told, "more-work")] == ["ArgusGroupImbalance"]
