"""`python -m bench.modes` ends with the JSON line that it promises."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from bench.modes import Gate


@pytest.mark.slow
def test_last_line_is_json_with_exactly_the_promised_keys():
    """One window a design, twice: the quality of a seed is a fact, whatever the machine does meanwhile."""
    command = [sys.executable, "-m", "bench.modes", "--json", "--repeats", "1", "--seed", "3"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    results = [json.loads(done.stdout.splitlines()[-1]) for done in (first, second)]
    speed, quality = ["rank_window_ms", "events_per_s"], ["mode_f1", "exact_k", "p25_p95_within_2pct"]
    assert list(results[0]) == speed + quality
    assert [results[0][key] for key in quality] == [results[1][key] for key in quality]
    assert all(results[0][key] > 0 for key in speed)


@pytest.mark.parametrize(("measured", "kept"), [(24.9, True), (25.0, True), (25.1, False)])
def test_a_gate_has_a_boundary(measured, kept):
    """At the limit is kept, beyond it not, in either direction."""
    assert Gate("ms", measured, 25.0, at_most=True).kept is kept
    assert Gate("share", -measured, -25.0, at_most=False).kept is kept
