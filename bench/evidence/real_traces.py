"""What kernels of real GPUs do when nothing is wrong: on traces that others recorded, where they are here.

ARGUS_TRACES, or shared/traces beside the repository, with the folders resnet50_kineto (four runs of one job
on a V100) and dlrm_kineto (a step of eight ranks).
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from argus_core.kernel_names import is_collective, kernel_id
from argus_core.modes import ModeConfig, find_modes
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.wasserstein import upper_fence
from argus_l3_worker.triples import Floats, RoleTriples, Window
from bench.evidence.table import Table
from bench.l3_tables import judge_role, pair_triples

_TRACES = Path(__file__).parents[3] / "shared" / "traces"
_CLOCK = ModeConfig(tick_seconds=1e-6)
_SEEDS, _REPEATS, _LEAST_EVENTS = 20, 5, 20
Durations = dict[tuple[str, str], Floats]


def tables(seed: int) -> Iterator[Table]:
    folder = Path(os.environ.get("ARGUS_TRACES", _TRACES))
    runs, ranks = sorted(folder.glob("resnet50_kineto/*.gz")), sorted(folder.glob("dlrm_kineto/*.gz"))
    if not runs or not ranks:
        print(f"real-traces: left out, {folder} has no traces: set ARGUS_TRACES", file=sys.stderr)
        return
    trace = durations(runs[0])
    yield shape(trace)
    yield flagged_in_a_resampled_trace(trace, seed)
    yield between_ranks([durations(rank) for rank in ranks])


def durations(trace: Path) -> Durations:
    """Seconds by (kernel, stream)."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        category = str(event.get("cat", "")).lower()
        if event.get("ph") == "X" and category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            stream = str(event.get("args", {}).get("stream", event.get("tid")))
            found[kernel_id(event["name"]), stream].append(float(event["dur"]) * 1e-6)
    return {pair: np.array(values) for pair, values in found.items()}


def shape(trace: Durations) -> Table:
    many = [values for values in trace.values() if values.size >= 8]
    modes = [find_modes(values, _CLOCK).modes for values in many]
    total = np.sort([values.sum() for values in trace.values()])[::-1]
    row = {
        "pairs": float(len(trace)),
        "top 20's time": float(total[:20].sum() / total.sum()),
        "of several modes": float(np.mean([len(found) > 1 for found in modes])),
    }
    return Table("A ResNet-50 job of six steps", {"one rank": row})


def flagged_in_a_resampled_trace(trace: Durations, seed: int) -> Table:
    """Ranks that draw from one trace with replacement: a kernel is flagged if any rank of it is."""
    rows = {}
    for ranks in (4, 8, 64):
        rng = np.random.default_rng([seed, ranks])
        flagged: dict[str, list[float]] = {"1.5 IQR": [], "3 IQR": [], "evidence": []}
        for _ in range(_SEEDS):
            for pair in _judged(trace, ranks, rng).pairs:
                for name, alpha in (("1.5 IQR", 1.5), ("3 IQR", 3.0)):
                    of_ranks = pair.w1.seconds if pair.w1 is not None else np.zeros(1)
                    flagged[name].append(float((of_ranks > upper_fence(of_ranks, alpha)).any()))
                flagged["evidence"].append(float((pair.evidence != 0.0).any()))
        rows[f"{ranks} ranks"] = {name: float(np.mean(each)) for name, each in flagged.items()}
    return Table("Resampled from one real trace: share of kernels with a rank that is flagged", rows)


def _judged(trace: Durations, ranks: int, rng: np.random.Generator) -> RoleJudgement:
    pairs = []
    for (kernel, stream), values in trace.items():
        if values.size * _REPEATS < _LEAST_EVENTS:
            continue
        of_ranks = [
            (rank, [(mode.p50, mode.p99, float(mode.count)) for mode in find_modes(drawn, _CLOCK).modes])
            for rank in range(ranks)
            for drawn in [rng.choice(values, values.size * _REPEATS)]
        ]
        pairs.append(pair_triples(kernel, stream, of_ranks))
    names = tuple(map(str, range(ranks)))
    nothing = np.full(ranks, np.nan)
    role = RoleTriples("trace", "all", Window(64, 64), names, tuple(pairs), nothing)
    judgement = judge_role(role, JudgeConfig())
    assert isinstance(judgement, RoleJudgement)
    return judgement


def between_ranks(ranks: list[Durations]) -> Table:
    """Time of a rank in each kind of kernel, largest over smallest, less one. One step: the loads differ."""
    rows = {}
    for name, collective in (("collectives", True), ("all others", False)):
        seconds = [
            sum(
                float(values.sum())
                for (kernel, _), values in rank.items()
                if is_collective(kernel) == collective
            )
            for rank in ranks
        ]
        rows[name] = {"largest over smallest - 1": max(seconds) / min(seconds) - 1.0}
    return Table("A DLRM job of eight ranks without a known fault: time a rank", rows)
