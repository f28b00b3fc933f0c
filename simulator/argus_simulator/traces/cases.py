"""Seeded timelines of 8 ranks with a known cause, shapes of ARGUS cases 2 to 5 and healthy ones among them.

A fault that costs under 3 % of the time (measured against the same timeline without it) is made stronger, as
nobody looks for what nobody feels; after a few attempts the case is left out by raising `TooWeak`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.traces.encode import clocks_of, encode
from argus_simulator.traces.faults import (
    Fault,
    Pause,
    PauseKind,
    SlowData,
    SlowKernels,
    SlowLaunch,
    SlowLink,
    Truth,
)
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.machine import Machine, Noise, RankTimeline
from argus_simulator.traces.program import Work

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
    """A job and how its times vary."""

    layout: Layout
    work: Work
    noise: Noise
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


def _setting(random: np.random.Generator, layouts: Sequence[Layout] = _LAYOUTS) -> Setting:
    layout = layouts[int(random.integers(len(layouts)))]
    work = Work(
        microbatches=int(random.choice([4, 6, 8])) if layout.pp > 1 else int(random.choice([1, 2, 4])),
        layers=int(random.choice([2, 3])),
        last_stage_factor=float(random.choice([1.0, 1.0, 1.3])),
        attention=2.2e-3 * float(random.uniform(0.6, 1.6)),
        gemm=1.4e-3 * float(random.uniform(0.6, 1.6)),
    )
    noise = Noise(
        kernel_cv=float(random.uniform(0.01, 0.06)),
        shape_sigma=float(random.choice([0.0, 0.0, 0.2])),
    )
    return Setting(layout, work, noise, int(random.integers(5, 9)))


def _rank(random: np.random.Generator, setting: Setting) -> int:
    return int(random.integers(setting.layout.ranks))


def _some_steps(random: np.random.Generator, setting: Setting) -> frozenset[int] | None:
    """All steps, or from some step on: at least half."""
    if random.random() < 0.5:
        return None
    return frozenset(range(int(random.integers(0, setting.steps // 2 + 1)), setting.steps))


def _compute(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    factor = 1 + float(random.uniform(0.25, 1.5)) * strength
    pattern = str(random.choice(["*", "*gemm*", "*flash*"]))
    fault = SlowKernels(frozenset((rank,)), factor, pattern, steps=_some_steps(random, setting))
    return _Plan(setting, (fault,), Truth(("gpu-compute",), frozenset((rank,))))


def _late_launch(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    fault: Fault
    if random.random() < 0.5:
        fault = SlowLaunch(rank, 150 * float(random.uniform(1, 3)) * strength, _some_steps(random, setting))
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
) -> tuple[Pause, ...]:
    count = int(random.integers(1, 4))
    steps = random.choice(setting.steps, size=min(count, setting.steps), replace=False)
    return tuple(
        Pause(
            rank, int(step), float(random.uniform(0.0, 0.7)), float(random.uniform(0.1, 0.4)) * strength, kind
        )
        for step in steps
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
    fault = SlowLink(group, factor, _some_steps(random, setting))
    return _Plan(setting, (fault,), Truth(("link-slow",), frozenset(layout.members(group, kind)), group))


def _data(random: np.random.Generator, strength: float) -> _Plan:
    setting = _setting(random)
    rank = _rank(random, setting)
    fault = SlowData(rank, float(random.uniform(0.05, 0.2)) * strength, _some_steps(random, setting))
    return _Plan(setting, (fault,), Truth(("data-input",), frozenset((rank,))))


def _case_2(random: np.random.Generator, strength: float) -> _Plan:
    """One of the EDP groups has a slow link from the first step on; the others wait in the all-reduce."""
    setting = replace(_setting(random, (Layout(8, ep=4),)), steps=6)
    group = f"edp:pp0.tp0.ep{random.integers(4)}"
    members = setting.layout.members(group, "edp")
    return _Plan(
        setting, (SlowLink(group, 5.0 * strength),), Truth(("link-slow",), frozenset(members), group)
    )


def _case_3(random: np.random.Generator, strength: float) -> _Plan:
    """Backward of a rank of the last stage takes 173 instead of 92 ms; the sync masks it."""
    setting = _setting(random, (Layout(2, 1, 4), Layout(4, 1, 2), Layout(2, 2, 2)))
    noise = replace(setting.noise, shape_sigma=0.2)
    setting = replace(setting, noise=noise, steps=8, work=replace(setting.work, microbatches=8))
    layout = setting.layout
    last = [rank for rank in range(layout.ranks) if layout.place(rank)["pp"] == layout.pp - 1]
    rank = int(random.choice(last))
    fault = SlowKernels(frozenset((rank,)), 1.9 * strength, phases="backward")
    return _Plan(setting, (fault,), Truth(("gpu-compute",), frozenset((rank,))))


def _case_4(random: np.random.Generator, strength: float) -> _Plan:
    """A kernel is compiled in one backward microbatch: the host blocks for 40 times its usual length."""
    setting = _setting(random, (Layout(2, 1, 4), Layout(4, 1, 2)))
    rank = _rank(random, setting)
    kind: PauseKind = "compile" if random.random() < 0.5 else "silent"
    block = 40 * 2 * setting.work.layers * (setting.work.attention + 2.6 * setting.work.gemm)
    pause = Pause(
        rank, int(random.integers(setting.steps)), float(random.uniform(0.2, 0.6)), block * strength, kind
    )
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
    return _Plan(
        setting, (SlowKernels(slow, 5.7 * strength, "*grouped_gemm*"),), Truth(("gpu-compute",), slow)
    )


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
    return Machine(setting.layout, setting.work, setting.noise, faults, setting.steps, seed).run()


def _length(timelines: Sequence[RankTimeline]) -> float:
    return max(span.end for timeline in timelines for span in timeline.host)


def _case(kind: str, seed: int, plan: _Plan, timelines: Sequence[RankTimeline], cost: float) -> Case:
    layout = plan.setting.layout
    clocks = clocks_of(layout, seed)
    files = tuple(encode(layout, timeline, clocks[layout.host(timeline.rank)]) for timeline in timelines)
    return Case(kind, seed, plan.truth, files, cost)
