"""Seeded timelines of 8 ranks with a known cause, shapes of ARGUS cases 2 to 5 and healthy ones among them.

A fault that costs under 3 % of the time (measured against the same timeline without it) is made stronger, as
nobody looks for what nobody feels; after a few attempts the case is left out by raising `TooWeak`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from argus_simulator.engine.faults import Fault, PauseKind
from argus_simulator.engine.job import JobShape
from argus_simulator.engine.settings import NoiseSettings
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.traces.encode import clocks_of, encode
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import UNIT_S, RankTimeline, play, usual_shape
from argus_simulator.traces.truth import Truth

_LEAST_COST: Final = 0.03
_ATTEMPTS: Final = 5
_LAYOUTS: Final = (
    Layout(8),
    Layout(4, 2),
    Layout(2, 2, 2),
    Layout(4, 1, 2),
    Layout(2, 1, 4),
    Layout(8, ep=4),
)


class TooWeak(ArgusSimulatorError):
    """The fault does not cost enough to be looked for, however strong it is made."""


@dataclass(frozen=True)
class Setting:
    """A job and what is no fault of it: `healthy` holds a heavier last stage."""

    layout: Layout
    shape: JobShape
    healthy: tuple[Fault, ...]
    steps: int


@dataclass(frozen=True)
class Case:
    """One timeline: the files of all ranks, and beside them what is true.

    Attributes:
        cost_ratio: how much longer the job took than without the fault.
    """

    kind: str
    seed: int
    truth: Truth
    files: tuple[bytes, ...]
    cost_ratio: float


@dataclass(frozen=True)
class _Plan:
    setting: Setting
    faults: tuple[Fault, ...]
    truth: Truth


Planner = Callable[[np.random.Generator, float], _Plan]


def _setting(
    random: np.random.Generator, layouts: Sequence[Layout] = _LAYOUTS, *, microbatches: int = 0,
    steps: int = 0, shape_cv: float = -1.0,
) -> Setting:  # fmt: skip
    layout = layouts[int(random.integers(len(layouts)))]
    usual = int(random.choice([4, 6, 8])) if layout.pp > 1 else int(random.choice([1, 2, 4]))
    layers = int(random.choice([2, 3]))
    factor = float(random.choice([1.0, 1.0, 1.3]))
    unit_s = UNIT_S * float(random.uniform(0.6, 1.6))
    kernel_cv, sizes = float(random.uniform(0.01, 0.06)), float(random.choice([0.0, 0.0, 0.2]))
    noise = NoiseSettings(kernel_cv=kernel_cv, shape_cv=sizes if shape_cv < 0 else shape_cv)
    shape = usual_shape(layout, microbatches or usual, layers, unit_s, noise)
    last = tuple(rank for rank in range(layout.ranks) if layout.place(rank)["pp"] == layout.pp - 1)
    heavier = (Fault("kernels", last, factor=factor, phases="[am]*"),) if factor > 1 else ()
    return Setting(layout, shape, heavier, steps or int(random.integers(5, 9)))


def _rank(random: np.random.Generator, setting: Setting) -> int:
    return int(random.integers(setting.layout.ranks))


def _onset(random: np.random.Generator, setting: Setting) -> int:
    """The first step, or a later one that leaves at least half."""
    if random.random() < 0.5:
        return 0
    return int(random.integers(0, setting.steps // 2 + 1))


def _compute(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    factor = 1 + float(random.uniform(0.25, 1.5)) * strength
    pattern = str(random.choice(["*", "*gemm*", "*flash*"]))
    fault = Fault("kernels", (rank,), factor=factor, kernels=pattern, onset_step=_onset(random, setting))
    return _Plan(setting, (fault,), Truth(("gpu-compute",), frozenset((rank,))))


def _late_launch(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    if random.random() < 0.5:
        factor = 15 * float(random.uniform(1, 3)) * strength
        fault = Fault("launch", (rank,), factor=factor, onset_step=_onset(random, setting))
        return _Plan(setting, (fault,), Truth(("host-cpu",), frozenset((rank,))))
    return _Plan(
        setting, _pauses(random, setting, rank, "silent", strength), Truth(("host-cpu",), frozenset((rank,)))
    )


def _garbage(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    faults = _pauses(random, setting, rank, "gc", strength)
    return _Plan(setting, faults, Truth(("host-gc",), frozenset((rank,))))


def _pauses(
    random: np.random.Generator, setting: Setting, rank: int, kind: PauseKind, strength: float
) -> tuple[Fault, ...]:
    count = int(random.integers(1, 4))
    steps = random.choice(setting.steps, size=min(count, setting.steps), replace=False)
    return tuple(
        _pause(
            rank, int(step), float(random.uniform(0.0, 0.7)), float(random.uniform(0.1, 0.4)) * strength, kind
        )
        for step in steps
    )


def _pause(rank: int, step: int, position: float, seconds: float, kind: PauseKind) -> Fault:
    return Fault(
        "pause", (rank,), seconds=seconds, kind=kind, position=position, onset_step=step, end_step=step + 1
    )


def _link(random: np.random.Generator, strength: float) -> _Plan:
    # At least two groups of the kind: without a peer group no trace can tell slow from usual.
    setting = _setting(
        random, (Layout(4, 2), Layout(2, 2, 2), Layout(2, 1, 4), Layout(8, ep=4), Layout(8, ep=2))
    )
    layout = setting.layout
    kinds = ["edp", "ep"] if layout.ep > 1 else (["tp", "dp"] if layout.tp > 1 else ["dp"])
    kind = str(random.choice(kinds))
    group = layout.group(_rank(random, setting), kind)
    factor = 1 + float(random.uniform(2, 6)) * strength
    return _slow_link(setting, group, factor, _onset(random, setting))


def _slow_link(setting: Setting, group: str, factor: float, onset: int = 0) -> _Plan:
    dimension: Any = group.partition(":")[0]
    members = setting.layout.members(group, dimension)
    fault = Fault("link", members, dimension=dimension, factor=factor, onset_step=onset)
    return _Plan(setting, (fault,), Truth(("link-slow",), frozenset(members), group))


def _data(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    seconds = float(random.uniform(0.05, 0.2)) * strength
    fault = Fault("data", (rank,), seconds=seconds, onset_step=_onset(random, setting))
    return _Plan(setting, (fault,), Truth(("data-input",), frozenset((rank,))))


def _case_2(random: np.random.Generator, strength: float) -> _Plan:
    """One of the EDP groups has a slow link from the first step on; the others wait in the all-reduce."""
    setting = _setting(random, (Layout(8, ep=4),), steps=6)
    return _slow_link(setting, f"edp:pp0.tp0.ep{random.integers(4)}", 5.0 * strength)


def _case_3(random: np.random.Generator, strength: float) -> _Plan:
    """Backward of a rank of the last stage takes 173 instead of 92 ms; the sync masks it."""
    layouts = (Layout(2, 1, 4), Layout(4, 1, 2), Layout(2, 2, 2))
    setting = _setting(random, layouts, microbatches=8, steps=8, shape_cv=0.2)
    layout = setting.layout
    last = [rank for rank in range(layout.ranks) if layout.place(rank)["pp"] == layout.pp - 1]
    rank = int(random.choice(last))
    fault = Fault("kernels", (rank,), factor=1.9 * strength, phases="*-backward")
    return _Plan(setting, (fault,), Truth(("gpu-compute",), frozenset((rank,))))


def _case_4(random: np.random.Generator, strength: float) -> _Plan:
    """A kernel is compiled in one backward microbatch: the host blocks for 40 times its usual length."""
    setting = _setting(random, (Layout(2, 1, 4), Layout(4, 1, 2)))
    rank = _rank(random, setting)
    kind: PauseKind = "compile" if random.random() < 0.5 else "silent"
    model = setting.shape.model
    microbatch = setting.shape.step_seconds / (model.microbatches + setting.layout.pp) * 2 / 3
    at = int(random.integers(setting.steps)), float(random.uniform(0.2, 0.6))
    pause = _pause(rank, *at, 40 * microbatch * strength, kind)
    cause = "host-jit" if kind == "compile" else "host-cpu"
    return _Plan(setting, (pause,), Truth((cause,), frozenset((rank,))))


def _case_5(random: np.random.Generator, strength: float) -> _Plan:
    """The experts of half an EP group take 5.7 times as long at one stage; their mates wait."""
    setting = _setting(random, (Layout(4, 1, 2, 4), Layout(8, 1, 1, 4)))
    layout = setting.layout
    groups = sorted({layout.group(rank, "ep") for rank in range(layout.ranks)})
    members = layout.members(str(random.choice(groups)), "ep")
    first = int(random.integers(2)) * 2
    slow = frozenset(members[first : first + 2])
    fault = Fault("kernels", tuple(sorted(slow)), factor=5.7 * strength, kernels="*grouped_gemm*")
    return _Plan(setting, (fault,), Truth(("gpu-compute",), slow))


def _healthy(random: np.random.Generator, _: float) -> _Plan:
    """Everything that is no fault: shapes, a heavier last stage, small collections, skewed clocks."""
    return _Plan(_setting(random), (), Truth())


KINDS: Final[dict[str, Planner]] = {
    "compute": _compute,
    "late-launch": _late_launch,
    "link": _link,
    "gc": _garbage,
    "data": _data,
    "argus-case-2": _case_2,
    "argus-case-3": _case_3,
    "argus-case-4": _case_4,
    "argus-case-5": _case_5,
    "healthy": _healthy,
}
"""Kinds of cases, by name."""


def make(kind: str, seed: int) -> Case:
    """The case of a kind and seed; equal arguments give equal bytes.

    Raises:
        TooWeak: no strength of the fault costs enough.
    """
    for attempt in range(_ATTEMPTS):
        random = np.random.default_rng([seed, sorted(KINDS).index(kind)])
        plan = KINDS[kind](random, 1.5**attempt)
        timelines = _run(plan.setting, plan.faults, seed)
        if plan.truth.healthy:
            return _case(kind, seed, plan, timelines, 0.0)
        cost = _length(timelines) / _length(_run(plan.setting, (), seed)) - 1
        if cost >= _LEAST_COST:
            return _case(kind, seed, plan, timelines, cost)
    raise TooWeak(f"{kind} with seed {seed} costs {cost:.1%} at most")


def _run(setting: Setting, faults: Sequence[Fault], seed: int) -> list[RankTimeline]:
    return play(setting.shape, (*setting.healthy, *faults), setting.steps, seed)


def _length(timelines: Sequence[RankTimeline]) -> float:
    return max(span.end for timeline in timelines for span in timeline.host)


def _case(kind: str, seed: int, plan: _Plan, timelines: Sequence[RankTimeline], cost: float) -> Case:
    layout = plan.setting.layout
    clocks = clocks_of(layout, seed)
    files = tuple(encode(layout, timeline, clocks[layout.host(timeline.rank)]) for timeline in timelines)
    return Case(kind, seed, plan.truth, files, cost)
