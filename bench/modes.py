"""Mode finding: time for one rank-window, and how well known modes come back.

    python -m bench.modes [--seed N] [--repeats N] [--numpy] [--json]

Speed: 100 (kernel, stream) pairs, 100,000 events, sizes as skewed as 1 / rank, triples included; CPU time of
the process, so that a busy machine does not count. Beside it what scipy and KDEpy take for the density alone.
Quality: the mixture designs of bench.mode_designs. Of what is measured with and without outliers, the worse
counts. Exit status 1 where a gate is missed. The last line is JSON:

* rank_window_ms, events_per_s: the compiled library; the numpy twin with --numpy or where it was not built;
* mode_f1: modes at their true places, all designs;
* exact_k: share of windows with the exact number of modes, three-mode family (the third one 10x away);
* p25_p95_within_2pct: share of windows of 200 events and more whose triples rebuild p25 to p95 within 2 %.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from argus_core import native
from argus_core.lognormal import lognormal_parameters
from argus_core.modes import ModeConfig, Modes, find_modes
from bench import mode_designs

Floats = NDArray[np.float64]

PAIRS = 100
EVENTS = 100_000
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95)
COMPILED_MS, NUMPY_MS = 25.0, 80.0
LEAST_EXACT_K, LEAST_WITHIN_2PCT = 0.90, 0.83
QUALITY_METHODS = {
    "recursive": ModeConfig(tick_seconds=mode_designs.TICK_SECONDS),
    "scott (paper)": ModeConfig(method="scott", tick_seconds=mode_designs.TICK_SECONDS),
}


def rank_window(rng: np.random.Generator) -> list[Floats]:
    """Durations in whole nanoseconds of each pair: one to four modes, 0.5 % of outliers."""
    share = 1.0 / np.arange(1, PAIRS + 1)
    sizes = np.maximum((EVENTS * share / share.sum()).astype(int), 20)
    sizes[0] += EVENTS - sizes.sum()
    pairs = []
    for size in sizes:
        modes = int(rng.integers(1, 5))
        medians = np.exp(rng.uniform(np.log(5e-6), np.log(5e-3), modes))
        sigmas = rng.choice([0.01, 0.03, 0.1], modes)
        mode = rng.integers(0, modes, size)
        durations = medians[mode] * np.exp(sigmas[mode] * rng.normal(0.0, 1.0, size))
        durations[rng.random(size) < 0.005] *= 20.0
        pairs.append(np.round(durations * 1e9) * 1e-9)
    return pairs


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    """Median CPU time of `repeats` runs after one to warm up."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - begin))
    return median(times)


def scipy_density(pairs: list[Floats]) -> None:
    """The density alone, without valleys and triples, as scipy offers it."""
    from scipy.stats import gaussian_kde

    for durations in pairs:
        logs = np.log(durations)
        gaussian_kde(logs, "scott")(np.linspace(logs.min(), logs.max(), 512))


def kdepy_density(pairs: list[Floats]) -> None:
    """The density alone, by KDEpy's FFT."""
    from KDEpy import FFTKDE

    for durations in pairs:
        FFTKDE(bw="silverman").fit(np.log(durations)).evaluate(512)


def speed(rng: np.random.Generator, repeats: int) -> dict[str, float | None]:
    """Milliseconds a rank-window by implementation; None where it is not installed."""
    pairs = rank_window(rng)

    def modes(config: ModeConfig) -> Callable[[], object]:
        return lambda: [find_modes(durations, config) for durations in pairs]

    found: dict[str, float | None] = {"argus compiled": None, "argus compiled, scott": None}
    recursive, scott = ModeConfig(tick_seconds=1e-9), ModeConfig(method="scott", tick_seconds=1e-9)
    if native.library() is not None:
        found["argus compiled"] = milliseconds(modes(recursive), repeats)
        found["argus compiled, scott"] = milliseconds(modes(scott), repeats)
    with numpy_only():
        found["argus numpy"] = milliseconds(modes(recursive), repeats)
        found["argus numpy, scott"] = milliseconds(modes(scott), repeats)
    for name, density in (
        ("scipy gaussian_kde, density alone", scipy_density),
        ("KDEpy FFTKDE, density alone", kdepy_density),
    ):
        try:
            found[name] = milliseconds(lambda density=density: density(pairs), min(repeats, 3))  # type: ignore[misc]
        except ImportError:
            found[name] = None
    return found


class numpy_only:  # noqa: N801 - reads as a statement
    """While it lasts, ARGUS_NO_NATIVE is set."""

    def __enter__(self) -> None:
        self._before = os.environ.get("ARGUS_NO_NATIVE")
        os.environ["ARGUS_NO_NATIVE"] = "1"

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del os.environ["ARGUS_NO_NATIVE"]
        else:
            os.environ["ARGUS_NO_NATIVE"] = self._before


def reconstruction_holds(durations: Floats, found: Modes) -> bool:
    """Whether p25 to p95 of the log-normal mixture lie within 2 % of the sample's own."""
    from scipy.special import ndtr

    triples = np.array([(mode.count, mode.p50, mode.p99) for mode in found.modes])
    mu, sigma = lognormal_parameters(triples[:, 1], triples[:, 2], triples[:, 0])
    grid = np.unique(mu[:, None] + sigma[:, None] * np.linspace(-5.0, 5.0, 400))
    share = triples[:, 0] / triples[:, 0].sum()
    cdf = share @ ndtr((grid - mu[:, None]) / sigma[:, None])
    own = np.log(np.quantile(durations, QUANTILES))
    return bool(np.all(np.abs(np.expm1(np.interp(QUANTILES, cdf, grid) - own)) < 0.02))


def quality(rng: np.random.Generator, repeats: int) -> dict[tuple[str, str, float], dict[str, float]]:
    """Mean scores by (method, family or "all", outlier share)."""
    scores: dict[tuple[str, str, float], list[tuple[float, float, float]]] = {}
    for design, count, share in mode_designs.windows(repeats):
        durations = design.sample(rng, count, share)
        for method, config in QUALITY_METHODS.items():
            found = find_modes(durations, config)
            medians = mode_designs.without_outlier_modes(found, design, share)
            holds = float(reconstruction_holds(durations, found)) if count >= 200 else np.nan
            score = (mode_designs.f1(medians, design), float(len(medians) == len(design.medians)), holds)
            for family in (design.family, "all"):
                scores.setdefault((method, family, share), []).append(score)
    names = ("mode_f1", "exact_k", "p25_p95_within_2pct")
    return {
        key: dict(zip(names, np.nanmean(rows, axis=0).tolist(), strict=True)) for key, rows in scores.items()
    }


@dataclass(frozen=True)
class Gate:
    what: str
    measured: float
    limit: float
    at_most: bool

    @property
    def kept(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def __str__(self) -> str:
        sign, verdict = "<=" if self.at_most else ">=", "kept" if self.kept else "NOT KEPT"
        return f"  {self.what:44} {self.measured:8.3f} {sign} {self.limit:<6g} {verdict}"


def twins_agree(pairs: list[Floats]) -> bool:
    """Whether both implementations give the same modes for every pair."""
    config = ModeConfig(tick_seconds=1e-9)
    compiled = [find_modes(durations, config) for durations in pairs]
    with numpy_only():
        plain = [find_modes(durations, config) for durations in pairs]
    return all(_alike(a, b) for a, b in zip(compiled, plain, strict=True))


def _alike(a: Modes, b: Modes) -> bool:
    triples = [np.array([(m.count, m.p50, m.p99) for m in found.modes]).reshape(-1, 3) for found in (a, b)]
    return (
        a.tail_events == b.tail_events
        and triples[0].shape == triples[1].shape
        and np.allclose(triples[0], triples[1], rtol=1e-9, atol=0.0)
    )


def _print_tables(
    times: dict[str, float | None], scores: dict[tuple[str, str, float], dict[str, float]]
) -> None:
    print(f"One rank-window: {PAIRS} pairs, {EVENTS} events; CPU time")
    for name, value in times.items():
        text = "not installed" if value is None else f"{value:8.1f} ms {EVENTS / value / 1e3:8.2f} M events/s"
        print(f"  {name:36} {text}")
    print("Quality (no outliers | 1 % outliers)        F1            exact count   p25-p95 < 2 % (n >= 200)")
    for method in QUALITY_METHODS:
        for family in dict.fromkeys(key[1] for key in scores):
            clean, outliers = (scores[method, family, share] for share in mode_designs.OUTLIER_SHARES)
            cells = "   ".join(f"{clean[name]:.3f} | {outliers[name]:.3f}" for name in clean)
            print(f"  {method:14} {family:22} {cells}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.modes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=6, help="windows a design, and timed runs")
    parser.add_argument("--numpy", action="store_true", help="report the numpy twin in the JSON line")
    parser.add_argument("--json", action="store_true", help="the JSON line alone")
    arguments = parser.parse_args()
    times = speed(np.random.default_rng(arguments.seed), arguments.repeats)
    scores = quality(np.random.default_rng(arguments.seed), arguments.repeats)
    agree = twins_agree(rank_window(np.random.default_rng(arguments.seed)))

    def worst(family: str, score: str) -> float:
        return min(scores["recursive", family, share][score] for share in mode_designs.OUTLIER_SHARES)

    compiled_ms, numpy_ms = times["argus compiled"], times["argus numpy"]
    assert numpy_ms is not None
    exact_k, within = worst("third 10x away", "exact_k"), worst("all", "p25_p95_within_2pct")
    gates = [
        *([] if compiled_ms is None else [Gate("compiled, ms", compiled_ms, COMPILED_MS, at_most=True)]),
        Gate("numpy twin, ms", numpy_ms, NUMPY_MS, at_most=True),
        Gate("both twins give the same modes", float(agree), 1.0, at_most=False),
        Gate("exact K, third mode 10x away", exact_k, LEAST_EXACT_K, at_most=False),
        Gate("p25..p95 within 2 %, n >= 200", within, LEAST_WITHIN_2PCT, at_most=False),
    ]
    if not arguments.json:
        _print_tables(times, scores)
        print("Gates", *map(str, gates), sep="\n")
    reported = numpy_ms if arguments.numpy or compiled_ms is None else compiled_ms
    print(
        json.dumps(
            {
                "rank_window_ms": round(reported, 2),
                "events_per_s": round(EVENTS / reported * 1e3),
                "mode_f1": round(worst("all", "mode_f1"), 4),
                "exact_k": round(exact_k, 4),
                "p25_p95_within_2pct": round(within, 4),
            }
        )
    )
    return 0 if all(gate.kept for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
