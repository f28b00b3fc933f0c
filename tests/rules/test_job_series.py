"""The job's series: the lowest live rank, by number; and exact widths from one sample a step."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml

from rules.scenario import ROOT, STORIES, Scenario

pytestmark = STORIES


def iterations(job: Scenario, rank: int, durations: list[float], **labels: object) -> None:
    """Totals with one iteration a sample."""
    squares = np.cumsum(np.square(durations))
    totals = {
        "argus_iteration_duration_seconds_count": np.arange(len(durations) + 1),
        "argus_iteration_duration_seconds_sum": np.concatenate([[0], np.cumsum(durations)]),
        "argus_iteration_duration_seconds_squared_total": np.concatenate([[0], squares]),
    }
    for metric, values in totals.items():
        job.add(metric, " ".join(f"{value:.12g}" for value in values), rank=rank, **labels)


def test_beyond_the_first_host_the_lowest_rank_is_that_of_the_lowest_number() -> None:
    """Ranks 9, 10 and 123 live: 9, although "10" comes first as a text."""
    job = Scenario(("job",))
    for rank in (123, 10, 9):
        job.add("argus_rank_up", "1x20", rank=rank)
        iterations(job, rank, [rank] * 20)
    job.expect(
        "job:argus_iteration_duration_seconds:sum", "4m", {
            'job:argus_iteration_duration_seconds:sum{training_job="a", rank="9"}': 9 * 15
        }
    )  # fmt: skip
    job.expect("max by (rank) (rank:argus_rank:number)", "4m", {
        '{rank="9"}': 9, '{rank="10"}': 10, '{rank="123"}': 123
    })  # fmt: skip
    job.run()


def test_a_rank_of_the_first_host_comes_before_all_others() -> None:
    """Rank 3 lives: nothing is numbered."""
    job = Scenario(("job",))
    for rank in (3, 9, 10):
        job.add("argus_rank_up", "1x20", rank=rank)
        iterations(job, rank, [rank] * 20)
    job.expect("max by (rank) (job:argus_iteration_duration_seconds:sum)", "4m", {'{rank="3"}': 3 * 15})
    job.expect("rank:argus_rank:number", "4m", {})
    job.run()


def test_a_change_of_rank_is_no_regression() -> None:
    """Rank 9 is lost after 8 minutes; rank 10 has taken 1.3 times as long all along."""
    job = Scenario(("job", "regression"))
    job.add("argus_rank_up", "1x32 0x60", rank=9)
    job.add("argus_rank_up", "1x92", rank=10)
    iterations(job, 9, [10.0] * 32)
    iterations(job, 10, [13.0] * 92)
    job.expect("max by (rank) (job:argus_iteration_duration_seconds:count)", "7m", {'{rank="9"}': 27})
    for minute in range(9, 22, 2):
        job.expect("job:argus_iteration:regression_ratio", f"{minute}m", {})
    job.expect("max by (rank) (job:argus_iteration_duration_seconds:count)", "21m", {'{rank="10"}': 83})
    job.run()


@pytest.mark.parametrize("flavour", ["rules", "rules/test", "rules/portable"])
def test_the_scan_reads_totals_of_one_evaluation(flavour: str) -> None:
    """Its own group records them before it reads them: another group may be half done when it begins."""
    content = yaml.safe_load((ROOT / flavour / "argus.regression.rules.yaml").read_text())
    (group,) = content["groups"]
    recorded: set[str] = set()
    for rule in group["rules"]:
        read = set(re.findall(r"job:argus_iteration(?:_\w+)?:\w+", rule["expr"]))
        assert read <= recorded, f"{rule['record']} reads {read - recorded}, which another group records"
        recorded.add(rule["record"])
    assert "job:argus_iteration_scan:seconds" in recorded


@pytest.mark.parametrize("slow", [1, 2, 3, 6])
def test_width_of_a_run_is_exact_per_step(slow: int) -> None:
    """Iterations of 4 s, then `slow` of them recorded as 11 s: the longest run since the last evaluation.

    The samples come every four seconds whatever they say, so the width is the time between their stamps.
    """
    job = Scenario(("job", "jitter"), interval=4)
    first = 180
    durations = [4.0] * 240
    durations[first : first + slow] = [11.0] * slow
    job.add("argus_rank_up", "1x240", rank=0)
    job.add("argus_iteration_seconds", " ".join(f"{value:g}" for value in durations), rank=0)
    # The counters of a steady job: the baseline is 4 s.
    iterations(job, 0, [4.0] * 240)
    last = (first + slow - 1) * 4
    evaluation = -(-last // 15) * 15
    seen = [sample for sample in range(first, first + slow) if evaluation - 15 <= sample * 4 <= evaluation]
    assert seen[-1] == first + slow - 1, "the evaluation after the run sees its last step"
    job.expect("job:argus_iteration:jitter_width_seconds", f"{evaluation}s", {
        'job:argus_iteration:jitter_width_seconds{training_job="a"}': 4 * slow
    })  # fmt: skip
    job.expect("job:argus_iteration:jitter_width_seconds", "11m", {})
    job.expect("job:argus_iteration:jitter_width_seconds", "15m", {})
    job.run()
