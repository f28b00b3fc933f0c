"""A few scenarios through the whole stack: `argus-simulator score --live`."""

from __future__ import annotations

import json

import pytest

from argus_simulator.cli import main
from argus_simulator.score.suites import SMOKE

pytestmark = pytest.mark.e2e


def test_the_smoke_suite_is_played_and_judged(capsys: pytest.CaptureFixture[str]):
    """Every fault of it is found, and its ranks are named.

    How soon, and what it costs, is measured too. Who else is named, and the controls, are the business of
    `bench.verify` and of docs/fault-coverage.md.
    """
    status = main(["score", "--live", "--suite", "smoke", "--seed", "1", "--json"])
    score = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    print(json.dumps(score["rows"], indent=1))
    assert status == 0
    assert {row["row"] for row in score["rows"]} == {name.rpartition("/")[2] for name, _ in SMOKE}
    assert (score["detection"], score["recall"]) == (1, 1)
    assert score["first_right_name_p50_s"] > 0
    assert score["cost_error_p50"] is not None
