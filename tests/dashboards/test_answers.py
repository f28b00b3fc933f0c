"""Every query of every dashboard against a real Prometheus; with 1,024 ranks: bench.dashboards."""

from __future__ import annotations

import shutil

import pytest
from bench.dashboard_stage import Size

from bench import dashboards

SIZE = Size(ranks=64, seconds=660.0, every=28.0, kernel_pairs=8, evaluate_every=56.0, cycle_every=112.0)
LINES = 2500
"""No reader sees more; the maps of ranks have 2,048 cells."""

NEEDS_MORE = {
    ("argus-job", "Slower since"),
    ("argus-job", "Slower by"),
    ("argus-job", "Whose fault it is: links, sets, or the whole job"),
    ("argus-job", "annotation Slowdowns"),
    ("argus-rank", "annotation Slowdowns"),
    ("argus-kernel", "annotation Slowdowns"),
    ("argus-kernel", "Groups that L3 tells apart"),
    *((board, "annotation Alerts") for board in ("argus-job", "argus-jobs", "argus-rank", "argus-kernel")),
}
"""An alert of a rank needs more than four minutes of evaluations that are a minute apart. A slowdown and a
slow link need more than eleven minutes, two clusters more than four ranks of a role."""


@pytest.mark.servers
def test_every_query_is_answered() -> None:
    """None is refused, none returns a line a rank, and panels of what there is have data."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is absent: apt-get install prometheus")

    asked = dashboards.run(SIZE, lambda _: None)

    assert dashboards.refused(asked) == []
    assert max(len(one.answer.result) for one in asked) < LINES
    assert set(dashboards.empty(asked)) <= NEEDS_MORE
