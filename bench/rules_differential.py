"""Random job histories through the generated rules and through numpy (`bench.rules_reference`), compared.

    python -m bench.rules_differential [--seeds N] [--first N]

A history is what a job does: durations of single iterations and spans, with noise, a step change, spikes,
slow and late ranks, a restarted producer and failed scrapes. promtool runs Prometheus' own rule manager and
engine over the series that a scraper sees of it. Equal means: change points within 1e-9, at the same split;
max/min of jitter within 1e-9 and its candidate intervals within a scrape; mean, CV, z and the ratio to the
median within 1e-9; the same culprits.

The last line is JSON: `seeds`, `compared` (numbers and sets), `decided_ratio` (of the verdicts; others are so
near a threshold that the estimated rate of steps may tip them, and are not compared), `different` (seeds with
any difference).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench import rules_reference as reference
from bench.rules_reference import Floats, Group

ROOT = Path(__file__).resolve().parents[1]
SCRAPE = 15
WINDOWS = {"10m": 40, "30m": 120}
"""Windows of the change-point scan, in scrapes."""
EXTREMES = 60.0
"""Seconds over which the exporter takes the shortest and the longest iteration."""
MIN_SPANS = 3
"""In the two minutes of a mean, below which it is too short for a verdict."""
MEAN_SAMPLES = 8
"""Scrapes within the two minutes of a mean."""
TOLERANCE = 1e-9
L1_RULES = ("job", "regression", "jitter")
L2_RULES = ("job", "phases", "verdicts")
L2_SCRAPES = 24
PHASES = {"forward": "compute", "data": "host", "all_reduce": "comm"}


@dataclass
class History:
    """What one job did, and what its scrapes saw.

    Attributes:
        ends, durations: of the iterations; seconds, shape (iterations,).
        spans: durations by phase; shape (ranks, iterations).
        scraped: whether each scrape (every 15 s from 0) succeeded.
        restart: index of the first scrape that sees the producer's second life; none before it ended.
    """

    ends: Floats
    durations: Floats
    spans: dict[str, Floats]
    scraped: np.ndarray[Any, np.dtype[np.bool_]]
    restart: int | None

    @property
    def samples(self) -> int:
        return len(self.scraped)

    @property
    def ranks(self) -> int:
        return len(self.spans["forward"])

    def done(self, scrape: int) -> int:
        """Iterations that have ended by a scrape."""
        return int(np.searchsorted(self.ends, scrape * SCRAPE, side="right"))

    def last_scrape(self, at: int) -> int | None:
        """The newest successful scrape at or before `at`, within the lookback of five minutes."""
        for scrape in range(at, max(-1, at - 20), -1):
            if self.scraped[scrape]:
                return scrape
        return None

    def life(self, scrape: int) -> int:
        return int(self.restart is not None and scrape >= self.restart)

    def born(self, life: int) -> int:
        """Iterations that had ended when a life began."""
        return self.done(self.restart - 1) if life and self.restart is not None else 0


def random_history(seed: int) -> History:
    """A job of some minutes with faults drawn at random."""
    rng = np.random.default_rng(seed)
    samples = 140 if seed % 4 == 0 else 80
    ranks = int(rng.choice([1, 2, 3, 4, 8, 12]))
    step = float(rng.uniform(7.6, 14.0))
    count = int(samples * SCRAPE / step) + 2
    noise = float(rng.uniform(0.001, 0.03))
    forward = 0.5 * step * rng.normal(1, noise, (ranks, count)).clip(0.8, 1.2)
    data = 0.1 * step * rng.normal(1, noise, (ranks, count)).clip(0.8, 1.2)
    elsewhere = np.zeros((ranks, count))
    for kind in rng.choice(["slow", "data", "host", "late", "none"], int(rng.integers(1, 3)), replace=False):
        rank, factor = int(rng.integers(ranks)), float(rng.uniform(1.03, 2.2))
        if kind in ("slow", "host"):
            forward[rank] *= factor
        if kind in ("data", "host"):
            data[rank] *= factor
        if kind == "late":
            elsewhere[rank] += float(rng.uniform(0.02, 0.25)) * step
    arrival = forward + data + elsewhere
    durations = arrival.max(axis=0) + 0.3 * step
    collective = durations - arrival
    # What slows the whole job: inside the collective, on all ranks alike.
    factors = np.ones(count)
    if rng.random() < 0.6:
        factors[int(rng.integers(count // 3, count)) :] = rng.uniform(1.01, 1.4)
    if rng.random() < 0.4:
        for first in rng.integers(2, count, int(rng.integers(1, 5))):
            # Two to four times, so that a trailing minute holds an iteration.
            factors[first : first + int(rng.integers(1, 4))] = rng.uniform(2.0, 3.5)
    collective += (factors - 1) * durations
    durations = durations * factors
    ends = np.cumsum(durations)
    scraped = rng.random(samples) > 0.03
    scraped[0] = True
    restart = int(rng.integers(samples // 4, samples)) if rng.random() < 0.25 else None
    if restart is not None:
        # The process is scraped in each of its lives.
        scraped[restart - 1 : restart + 1] = True
    return History(
        ends, durations, {"forward": forward, "data": data, "all_reduce": collective}, scraped, restart
    )


@dataclass
class Part:
    """Some scrapes of a history as one promtool test.

    Attributes:
        begin, end: first scrape, and the one after the last.
        asked: (expression, scrape, values by labels).
    """

    seed: int
    history: History
    begin: int
    end: int
    inputs: list[dict[str, str]] = field(default_factory=list)
    asked: list[tuple[str, int, dict[str, float]]] = field(default_factory=list)
    decided: int = 0
    undecided: int = 0

    @property
    def job(self) -> str:
        return f'training_job="{self.seed}"'

    def add(self, metric: str, labels: str, values: Iterable[float | None]) -> None:
        """One series, by scrape of the history; what failed scrapes would have seen is missing."""
        shown = [
            "_" if value is None or not self.history.scraped[scrape] else repr(float(value))
            for scrape, value in enumerate(values)
        ]
        series = f"{metric}{{{self.job}, {labels}}}"
        self.inputs.append({"series": series, "values": " ".join(shown[self.begin : self.end])})

    def same(self, series: str, at: int, value: float) -> None:
        """The series has this value."""
        limit = TOLERANCE * max(1.0, abs(value))
        self.asked.append((f"abs(max({series}) - ({value!r})) < bool {limit!r}", at, {"{}": 1}))

    def absent(self, series: str, at: int) -> None:
        self.asked.append((f"count({series})", at, {}))

    def document(self) -> dict[str, Any]:
        return {
            "interval": f"{SCRAPE}s",
            "input_series": self.inputs,
            "promql_expr_test": [
                {
                    "expr": expression,
                    "eval_time": f"{(at - self.begin) * SCRAPE}s",
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
                }
                for expression, at, samples in self.asked
            ],
        }


def trailing(history: History, scrape: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Iterations that ended in the exporter's extremes window."""
    at = scrape * SCRAPE
    return (history.ends > at - EXTREMES) & (history.ends <= at)


def totals(history: History, values: Floats) -> Iterator[float]:
    """A counter at each scrape; a new life counts from zero."""
    for scrape in range(history.samples):
        born = history.born(history.life(scrape))
        yield float(values[born : history.done(scrape)].sum())


def extremes(history: History, values: Floats, choose: Callable[[Floats], Any]) -> Iterator[float | None]:
    """Of the trailing minute at each scrape."""
    for scrape in range(history.samples):
        inside = trailing(history, scrape)
        yield float(choose(values[inside])) if inside.any() else None


def scrape_iterations(part: Part) -> None:
    """The series of L1, of the job's lowest rank."""
    history, name, rank = part.history, "argus_iteration_duration_seconds", 'rank="0"'
    durations = history.durations
    part.add("argus_rank_up", rank, [1.0] * history.samples)
    for metric, values in (("count", durations**0), ("sum", durations), ("squared_total", durations**2)):
        part.add(f"{name}_{metric}", rank, totals(history, values))
    part.add("argus_iteration_window_min_seconds", rank, extremes(history, durations, np.min))
    part.add("argus_iteration_window_max_seconds", rank, extremes(history, durations, np.max))


def scrape_spans(part: Part) -> None:
    """The series of L2, of every rank."""
    history = part.history
    for rank in range(history.ranks):
        here = f'rank="{rank}"'
        part.add("argus_rank_up", here, [1.0] * history.samples)
        part.add("argus_group_expected_ranks", f'{here}, group="dp"', [history.ranks] * history.samples)
        for phase, kind in PHASES.items():
            spans = history.spans[phase][rank]
            where = f'{here}, phase="{phase}", kind="{kind}", group="dp"'
            source = f'{where}, source="event"'
            part.add("argus_phase_duration_seconds_count", source, totals(history, spans**0))
            part.add("argus_phase_duration_seconds_sum", source, totals(history, spans))
            part.add("argus_phase_window_max_seconds", where, extremes(history, spans, np.max))


def ask_change_point(part: Part, at: int) -> None:
    """Totals are recorded five seconds late, so of the scrape before; the scan abstains over a restart."""
    history = part.history
    for window, scrapes in WINDOWS.items():
        ratio = f'job:argus_iteration:regression_ratio{{{part.job}, window="{window}"}}'
        split = f'job:argus_iteration:regression_split_timestamp_seconds{{{part.job}, window="{window}"}}'
        seen = [history.last_scrape(scrape - 1) for scrape in range(at - scrapes, at + 1) if scrape >= 1]
        known = [scrape for scrape in seen if scrape is not None]
        found = None
        if len(known) == scrapes + 1 and history.life(known[0]) == history.life(known[-1]):
            bounds = [history.done(scrape) for scrape in known]
            segments = [history.durations[a:b] for a, b in itertools.pairwise(bounds)]
            found = reference.change_point(segments)
        if found is None:
            part.absent(ratio, at)
            part.absent(split, at)
        else:
            part.same(ratio, at, found[0])
            part.same(split, at, (at - scrapes + found[1]) * SCRAPE)


def ask_jitter(part: Part, at: int) -> None:
    """Phase 1 at one evaluation: the same ratio, and within one scrape of every edge the same state."""
    history = part.history
    series = f"job:argus_iteration:jitter_ratio{{{part.job}}}"
    scrape = history.last_scrape(at)
    if scrape is None:
        return
    now = reference.candidate(history.ends, history.durations, scrape * SCRAPE, EXTREMES)
    if now is not None:
        part.same(series, at, now)
    moments = np.arange((scrape - 1) * SCRAPE, (scrape + 1) * SCRAPE + 0.5, 0.5)
    around = [
        reference.candidate(history.ends, history.durations, float(moment), EXTREMES) for moment in moments
    ]
    states = {ratio is not None and ratio > reference.JITTER_RATIO for ratio in around}
    if len(states) == 1:
        expected = {"{}": 1.0} if states.pop() else {}
        part.asked.append((f"count({series} > {reference.JITTER_RATIO})", at, expected))


def window_means(history: History, phase: str, at: int) -> Floats | None:
    """Mean duration of the spans between the first and the last scrape of two minutes, shape (ranks,)."""
    window = range(max(0, at - MEAN_SAMPLES + 1), at + 1)
    scrapes = [scrape for scrape in window if history.scraped[scrape]]
    seen = np.zeros(len(history.durations), dtype=bool)
    for before, after in itertools.pairwise(scrapes):
        # After a restart the counter's increase is what it says.
        first = history.born(1) if history.life(after) != history.life(before) else history.done(before)
        seen[first : history.done(after)] = True
    return np.asarray(history.spans[phase][:, seen].mean(axis=1)) if seen.any() else None


def steps_a_second(history: History, at: int) -> float:
    """Over the two minutes before a scrape."""
    return 1 / float(np.diff(history.ends[history.done(at - MEAN_SAMPLES) : history.done(at)]).mean())


def costs_something(group: Group, history: History, at: int) -> bool:
    """A group whose slowest rank costs half a percent of the time against the mean is judged."""
    excess = float(group.means.max() - group.means.mean())
    return excess * steps_a_second(history, at) > 0.9 * 0.005


def ask_groups(part: Part, at: int) -> None:
    """L2 at one evaluation: statistics of every phase, and who is to blame."""
    history = part.history
    groups: dict[str, Group] = {}
    for phase in PHASES:
        means = window_means(history, phase, at)
        if means is None:
            return
        groups[phase] = Group(means)
        ask_statistics(part, at, phase, groups[phase])
    rate = steps_a_second(history, at)
    if rate * MEAN_SAMPLES * SCRAPE < 1.1 * MIN_SPANS:
        # Steps this long are judged over a longer window, once that is full.
        part.undecided += 1
        return
    try:
        # A step more or less falls between two scrapes.
        margin = 0.05 + 1 / (rate * MEAN_SAMPLES * SCRAPE)
        blamed = reference.culprits(groups["forward"], groups["data"], groups["all_reduce"], rate, margin)
    except reference.Undecided:
        part.undecided += 1
        return
    part.decided += 1
    verdicts = f'rank:argus_verdict:active{{{part.job}, verdict="culprit", level="L2"}}'
    part.asked.append(
        (
            f"max by (rank, phase, cause) ({verdicts})",
            at,
            {f'{{rank="{rank}", phase="{phase}", cause="{cause}"}}': 1.0 for rank, phase, cause in blamed},
        )
    )


def ask_statistics(part: Part, at: int, phase: str, group: Group) -> None:
    """Mean, CV, z and the ratio to the median, of a group and its ranks."""
    several = len(group.means) > 1
    matchers = f'{{{part.job}, phase="{phase}"'
    part.same(f"group:argus_phase_duration_seconds:mean{matchers}}}", at, float(group.means.mean()))
    if several:
        part.same(f"group:argus_phase_duration_seconds:cv{matchers}}}", at, group.cv)
    name = "rank:argus_phase_duration_seconds"
    for rank, mean in enumerate(group.means.tolist()):
        one = f'{matchers}, rank="{rank}"}}'
        part.same(f"{name}:mean{one}", at, mean)
        if several and group.imbalanced:
            part.same(f"{name}:zscore{one}", at, float(group.zscores[rank]))
            part.same(f"{name}:median_ratio{one}", at, float(group.ratios[rank]))
        elif not costs_something(group, part.history, at):
            part.absent(f"{name}:zscore{one}", at)


def parts_of(seed: int) -> dict[tuple[str, ...], Part]:
    """One seed's history and what is asked of it, by the rules that it needs."""
    history = random_history(seed)
    rng = np.random.default_rng([seed, 1])
    whole = Part(seed, history, 0, history.samples)
    scrape_iterations(whole)
    for at in sorted(rng.choice(np.arange(44, history.samples), 6, replace=False).tolist()):
        ask_change_point(whole, at)
    for at in range(8, history.samples):
        ask_jitter(whole, at)
    # A few minutes are enough for L2, which looks back over two: some that can be asked about.
    asked = {begin: asked_of_groups(history, begin) for begin in range(history.samples - L2_SCRAPES)}
    begin = int(rng.choice([begin for begin, times in asked.items() if times]))
    some = Part(seed, history, begin, begin + L2_SCRAPES)
    scrape_spans(some)
    for at in asked[begin]:
        ask_groups(some, at)
    return {L1_RULES: whole, L2_RULES: some}


def asked_of_groups(history: History, begin: int) -> list[int]:
    """Scrapes at which L2 is compared, of the part that begins with scrape `begin`."""
    return [at for at in range(begin + 2 * MEAN_SAMPLES + 1, begin + L2_SCRAPES, 2) if steady(history, at)]


def steady(history: History, at: int) -> bool:
    """A life of four minutes, and a successful scrape at either end of the last two.

    Means are right in any case; what a finding costs is a share of time, by a rate that a scraper estimates.
    """
    first = at - MEAN_SAMPLES + 1
    one_life = history.life(at - 2 * MEAN_SAMPLES) == history.life(at)
    return bool(history.scraped[at] and history.scraped[first]) and one_life


def rules_file(folder: Path, concerns: Sequence[str]) -> dict[str, Any]:
    """The generated rules of some concerns, less two that cost most and that no history here makes speak.

    A scan of an hour needs an hour; the exact width needs a sample a step (tests/rules/test_job_series.py).
    """
    groups = [
        group
        for concern in concerns
        for group in yaml.load(
            (ROOT / f"rules/argus.{concern}.rules.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
        )["groups"]
    ]
    for group in groups:
        group["rules"] = [
            rule
            for rule in group["rules"]
            if rule["record"] != "job:argus_iteration:jitter_width_seconds"
            and rule.get("labels", {}).get("window") != "1h"
        ]
    file = folder / "rules.yaml"
    file.write_text(yaml.dump({"groups": groups}, Dumper=yaml.CSafeDumper), encoding="utf-8")
    return {"rule_files": [str(file)], "group_eval_order": [group["name"] for group in groups]}


def compare(concerns: Sequence[str], parts: Sequence[Part]) -> str:
    """What promtool says of the differences; empty if there are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = {
            **rules_file(folder, concerns),
            "evaluation_interval": f"{SCRAPE}s",
            "tests": [part.document() for part in parts],
        }
        file = folder / "differential.yaml"
        file.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper), encoding="utf-8")
        done = subprocess.run(
            ["promtool", "test", "rules", str(file)],
            # Garbage is collected less often: a quarter of the time, for 200 MB.
            env=os.environ | {"GOGC": "400"},
            capture_output=True,
            text=True,
            check=False,
        )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    compared = decided = undecided = different = 0
    for seed in range(options.first, options.first + options.seeds):
        parts = parts_of(seed)
        said = [text for concerns, part in parts.items() if (text := compare(concerns, [part]))]
        for text in said:
            print(f"seed {seed}: {text.strip()[:2000]}", flush=True)
        different += bool(said)
        compared += sum(len(part.asked) for part in parts.values())
        decided += sum(part.decided for part in parts.values())
        undecided += sum(part.undecided for part in parts.values())
    print(
        json.dumps(
            {
                "seeds": options.seeds,
                "compared": compared,
                "decided_ratio": decided / (decided + undecided),
                "different": different,
            }
        )
    )


if __name__ == "__main__":
    main()
