"""Histories in which nobody is to blame and somebody was, and hosts that were never looked at."""

from __future__ import annotations

import pytest

from rules.scenario import STEP, STORIES, Scenario

pytestmark = STORIES
HALF = 0.5
"""Seconds between places for a sample in a promtool test; a host is scraped at each thirtieth of them."""


@pytest.mark.parametrize("scraped", [0, 1, 15, 28, 29])
def test_the_fast_path_looks_at_a_host_wherever_in_the_interval_it_is_scraped(scraped: int) -> None:
    """A range of 29 s held one sample of a host that is scraped in the first second after an evaluation."""
    job = Scenario(("job", "phases"), interval=HALF)
    begins, ends = 20, 30
    for rank in range(4):
        # The others' scrapes are spread over the interval.
        first = scraped if rank == 3 else 7 * rank
        gap = f" _x{round(STEP / HALF) - 1} "
        pad = f"_x{first} " if first else ""

        def sampled(values: list[float], gap: str = gap, pad: str = pad) -> str:
            return pad + gap.join(f"{value:g}" for value in values)

        where = {"rank": rank, "phase": "forward", "kind": "compute", "group": "dp"}
        slow = 2.0 if rank == 3 else 1.0
        seconds = [6.0 * (n if n < begins else begins + (n - begins) * slow) for n in range(ends)]
        job.add("argus_rank_up", sampled([1.0] * ends), rank=rank)
        job.add("argus_group_expected_ranks", sampled([4.0] * ends), rank=rank, group="dp")
        job.add(
            "argus_phase_duration_seconds_count",
            sampled([15.0 * n for n in range(ends)]),
            **where,
            source="event",
        )
        job.add("argus_phase_duration_seconds_sum", sampled(seconds), **where, source="event")
        longest = [0.4 if n <= begins else 0.4 * slow for n in range(ends)]
        job.add("argus_phase_window_max_seconds", sampled(longest), **where)
    # Slow from 20 scrapes on: two scrapes and two evaluations later.
    at = f"{begins * STEP + 60}s"
    job.expect("count by (rank) (rank:argus_phase_duration_seconds:fast_ratio)", at, {'{rank="3"}': 1})
    job.run()


@pytest.mark.parametrize(("group", "named"), [("unknown", {}), ("dp", {'{rank="1"}': 1})])
def test_whoever_waits_least_in_a_collective_of_unknown_ranks_is_not_late(
    group: str, named: dict[str, float]
) -> None:
    """The all-reduce of an embedding joins first and last stages only: the others wait less or not at all."""
    job = Scenario(("job", "phases", "verdicts"))
    for rank in range(4):
        job.ranks([rank], 60, group="dp", size=4)
        seconds = 0.4 if rank == 1 else 4
        job.phase(rank, "embedding-grads", "0+4x60", f"0+{seconds}x60", kind="comm", group=group)
    job.expect('count by (rank) (rank:argus_verdict:active{verdict="culprit"})', "10m", named)
    job.expect('count by (group) (group:argus_collective_transfer:seconds{group="unknown"})', "10m", {})
    job.run()


def test_even_work_is_even_whenever_each_host_is_scraped() -> None:
    """15 s hold seven steps of one host and eight of another; counted a step, their work is the same."""
    job = Scenario(("job", "work"))
    for rank in range(4):
        job.ranks([rank], 60, size=4)
        steps = [7.5 * n + (0.5 if (n + rank) % 2 else 0.0) for n in range(60)]
        for metric, scale, labels in (
            ("argus_iteration_duration_seconds_count", 1, {}),
            ("argus_work_units_total", 4096, {"unit": "tokens"}),
        ):
            job.add(metric, " ".join(f"{scale * step:g}" for step in steps), rank=rank, **labels)
    for at in ("5m", "5m15s"):
        job.expect('round(job:argus_work:fast_cv{unit="tokens"}, 1e-6) > 0', at, {})
    job.run()


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        pytest.param(
            [12.0] * 80, {'{rank="3"}': 1}, id="80 % of the time in kernels, where the others are 60 %"
        ),
        pytest.param([24.0] * 80, {}, id="160 %: more than there is"),
        pytest.param([0.0, 36.0, 0.0, 0.0] * 20, {}, id="60 %, but all of a minute at once: starved"),
    ],
)
def test_kernel_totals_that_cannot_be_right_accuse_nobody(slow: list[float], named: dict[str, float]) -> None:
    """A total that stood still and then jumped had twice the rate, and 13 healthy ranks were paged."""
    # Once a minute, as in production.
    job = Scenario(("job", "phases", "masked", "verdicts"), evaluation=60)
    for rank in range(4):
        job.ranks([rank], 80, size=4)
        job.phase(rank, "forward", "0+4x80", "0+8x80")
        total, totals = 0.0, []
        for grown in slow if rank == 3 else [9.0] * 80:
            totals.append(f"{total:g}")
            total += grown
        job.add(
            "argus_kernel_duration_seconds_total",
            " ".join(totals),
            rank=rank,
            kernel="gemm",
            stream="compute0",
        )
    job.expect('count by (rank) (rank:argus_verdict:active{verdict="culprit", phase="all"})', "15m", named)
    job.run()
