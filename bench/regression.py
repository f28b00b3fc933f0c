"""L1 of `rules` in numpy: the oracle of its rules, and how soon, how long and how falsely it finds.

    python -m bench.regression [--seeds 3]

Two hours of the rules take an engine a second or more, and the twin a tenth of that without a server: so six
hours at each age and step, and hundreds of healthy hours, can be had. Both say the same of the same samples
(`tests/rules/test_regression.py`). Durations are seconds; steps vary by 5 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draw = Callable[[float, np.random.Generator], float]
"""Seconds that a pause or a burst adds to the step that begins at a time."""

INTERVAL_S: Final = 15
WINDOW_S: Final = 60
"""Over which the exporter takes the longest and the shortest iteration."""
FOUND, RECOVERED, HOLDS_S = 1.035, 1.018, 600
ERRORS, LIMIT, LEAST, JITTER = 5.0, 0.01, 8, 1.5
AGOS_S: Final = (30, 60, 90, 120, 180, 300, 450, 600, 900, 1800, 2700, 3600)
RECENTS_S: Final = (120, 300, 600, 1800)
WINDOWS_S: Final = (600, 3600)
EVIDENCE: Final = 0.015
"""Share of the time from which a regression is evidence."""
TICKET: Final = 0.02
TICKET_FOR_S: Final = 180


@dataclass(frozen=True)
class Steps:
    """Iterations of a job: seconds that each took, and its end since the job began; shape (steps,)."""

    durations: Floats
    ends: Floats


@dataclass(frozen=True)
class Totals:
    """What the exporter had counted at each scrape, shape (scrapes,).

    `longest` and `shortest` are NaN where no iteration ended in the window.
    """

    seconds: Floats
    count: Floats
    squares: Floats
    work: Floats
    longest: Floats
    shortest: Floats


@dataclass(frozen=True)
class Found:
    """What L1 says at each evaluation, NaN where it says nothing; shape (measures, evaluations), the measures
    being an iteration and a unit of work; `ratio` has shape (evaluations,)."""

    change: Floats
    recent: Floats
    healthy: Floats
    ratio: Floats


def draw(
    step_s: float,
    until_s: float,
    rng: np.random.Generator,
    *,
    factor: Callable[[float], float] = lambda _: 1.0,
    extra: Draw = lambda _at, _rng: 0.0,
    deviation: float = 0.05,
) -> Steps:
    """Steps until a time, each `factor(begin)` times as long as usual."""
    at, durations = 0.0, []
    while at < until_s:
        duration = step_s * max(1e-3, 1 + deviation * rng.standard_normal()) * factor(at) + extra(at, rng)
        durations.append(duration)
        at += duration
    return Steps(np.array(durations), np.cumsum(durations))


def count(steps: Steps, until_s: float, work: Floats | None = None) -> Totals:
    """What an exporter that began with the job has counted, scrape by scrape; `work` per step, else one."""
    at = np.arange(0, until_s + 1, INTERVAL_S)
    done = np.searchsorted(steps.ends, at, "right")
    since = np.searchsorted(steps.ends, at - WINDOW_S, "right")
    longest, shortest = np.full(len(at), np.nan), np.full(len(at), np.nan)
    for number, (begin, end) in enumerate(zip(since, done, strict=True)):
        if begin < end:
            longest[number] = steps.durations[begin:end].max()
            shortest[number] = steps.durations[begin:end].min()

    def total(values: Floats) -> Floats:
        summed: Floats = np.concatenate(([0.0], np.cumsum(values)))
        return summed[done]

    units = np.ones(len(steps.durations)) if work is None else work
    return Totals(
        total(steps.durations), done.astype(float), total(steps.durations**2), total(units), longest, shortest
    )


def find(totals: Totals) -> Found:
    """What the rules say, evaluation by evaluation, each of which sees one more scrape."""
    pauses = np.nan_to_num(totals.longest / totals.shortest, nan=0.0) > JITTER

    def clean(total: Floats) -> Floats:
        """What had been counted an evaluation ago, as engines see it that see records late."""
        counted: Floats = np.cumsum(np.where(pauses, 0.0, np.diff(total, prepend=0.0)))
        late: Floats = np.concatenate(([0.0], counted[:-1]))
        return late

    seconds, squares = clean(totals.seconds), clean(totals.squares)
    units = np.stack([clean(totals.count), clean(totals.work)])
    number = len(seconds)
    change, recent, healthy = (np.full((2, number), np.nan) for _ in range(3))
    held = np.full(2, np.nan)
    begun = np.flatnonzero(totals.count >= LEAST)
    start = int(begun[0]) if len(begun) else number
    for now in range(start, number):
        change[:, now] = _change(seconds, squares, units, start, now)
        recent[:, now] = _recent(seconds, units, start, now)
        window = recent[:, max(start, now - HOLDS_S // INTERVAL_S + 1) : now + 1]
        seen = window[:, ~np.isnan(window[0])]
        if seen.size and (seen.max(1) / held < RECOVERED).any():
            held = np.full(2, np.nan)
        if np.isnan(held[0]) and (recent[:, now] / change[:, now]).min() >= FOUND:
            held = change[:, now].copy()
        healthy[:, now] = held
    ratio = (recent / healthy).min(0)
    return Found(change, recent, healthy, np.where(ratio >= 1, ratio, np.nan))


def _change(seconds: Floats, squares: Floats, units: Floats, start: int, now: int) -> Floats:
    """Seconds of an iteration and of a unit of work before the change, shape (2,), or NaN."""
    least = np.full(2, np.inf)
    for window_s in WINDOWS_S:
        begin = max(now - window_s // INTERVAL_S, start)
        splits = now - np.array(AGOS_S) // INTERVAL_S
        splits = splits[splits >= begin]
        sums, counts = (
            np.stack([total[splits] - total[begin], total[now] - total[splits]])
            for total in (seconds, units[0])
        )
        spread = np.stack([squares[splits] - squares[begin], squares[now] - squares[splits]])
        with np.errstate(all="ignore"):
            means = sums / counts
            within = (spread - sums**2 / counts).sum(0) / (counts.sum(0) - 2)
            clear = (means[0] - means[1]) ** 2 > ERRORS**2 * within * (1 / counts).sum(0)
            steady = spread[1] * counts[1] / sums[1] ** 2 < 1 + LIMIT
            before = sums[0] / (units[:, splits] - units[:, [begin]])
            after = sums[1] / (units[:, [now]] - units[:, splits])
            longer = (after >= FOUND * before).all(0)
        kept = (counts >= LEAST).all(0) & clear & steady & longer
        if kept.any():
            least = np.minimum(least, before[:, kept].min(1))
    return np.where(np.isinf(least), np.nan, least)


def _recent(seconds: Floats, units: Floats, start: int, now: int) -> Floats:
    """Seconds of an iteration and of a unit of work now, shape (2,), or NaN."""
    for ago_s in RECENTS_S:
        begin = now - ago_s // INTERVAL_S
        if begin >= start and units[0, now] - units[0, begin] >= LEAST:
            mean: Floats = (seconds[now] - seconds[begin]) / (units[:, now] - units[:, begin])
            return mean
    return np.full(2, np.nan)


def spells(there: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[begin, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], there, [False]))))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def told(ratio: Floats, share: float = EVIDENCE) -> NDArray[np.bool_]:
    """At which evaluations the job loses at least this share of its time."""
    return np.nan_to_num(1 - 1 / ratio, nan=0.0) >= share


@dataclass(frozen=True)
class Case:
    """A job that becomes slower for good.

    Attributes:
        found_s: until it is evidence, for each seed; infinite where it never is.
        holes: times that it ceased to be, over all seeds.
        before: evaluations before the change at which something was told.
    """

    age_s: int
    step_s: float
    factor: float
    found_s: list[float]
    holes: int
    before: int

    @property
    def in_time(self) -> bool:
        """Within two minutes or sixteen iterations, and for good. A scrape is read at the next evaluation."""
        return max(self.found_s) <= max(120, 16 * self.step_s * self.factor) + INTERVAL_S and not self.holes


AGES_S: Final = (120, 480, 900, 1800, 4200, 12000)
STEPS_S: Final = (0.5, 1.0, 2.0, 20.0)
FACTORS: Final = (1.08, 1.15, 1.4, 2.7)


def grid(
    seeds: int,
    *,
    ages_s: tuple[int, ...] = AGES_S,
    steps_s: tuple[float, ...] = STEPS_S,
    factors: tuple[float, ...] = FACTORS,
    held_s: int = 6 * 3600,
) -> Iterator[Case]:
    """Changes at each age, step and factor that a job of that age can be compared for: with 16 iterations."""
    for age_s in ages_s:
        for step_s in steps_s:
            for factor in factors:
                if age_s / step_s >= 16:
                    yield _case(age_s, step_s, factor, seeds, held_s)


def _case(age_s: int, step_s: float, factor: float, seeds: int, held_s: int) -> Case:
    found, holes, before = [], 0, 0
    for seed in range(seeds):
        until = age_s + held_s
        steps = draw(
            step_s,
            until + step_s,
            np.random.default_rng([seed, age_s]),
            factor=lambda at: factor if at >= age_s else 1.0,
        )
        there = told(find(count(steps, until)).ratio)
        first = age_s // INTERVAL_S
        before += int(there[:first].sum())
        after = spells(there[first:])
        found.append(after[0][0] * INTERVAL_S if after else np.inf)
        holes += max(0, len(after) - 1) + bool(after and after[-1][1] < len(there) - first)
    return Case(age_s, step_s, factor, found, holes, before)


def _each(period_s: float, seconds: float) -> Draw:
    last = [0.0]

    def extra(at: float, _: np.random.Generator) -> float:
        if at - last[0] < period_s:
            return 0.0
        last[0] = at
        return seconds

    return extra


def _sometimes(share: float, seconds: float) -> Draw:
    return lambda _, rng: seconds if rng.random() < share else 0.0


def _bursts(step_s: float) -> Draw:
    """A minute of steps 1.3 times as long, each half hour or so."""
    until = [-1.0]

    def extra(at: float, rng: np.random.Generator) -> float:
        if at > until[0] and rng.random() < step_s / 1800:
            until[0] = at + 60
        return 0.3 * step_s if at < until[0] else 0.0

    return extra


HEALTHY: Final[Mapping[str, Callable[[float], Draw]]] = {
    "noise": lambda _: lambda _at, _rng: 0.0,
    "a pause of 20 s each 5 minutes": lambda _: _each(300, 20),
    "1 % of the steps 3x": lambda step_s: _sometimes(0.01, 2 * step_s),
    "5 % of the steps 1.5x": lambda step_s: _sometimes(0.05, 0.5 * step_s),
    "5 % of the steps 1.4x": lambda step_s: _sometimes(0.05, 0.4 * step_s),
    "10 % of the steps 1.3x": lambda step_s: _sometimes(0.1, 0.3 * step_s),
}
"""Jobs that are no slower than they were; by what is added to a step of some seconds."""
BURSTS: Final = "a minute of 1.3x, about each half hour"
"""A job that is slower, for a minute at a time: evidence while it is, and nothing that lasts."""


@dataclass(frozen=True)
class Hours:
    """What was told of jobs that are as fast as ever: spells of evidence, and those of a ticket's length."""

    kind: str
    step_s: float
    hours: float
    spells: int
    tickets: int


def falsely(
    hours: float, seeds: int, *, steps_s: tuple[float, ...] = (0.5, 1.0, 2.0, 20.0, 90.0)
) -> Iterator[Hours]:
    """Healthy jobs, and those with bursts, each of `hours` hours and once for each seed."""
    for kind, extra in {**HEALTHY, BURSTS: _bursts}.items():
        for step_s in steps_s:
            evidence = tickets = 0
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 100])
                steps = draw(step_s, hours * 3600, rng, extra=extra(step_s))
                ratio = find(count(steps, hours * 3600)).ratio
                evidence += len(spells(told(ratio)))
                lasting = TICKET_FOR_S // INTERVAL_S
                tickets += sum(end - begin >= lasting for begin, end in spells(told(ratio, TICKET)))
            yield Hours(kind, step_s, hours * seeds, evidence, tickets)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="jobs of each kind (default: %(default)s)")
    options = parser.parse_args()
    print("job's age    step  slower  found after (s)  holes  told before")
    cases = []
    for case in grid(options.seeds):
        cases.append(case)
        mark = "" if case.in_time else "  late" if np.isfinite(case.found_s).all() else "  missed"
        after = f"{min(case.found_s):.0f} to {max(case.found_s):.0f}"
        print(
            f"{case.age_s / 60:5.0f} min {case.step_s:5.1f} s  {case.factor:5.2f}x  {after:>15}"
            f"  {case.holes:5d}  {case.before:11d}{mark}",
            flush=True,
        )
    print("\njobs that are as fast as ever           step   hours  evidence  as long as a ticket")
    healthy: list[Hours] = []
    bursts: list[Hours] = []
    for one in falsely(3, 2 * options.seeds):
        (bursts if one.kind == BURSTS else healthy).append(one)
        print(
            f"{one.kind:38} {one.step_s:4.1f} s  {one.hours:6.0f}  {one.spells:8d}  {one.tickets:19d}",
            flush=True,
        )
    print(
        json.dumps(
            {
                "cases": len(cases),
                "late": sum(not case.in_time for case in cases),
                "holes": sum(case.holes for case in cases),
                "healthy_hours": sum(one.hours for one in healthy),
                "false_spells": sum(one.spells for one in healthy) + sum(case.before for case in cases),
                "burst_hours": sum(one.hours for one in bursts),
                "burst_tickets": sum(one.tickets for one in bursts),
            }
        )
    )


if __name__ == "__main__":
    main()
