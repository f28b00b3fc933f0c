"""The measurements behind constants: each page of docs/evidence has its command, each command its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.evidence import cross_checks, far_launches, iterations, modes, shifts
from bench.evidence.__main__ import TOPICS
from bench.evidence.table import Table

PAGES = Path(__file__).parents[2] / "docs/evidence"


def test_each_topic_has_a_page_that_names_its_command() -> None:
    """`python -m bench.evidence TOPIC` on the page of that name, and no page names another."""
    named = {
        page.stem: set(re.findall(r"python -m bench\.evidence ([\w-]+)", page.read_text()))
        for page in PAGES.glob("*.md")
        if page.name not in ("README.md", "methods.md")  # bench.l3_quality measures that, in minutes a cell
    }
    assert named == {topic: {topic} for topic in TOPICS}


def test_a_table_reads_as_one() -> None:
    """Columns under their names."""
    table = Table("Title", {"one": {"a": 0.5, "b": 2.0}, "three": {"a": 1e-5, "b": 0.0}})
    assert [line.split() for line in str(table).splitlines()] == [
        ["Title"],
        ["a", "b"],
        ["one", "0.5", "2"],
        ["three", "1e-05", "0"],
    ]


def test_the_far_mode_hides_close_ones() -> None:
    """Computed: 1.76 at 10x and 1,000 events."""
    assert modes.least_ratio_told_apart().rows["far mode at 10x"]["n = 1000"] == pytest.approx(
        1.76, abs=0.005
    )


def test_two_slow_ranks_of_eight_hide_one_another_from_z() -> None:
    """Computed: 1.62 of a possible 2.47, while the ratio to the median is 2."""
    row = iterations.one_slow_rank().rows["2 at 2x of 8"]
    assert row["z"] == pytest.approx(1.62, abs=0.005)
    assert row["ratio to median"] == 2.0


@pytest.mark.parametrize("seed", [2, 3])
def test_what_the_pages_conclude_holds_for_other_seeds(seed: int) -> None:
    """A fence is blind to many bad ranks, clusters are not; random counts hide a slow rank from W1."""
    bad = shifts.when_many_are_bad(seed).rows["26% bad"]
    assert (bad["W1, 3 IQR"], bad["two clusters"]) == (0.0, 1.0)
    counts = shifts.when_counts_differ(seed).rows["counts at random"]
    assert counts["W1: 7 %"] < 0.5
    assert (counts["modes: false"], counts["modes: 7 %"]) == (0.0, 1.0)
    tails = next(far_launches.tables(seed))
    assert tails.rows["2000 launches"]["healthy ranks"] == 0.0
    assert tails.rows["2000 launches"]["2% far"] > 0.95
    extreme = cross_checks.eroica_beside_an_extreme_rank(seed).rows["20 ranks at 2x, found"]
    assert extreme == {"to the letter": 0.0, "here": 1.0}
