"""nvidia-resiliency-ext's scores, by their definition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench.l3_cells import METHODS, compared
from bench.l3_tables import pair_triples
from bench.l3_varying import Varying
from bench.nvrx import Nvrx, medians

from argus_l3_worker.triples import RoleTriples, Window
from frameworks.measured import PACKAGES


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


def reports(seed: int, ranks: int) -> Iterator[RoleTriples]:
    """Kernels of one and two modes near the threshold; rank 0 lacks one of them, and NCCL runs on all."""
    rng = np.random.default_rng(seed)
    chips = rng.uniform(1.0, 1.5, ranks)
    for _ in range(6):
        pairs = []
        for kernel in ("gemm", "flash_fwd", "only_some", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"):
            first = 1 if kernel == "only_some" else 0
            base = chips[first:] * rng.uniform(0.8, 1.3, ranks - first) * 1e-3
            modes = [[(s, 1.05 * s, float(rng.integers(50, 400))), (4 * s, 4.2 * s, 100.0)] for s in base]
            pairs.append(pair_triples(kernel, "compute0", list(enumerate(modes, first))))
        names = tuple(map(str, range(ranks)))
        yield RoleTriples("job", "a", Window(64, 64), names, tuple(pairs), np.full(ranks, np.nan))


def summaries(role: RoleTriples) -> list[dict[str, tuple[float, float, float]]]:
    """What each rank's process would have measured: median, mean and number of launches by kernel."""
    by_rank: list[dict[str, tuple[float, float, float]]] = [{} for _ in role.ranks]
    for pair in role.pairs:
        for rank, median, seconds, events in zip(
            pair.ranks.tolist(), medians(pair), pair.seconds, pair.events, strict=True
        ):
            by_rank[rank][pair.kernel] = float(median), float(seconds / events), float(events)
    return by_rank


@pytest.mark.skipif(
    not (PACKAGES / "nvidia_resiliency_ext").exists(),
    reason="nvidia-resiliency-ext is absent: `make frameworks` has it for Python 3.11 and 3.12 on x86-64",
)
def test_the_real_one_calls_the_same_ranks_stragglers(tmp_path: Path) -> None:
    """nvidia-resiliency-ext's own reports, of four processes that meet on gloo."""
    ranks = 4
    played = list(reports(3, ranks))
    (tmp_path / "summaries.json").write_text(json.dumps([summaries(one) for one in played]))
    program = [sys.executable, str(Path(__file__).with_name("nvrx_rank.py"))]
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    processes = [
        subprocess.Popen([*program, str(rank), str(ranks), str(tmp_path)], env=environment)
        for rank in range(ranks)
    ]
    try:
        assert [process.wait(120.0) for process in processes] == [0] * ranks
    finally:
        for process in processes:
            process.kill()
    real = json.loads((tmp_path / "stragglers.json").read_text())
    job = Nvrx()
    assert [sorted(map(int, job.stragglers([one]))) for one in played] == real
    assert any(real) and not all(len(one) == ranks for one in real)


@pytest.mark.slow
def test_methods_are_compared_on_one_fleet() -> None:
    """64 GPUs of one model: both find x1.5, and ours accuses none of the healthy."""
    assert METHODS == ("modes", "w1-iqr", "eroica", "nvrx")
    found = compared(Varying(ranks=64, models=False), (1.05, 1.5), 0, ("modes", "nvrx"), lambda _: None)
    assert found["modes"].accused == 0 < found["nvrx"].accused
    assert found["modes"].found == {1.05: 1.0, 1.5: 1.0}
    assert found["nvrx"].found[1.5] == 1.0
