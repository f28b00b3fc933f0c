"""Rules over a past that is known, with values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from argus_simulator.fast_play.evaluate import Evaluator, Late
from argus_simulator.fast_play.rules import aligned, read_rules
from argus_simulator.fast_play.storage import Storage

pytestmark = pytest.mark.servers
BEGIN_MS = 1_700_000_010_000
"""A multiple of 15 s."""
RULES = [
    {"record": "double", "expr": "2 * scraped"},
    {"record": "chained", "expr": "double + 1"},
    {"record": "counted", "expr": "(counted offset 15s or vector(0)) + 1"},
    {"alert": "High", "expr": "double > 8", "for": "15s", "labels": {"severity": "page"}},
]


def played(folder: Path, late: Late) -> dict[str, dict[int, float]]:
    """Values of each recorded name, and of ALERTS, by evaluation from 0 to 7, which `scraped` counts."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "one", "interval": "15s", "rules": RULES}]}))
    times = BEGIN_MS + 15_000 * np.arange(8)
    with Storage(folder) as storage:
        # A scrape lies before the evaluation that reads it, whatever the engine.
        storage.write({(("__name__", "scraped"),): (times - 1000, np.arange(8.0))})
        evaluator = Evaluator(storage, read_rules([file], offset_ms=aligned), late)
        evaluator.advance(BEGIN_MS, BEGIN_MS + 8 * 15_000)
        assert evaluator.failures == {}
        asked = range(BEGIN_MS, BEGIN_MS + 8 * 15_000, 15_000)
        return {
            name: dict(zip(at.tolist(), values.tolist(), strict=True))
            for name in ("double", "chained", "counted", 'ALERTS{alertstate="firing"}')
            for at, values in storage.over(name, asked).values()
        }


def test_rules_see_what_the_rules_before_them_recorded(tmp_path: Path):
    """At once, as in Prometheus; `for: 15s` is over one evaluation after the first."""
    found = played(tmp_path, "none")
    assert found["double"] == {n: 2.0 * n for n in range(8)}
    assert found["chained"] == {n: 2.0 * n + 1 for n in range(8)}
    assert found["counted"] == {n: n + 1.0 for n in range(8)}
    assert found['ALERTS{alertstate="firing"}'] == {6: 1.0, 7: 1.0}


def test_a_late_engine_sees_them_one_evaluation_later(tmp_path: Path):
    """Scraped series are as fresh as ever, and a rule's own memory is not torn."""
    found = played(tmp_path, "all")
    assert found["double"] == {n: 2.0 * n for n in range(8)}
    assert found["chained"] == {n: 2.0 * n - 1 for n in range(1, 8)}
    assert found["counted"] == {n: n + 1.0 for n in range(8)}
    assert found['ALERTS{alertstate="firing"}'] == {7: 1.0}
