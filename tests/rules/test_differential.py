"""Random histories through the rules and through numpy; 200 of them run in `python -m bench.verify`."""

from __future__ import annotations

import pytest

from bench import rules_differential
from rules.promtool import needs_promtool

pytestmark = needs_promtool


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_rules_say_what_numpy_says(seed: int) -> None:
    """Change points, jitter, CV, z and culprits of one random job."""
    for concerns, part in rules_differential.parts_of(seed).items():
        assert part.asked
        assert rules_differential.compare(concerns, [part]) == ""


def test_a_difference_in_the_eighth_digit_is_seen() -> None:
    """The comparison can fail."""
    part = rules_differential.parts_of(1)[rules_differential.L2_RULES]
    at = part.asked[0][1]
    part.asked.clear()
    ranks = f"job:argus_ranks:count{{{part.job}}}"
    part.same(ranks, at, part.history.ranks * (1 + 2e-9))
    assert "FAILED" in rules_differential.compare(rules_differential.L2_RULES, [part])
    part.asked.clear()
    part.same(ranks, at, part.history.ranks * (1 + 2e-10))
    assert rules_differential.compare(rules_differential.L2_RULES, [part]) == ""
