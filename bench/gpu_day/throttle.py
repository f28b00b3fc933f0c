"""A real slow GPU among peers: does L3 name it?

Three runs of one training are recorded: twice on a free GPU, once while another stream competes for it
(and with GPU_DAY_CLOCKS=MEMORY,SM in the environment, at those application clocks instead). Seven ranks
are resampled from the first run, the eighth from the third, and the worker's own judgement decides; with
the second run as eighth nobody is to be accused. One GPU cannot be eight: peers share its spread, which
real ones do not.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from argus_core.modes import ModeConfig, find_modes
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE, RankRecording
from argus_exporter.replay.resample import resample
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import History, culprits, decide
from argus_l3_worker.triples import Floats, RoleTriples, Window
from bench.gpu_day.device import SLOWER
from bench.gpu_day.observe import Observed, run_program
from bench.gpu_day.program import COMPETING
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day
from bench.l3_tables import judge_role, pair_triples

RANKS, SICK, TOP_PAIRS = 8, 3, 20
STEPS = 32
"""Of a window."""
LEAST_SLOWDOWN = 1.07
"""What the worker claims to find in three windows: docs/status.md. Less than it is no slow GPU."""
CONFIG = JudgeConfig()


def run(day: Day) -> dict[str, Any]:
    free = _recording(day, _spread(day, 1.0))
    again = _recording(day, _spread(day, 1.0))
    with _slowed(day) as (how, variables):
        slow = _recording(day, variables)
    slowdown = _slowdown(free, slow)
    day.reach(f"slowed by {how}: kernels x{slowdown:.3f}")
    if slowdown < LEAST_SLOWDOWN:
        raise NotRun(f"{how} slowed kernels by x{slowdown:.3f} only: no slow GPU to find")
    accused = {"slow": accusations(free, slow), "free": accusations(free, again)}
    return {
        "how": how,
        "slowdown": slowdown,
        "kernels_a_step": len(free.kernels) // max(int(free.kernel_steps.max()) + 1, 1),
        "slow_gpu_found": int(accused["slow"] == [str(SICK)]),
        "healthy_accused": len(accused["free"]),
        "accused": accused,
    }


def accusations(peers: RankRecording, own: RankRecording) -> list[str]:
    """Ranks that the worker accuses after its windows, where rank SICK is resampled from `own`."""
    history = History(CONFIG.windows, CONFIG.windows_needed)
    for window in range(CONFIG.windows):
        fleet = resample([peers], ranks=RANKS, steps=STEPS, seed=1, draw=window)
        fleet[SICK] = resample([own], ranks=1, steps=STEPS, seed=2, draw=window)[0]
        judged = judge_role(_role([_durations(rank) for rank in fleet], window), CONFIG)
        if not isinstance(judged, RoleJudgement):
            raise RuntimeError(f"window {window} was not judged: {judged}")
        history.add(judged)
    return culprits(decide("gpu-day", [("all", history)]))


def _role(by_rank: list[dict[tuple[str, str], Floats]], window: int) -> RoleTriples:
    """What eight exporters would publish: the modes of the pairs with the most time."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for events in by_rank:
        for key, values in events.items():
            total[key] += float(values.sum())
    pairs = []
    for key in sorted(total, key=lambda key: -total[key])[:TOP_PAIRS]:
        modes = []
        for rank, events in enumerate(by_rank):
            found = find_modes(events[key], ModeConfig()).modes if key in events else ()
            if found:
                modes.append((rank, [(mode.p50, mode.p99, float(mode.count)) for mode in found]))
        if modes:
            pairs.append(pair_triples(*key, modes))
    ranks = tuple(str(rank) for rank in range(len(by_rank)))
    unknown = np.full(len(ranks), np.nan)
    return RoleTriples("gpu-day", "all", Window(STEPS * (window + 1), STEPS), ranks, tuple(pairs), unknown)


def _durations(recording: RankRecording) -> dict[tuple[str, str], Floats]:
    """Seconds by kernel and stream."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in recording.kernels:
        key = recording.texts[int(row["name_id"])], str(int(row["stream"]))
        found[key].append(int(row["duration_ns"]) / 1e9)
    return {key: np.array(values) for key, values in found.items()}


def _recording(day: Day, more: dict[str, str]) -> RankRecording:
    return recording_of(run_program(day, "load", **more))


def recording_of(seen: Observed) -> RankRecording:
    """The part `load` as a recording; its steps are alike, so a step is its share of the kernels."""
    kernels, names = seen.kernels("load"), seen.connection.names
    streams, counts = np.unique(kernels["stream"], return_counts=True)
    kernels = kernels[kernels["stream"] == streams[counts.argmax()]]  # not those that compete with them
    steps = int(seen.told["load_steps"])
    if len(kernels) % steps:
        raise RuntimeError(f"{len(kernels)} kernels in {steps} equal steps: some are missing")
    return RankRecording(
        source=Path("gpu-day"),
        identity=Identity("gpu-day", 0, world_size=1),
        texts=tuple(names.get(index, "") for index in range(max(names) + 1)),
        kernels=kernels,
        kernel_steps=np.arange(len(kernels), dtype=np.int64) // (len(kernels) // steps),
        spans=np.empty(0, SPAN_DTYPE),
        iterations=np.empty(0, ITERATION_DTYPE),
    )


def _slowdown(free: RankRecording, slow: RankRecording) -> float:
    """Of all kernels, weighted by their time: total over total of the pairs that both have."""
    ours, theirs = _durations(slow), _durations(free)
    common = [key for key in theirs if key in ours]
    weights = [float(theirs[key].sum()) for key in common]
    ratios = [float(median(ours[key])) / float(median(theirs[key])) for key in common]
    return float(np.average(ratios, weights=weights))


def _spread(day: Day, factor: float) -> dict[str, str]:
    """A stand-in is as slow as it is told."""
    return {SLOWER: str(factor)} if day.dry else {}


@contextlib.contextmanager
def _slowed(day: Day) -> Iterator[tuple[str, dict[str, str]]]:
    """The GPU is slower while this lasts: by what, and what the program is told.

    Another process does not make it so: the two take turns, and kernels last as long (x1.06 on an H200).
    """
    clocks = os.environ.get("GPU_DAY_CLOCKS")
    if day.dry:
        yield "a stand-in that is told to be", _spread(day, 1.3)
    elif clocks:
        subprocess.run(["nvidia-smi", "-ac", clocks], check=True)
        try:
            yield f"application clocks {clocks}", {}
        finally:
            subprocess.run(["nvidia-smi", "-rac"], check=True)
    else:
        yield "a competing stream", {COMPETING: "1"}
