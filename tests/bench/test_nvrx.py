"""nvidia-resiliency-ext's scores, by their definition."""

from __future__ import annotations

import numpy as np
import pytest
from bench.l3_cells import METHODS, compared
from bench.l3_tables import pair_triples
from bench.l3_varying import Varying
from bench.nvrx import Nvrx, medians

from argus_l3_worker.triples import RoleTriples, Window


def role(name: str, *seconds: float) -> RoleTriples:
    """One kernel; ranks are named by role and place."""
    pair = pair_triples("gemm", "compute0", [(i, [(s, 1.05 * s, 200.0)]) for i, s in enumerate(seconds)])
    ranks = tuple(f"{name}{place}" for place in range(len(seconds)))
    return RoleTriples("job", name, Window(64, 64), ranks, (pair,), np.full(len(seconds), np.nan))


def test_median_of_two_modes_lies_in_the_larger() -> None:
    """Three quarters at 1 ms: the middle launch is the upper sixth of those."""
    (seconds,) = medians(pair_triples("k", "s", [(0, [(1e-3, 1.05e-3, 300.0), (1e-2, 1.05e-2, 100.0)])]))
    assert 1e-3 < seconds < 1.03e-3


def test_a_rank_under_three_quarters_of_the_fastest_is_a_straggler() -> None:
    """1 / 1.32 is above, 1 / 1.35 below."""
    assert Nvrx().stragglers([role("a", 1e-3, 1e-3, 1.32e-3, 1.35e-3)]) == {"a3"}


def test_it_knows_no_roles() -> None:
    """A slower model of GPUs is compared with the faster one."""
    assert Nvrx().stragglers([role("a", 1e-3, 1e-3), role("b", 1.4e-3, 1.4e-3)]) == {"b0", "b1"}


def test_a_rank_is_held_against_its_own_best_until_the_job_restarts() -> None:
    """All ranks become slower alike."""
    job = Nvrx()
    assert job.stragglers([role("a", 1e-3, 1e-3)]) == set()
    assert job.stragglers([role("a", 1.4e-3, 1.4e-3)]) == {"a0", "a1"}
    job.restart()
    assert job.stragglers([role("a", 1.4e-3, 1.4e-3)]) == set()


@pytest.mark.slow
def test_methods_are_compared_on_one_fleet() -> None:
    """64 GPUs of one model: both find x1.5, and ours accuses none of the healthy."""
    assert METHODS == ("modes", "w1-iqr", "eroica", "nvrx")
    found = compared(Varying(ranks=64, models=False), (1.05, 1.5), 0, ("modes", "nvrx"), lambda _: None)
    assert found["modes"].accused == 0 < found["nvrx"].accused
    assert found["modes"].found == {1.05: 1.0, 1.5: 1.0}
    assert found["nvrx"].found[1.5] == 1.0
