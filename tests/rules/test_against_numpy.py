"""PromQL against numpy: the same series through the generated rules and through the paper's formulas."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from rules.promtool import needs_promtool

ROOT = Path(__file__).resolve().parents[2]
STEP = 15
"""Seconds between samples and evaluations."""
Floats = NDArray[np.float64]

pytestmark = needs_promtool


def series(metric: str, labels: str, values: Floats) -> dict[str, str]:
    return {"series": f"{metric}{{{labels}}}", "values": " ".join(repr(float(value)) for value in values)}


def check(
    folder: Path,
    concern: str,
    inputs: list[dict[str, str]],
    expressions: list[tuple[str, str, dict[str, float]]],
) -> None:
    """Run promtool on (expression, time, samples by label set), with the rules of one concern and those of
    the job before them; values must be equal."""
    rules = [ROOT / f"rules/argus.{name}.rules.yaml" for name in ("job", concern)]
    groups = [
        group["name"]
        for file in rules
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    ]
    document: dict[str, Any] = {
        "rule_files": [str(file) for file in rules],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": groups,
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": inputs,
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": time,
                        "exp_samples": [
                            {"labels": labels, "value": float(value)} for labels, value in samples.items()
                        ],
                    }
                    for expression, time, samples in expressions
                ],
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    run = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def best_split(durations: Floats, per_sample: int) -> tuple[float, int]:
    """Largest mean ratio and its split, by brute force over the splits that a scrape can see (appendix B)."""
    best = (0.0, 0)
    for split in range(per_sample, len(durations), per_sample):
        # The interval that holds the change belongs to neither side.
        left, right = durations[:split], durations[split + per_sample :]
        if min(len(left), len(right)) < 8:
            continue
        relative = [side.std() / side.mean() for side in (left, right)]
        ratio = right.mean() / left.mean()
        pooled = sum(len(side) * rel**2 for rel, side in zip(relative, (left, right), strict=True))
        error = np.sqrt(pooled / (len(left) + len(right)) * (1 / len(left) + 1 / len(right)))
        if max(relative) < 0.1 and ratio > 1.05 and ratio - 1 > 5 * error:
            best = max(best, (float(ratio), split))
    return best


@pytest.mark.parametrize("seed", [1, 2])
def test_change_point_is_that_of_numpy(tmp_path: Path, seed: int) -> None:
    """Noisy iterations, 12 % slower from a random step on: the same ratio (6 digits) and the same split."""
    rng = np.random.default_rng(seed)
    per_sample, samples = 4, 46
    durations = rng.normal(1.0, 0.04, per_sample * (samples - 1))
    durations[int(rng.integers(90, 110)) :] *= 1.12

    def totals(values: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(values)])[::per_sample]

    labels = 'training_job="a", rank="0"'
    inputs = [
        series("argus_iteration_duration_seconds_sum", labels, totals(durations)),
        series("argus_iteration_duration_seconds_count", labels, totals(np.ones_like(durations))),
        series("argus_iteration_duration_seconds_squared_total", labels, totals(durations**2)),
    ]
    # At 11 m the recorded totals are those of 10 m 45 s (they are read 5 s late); the window is 10 m.
    end, window = 43 * per_sample, 40 * per_sample
    ratio, split = best_split(durations[end - window : end], per_sample)
    assert ratio > 1.05
    at = ((end - window + split) // per_sample + 1) * STEP
    check(
        tmp_path,
        "regression",
        inputs,
        [
            (
                'round(max by (training_job) (job:argus_iteration:regression_ratio{window="10m"}), 1e-6)',
                "11m",
                {'{training_job="a"}': round(ratio, 6)},
            ),
            (
                "max by (training_job) "
                '(job:argus_iteration:regression_split_timestamp_seconds{window="10m"})',
                "11m",
                {'{training_job="a"}': at},
            ),
        ],
    )


@pytest.mark.parametrize("ranks", [2, 5, 16])
def test_group_statistics_are_those_of_numpy(tmp_path: Path, ranks: int) -> None:
    """Sample CV, z and the ratio to the median, to six digits."""
    rng = np.random.default_rng(ranks)
    means = rng.normal(2.0, 0.2, ranks)
    inputs = []
    for rank, mean in enumerate(means):
        labels = f'training_job="a", rank="{rank}", phase="mlp", kind="compute", group="dp", source="event"'
        steps = np.arange(21.0) * 4
        inputs.append(series("argus_phase_duration_seconds_count", labels, steps))
        inputs.append(series("argus_phase_duration_seconds_sum", labels, steps * mean))
    deviation = means.std(ddof=1)
    zscore = (means - means.mean()) / deviation
    check(
        tmp_path,
        "phases",
        inputs,
        [
            (
                "round(max by (phase) (group:argus_phase_duration_seconds:cv), 1e-6)",
                "4m",
                {'{phase="mlp"}': round(deviation / means.mean(), 6)},
            ),
            (
                "round(max by (rank) (rank:argus_phase_duration_seconds:zscore), 1e-6)",
                "4m",
                {f'{{rank="{rank}"}}': round(float(value), 6) for rank, value in enumerate(zscore)},
            ),
            (
                "round(max by (rank) (rank:argus_phase_duration_seconds:median_ratio), 1e-6)",
                "4m",
                {
                    f'{{rank="{rank}"}}': round(float(value), 6)
                    for rank, value in enumerate(means / np.median(means))
                },
            ),
        ],
    )
