"""When training processes and exporters call an iteration overdue, and stalled: as the rules do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rjsonnet

from argus_core.overdue import overdue_after, stalled_after

JSONNET = Path(__file__).resolve().parents[2] / "jsonnet"


@pytest.mark.parametrize("usual_s", [0.01, 1.0, 20.0, 100.0, 3600.0])
def test_a_job_stalls_where_the_default_rules_say_so(usual_s: float) -> None:
    """And is overdue half-way there; of the least time at a tenth, as the demo and the lab have it."""
    knobs = "[c.stallFactor, c.stallMinSeconds, c.stallOutsideTrainSeconds]"
    source = f"local c = (import 'config.libsonnet')._config; {knobs}"
    factor, least, most = json.loads(rjsonnet.evaluate_snippet("rules", source, jpathdir=[str(JSONNET)]))
    assert stalled_after(usual_s) == min(max(factor * usual_s, least), most)
    assert overdue_after(usual_s) == min(max(factor * usual_s, least / 10), most) / 2


def test_where_nobody_knows_what_is_usual_it_is_as_outside_of_training() -> None:
    assert (stalled_after(0.0), overdue_after(0.0)) == (1800, 900)
