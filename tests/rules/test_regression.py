"""L1 of `rules`: the rules say what their numpy twin says, and the twin finds what it must."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.regression import INTERVAL_S, Steps, Totals

from argus_core import catalogue
from argus_core.remote_write import Labels
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import STALE, Floats, Ints, Storage
from bench import regression

FILE = Path(__file__).resolve().parents[2] / "rules" / "argus.regression.rules.yaml"
BEGIN_MS = 1_700_000_100_000
LASTING_S = 7200
SERIES = {
    "seconds": "argus_iteration_duration_seconds_sum",
    "count": "argus_iteration_duration_seconds_count",
    "squares": catalogue.ITERATION_DURATION_SQUARED.name,
    "work": catalogue.WORK_UNITS.name,
    "longest": catalogue.ITERATION_WINDOW_MAX.name,
    "shortest": catalogue.ITERATION_WINDOW_MIN.name,
}


def steps_of(seed: int, step_s: float, change_s: float, factor: float) -> Steps:
    """Noise, a pause each ten minutes, and longer steps from a time on, for an hour."""
    pauses = {600.0 * number for number in range(1, 12)}

    def extra(at: float, _: np.random.Generator) -> float:
        due = [pause for pause in pauses if pause <= at]
        pauses.difference_update(due)
        return 10.0 * len(due)

    return regression.draw(
        step_s,
        LASTING_S,
        np.random.default_rng(seed),
        factor=lambda at: factor if change_s <= at < change_s + 3600 else 1.0,
        extra=extra,
    )


def jobs() -> Mapping[str, Totals]:
    found = {
        f"{step_s:g}s-{change_s:g}-{factor:g}": regression.count(
            steps_of(seed, step_s, change_s, factor), LASTING_S
        )
        for seed, (step_s, change_s, factor) in enumerate(
            [
                (0.5, 120, 1.08),
                (1, 900, 1.15),
                (2, 300, 1.4),
                (2, 1800, 1.08),
                (20, 1200, 1.15),
                (20, 400, 2.7),
            ]
        )
    }
    found["seldom"] = regression.count(steps_of(7, 90, 3000, 1.5), LASTING_S)
    steps = steps_of(8, 2, 1800, 1.2)
    found["uncounted-work"] = regression.count(steps, LASTING_S)
    # As much longer as it has more to do; and longer though it has no more to do.
    more = np.where((steps.ends >= 1800) & (steps.ends < 5400), 1.2, 1.0)
    found["more-work"] = regression.count(steps, LASTING_S, more)
    found["as-much-work"] = regression.count(steps, LASTING_S, np.full(len(steps.ends), 7.0))
    return found


def series_of(job: str, totals: Totals, rank: int = 0) -> dict[Labels, tuple[Ints, Floats]]:
    """As scraped: at each evaluation the last scrape is old enough to be read."""
    times = BEGIN_MS + 1000 * INTERVAL_S * (np.arange(len(totals.count)) - 1)
    one = np.ones(len(times))
    values = {name: getattr(totals, key) for key, name in SERIES.items()}
    values[catalogue.RANK_LEAD.name] = rank * one
    return {
        tuple(sorted({"__name__": name, "training_job": job, "rank": str(rank)}.items())): (
            times,
            np.where(np.isnan(value), STALE, value),
        )
        for name, value in values.items()
        if not (name == SERIES["work"] and job == "uncounted-work")
    }


class Rules:
    """What the rules recorded, of all jobs."""

    def __init__(self, series: Mapping[Labels, tuple[Ints, Floats]]) -> None:
        with tempfile.TemporaryDirectory() as folder, Storage(Path(folder)) as storage:
            storage.write(series)
            evaluator = Evaluator(storage, read_rules([FILE], offset_ms=lambda *_: 0))
            evaluator.advance(BEGIN_MS, BEGIN_MS + LASTING_S * 1000)
            assert not evaluator.failures
            # Half-way between evaluations: a series that ended is not seen.
            times = range(BEGIN_MS, BEGIN_MS + LASTING_S * 1000, INTERVAL_S * 1000)
            names = "job:argus_iteration_(change|recent|healthy):.*|job:argus_iteration:regression_ratio"
            self._found = storage.over(f'{{__name__=~"{names}"}}', times)
        self._number = len(times)

    def of(self, job: str, name: str, total: str = "") -> Floats:
        """By evaluation, NaN where there was nothing."""
        found = np.full(self._number, np.nan)
        for text, (at, values) in self._found.items():
            wanted = [f'"__name__":"{name}"', f'"training_job":"{job}"'] + [f'"total":"{total}"'] * bool(
                total
            )
            if all(part in text for part in wanted):
                found[at] = values
        return found


@pytest.fixture(scope="module")
def rules() -> Rules:
    series: dict[Labels, tuple[Ints, Floats]] = {}
    for job, totals in jobs().items():
        series |= series_of(job, totals)
    return Rules(series)


@pytest.mark.servers
@pytest.mark.parametrize("job", jobs())
def test_the_rules_say_what_their_twin_says(job: str, rules: Rules) -> None:
    twin = regression.find(jobs()[job])
    number = LASTING_S // INTERVAL_S
    for measure, total in enumerate(["count", "work"]):
        for name, expected in [
            ("job:argus_iteration_change:before_seconds", twin.change),
            ("job:argus_iteration_recent:seconds", twin.recent),
            ("job:argus_iteration_healthy:seconds", twin.healthy),
        ]:
            np.testing.assert_allclose(
                rules.of(job, name, total), expected[measure, :number], rtol=1e-9, err_msg=f"{name} {total}"
            )
    ratio = rules.of(job, "job:argus_iteration:regression_ratio")
    np.testing.assert_allclose(ratio, twin.ratio[:number], rtol=1e-9)


@pytest.mark.servers
def test_a_job_that_has_more_to_do_is_not_slower(rules: Rules) -> None:
    assert np.isnan(rules.of("more-work", "job:argus_iteration:regression_ratio")).all()
    slower = rules.of("as-much-work", "job:argus_iteration:regression_ratio")
    assert np.nanmedian(slower) == pytest.approx(1.2, rel=0.02)


@pytest.mark.servers
@pytest.mark.parametrize("step_s", [2.0, 20.0])
def test_a_job_that_starts_anew_is_compared_with_itself_alone(step_s: float) -> None:
    """What was held of the run before is gone, however long the first iterations take."""
    steps = steps_of(3, step_s, 1200, 1.3)
    first = regression.count(steps, 3600)
    slow = regression.count(regression.draw(1.3 * step_s, 3600, np.random.default_rng(4)), LASTING_S - 3600)
    joined = Totals(
        *(
            np.concatenate((getattr(first, field), getattr(slow, field)[1:]))
            for field in ["seconds", "count", "squares", "work", "longest", "shortest"]
        )
    )
    ratio = Rules(series_of("restarted", joined)).of("restarted", "job:argus_iteration:regression_ratio")
    again = 3600 // INTERVAL_S + 1
    assert np.nanmax(ratio[:again]) > 1.25
    assert np.isnan(ratio[again:]).all()


@pytest.mark.servers
def test_the_lowest_rank_that_lives_speaks_for_the_job() -> None:
    """A slow rank 1 changes nothing, until rank 0 has gone: then it is compared with itself."""
    even = regression.count(regression.draw(2, LASTING_S, np.random.default_rng(5)), LASTING_S)
    slower = regression.count(steps_of(6, 2, 1200, 1.3), LASTING_S)
    gone = 3600 // INTERVAL_S
    first = series_of("two", even)
    lead = next(labels for labels in first if ("__name__", catalogue.RANK_LEAD.name) in labels)
    first[lead] = first[lead][0][: gone + 1], np.append(first[lead][1][:gone], STALE)
    ratio = Rules(first | series_of("two", slower, rank=1)).of("two", "job:argus_iteration:regression_ratio")
    assert np.isnan(ratio).all()


def test_totals_are_those_of_a_plain_loop() -> None:
    steps = steps_of(9, 20, 300, 1.5)
    totals = regression.count(steps, 3600)
    for scrape, at in enumerate(range(0, 3601, INTERVAL_S)):
        done = [float(duration) for duration, end in zip(*vars(steps).values(), strict=True) if end <= at]
        assert totals.count[scrape] == len(done)
        assert totals.seconds[scrape] == pytest.approx(sum(done))
        assert totals.squares[scrape] == pytest.approx(sum(duration**2 for duration in done))


def test_slower_jobs_are_found_soon_and_for_good() -> None:
    """The whole grid takes minutes: `python -m bench.regression`."""
    cases = list(
        regression.grid(1, ages_s=(120, 1800), steps_s=(1.0, 20.0), factors=(1.15, 2.7), held_s=5400)
    )
    assert len(cases) == 6
    assert all(case.in_time and not case.before for case in cases)


def test_jobs_as_fast_as_ever_are_told_of_nothing() -> None:
    hours = list(regression.falsely(1.0, 1, steps_s=(2.0, 20.0)))
    assert len(hours) == 2 * (len(regression.HEALTHY) + 1)
    assert sum(one.tickets for one in hours) == 0
    assert sum(one.spells for one in hours if one.kind != regression.BURSTS) == 0


def test_a_fault_that_ends_is_over_ten_minutes_later() -> None:
    totals = regression.count(steps_of(1, 1, 900, 1.15), LASTING_S)
    ((begin, end),) = regression.spells(regression.told(regression.find(totals).ratio))
    assert begin * INTERVAL_S <= 900 + 120
    assert 4500 <= end * INTERVAL_S <= 4500 + 120 + 600


def test_a_pause_is_on_no_side_of_a_change() -> None:
    totals = regression.count(steps_of(2, 2, LASTING_S, 1.0), LASTING_S)
    assert np.isnan(regression.find(totals).change).all()
    blind = replace(totals, longest=np.full(len(totals.count), np.nan))
    assert not np.array_equal(regression.find(blind).recent, regression.find(totals).recent, equal_nan=True)
