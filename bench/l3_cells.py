"""Cells of the quality bench: the shipped judge over a day of a healthy fleet, and GPUs that become slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, cast, get_args

import numpy as np

from argus_l3_worker.config import Config
from argus_l3_worker.job import Job, find
from argus_l3_worker.judge.config import JudgeConfig, Method
from argus_l3_worker.read.assemble import JobWindow
from argus_l3_worker.read.prometheus import Prometheus
from bench.l3_varying import SECONDS, Varying, VaryingFleet, WrittenShifts
from bench.nvrx import Nvrx

CHIPS: Final = (0.005, 0.01, 0.02, 0.03)
ROLE_SIZES: Final = (4, 8, 16, 80, 1_280)
# Of a run: when a change of work for all comes, the worker and the job restart, and GPUs change places.
EVENTS: Final = {"work": 0.3, "worker": 0.45, "job": 0.6, "move": 0.6}
_MOVED: Final = 0.02
_SICK_RANKS: Final = 1_280
_SICK: Final = 40
_BEFORE, _AFTER = 240, 120


NVRX: Final = "nvrx"
METHODS: Final = (*get_args(Method), NVRX)
_SHIPPED: Final = "modes"


@dataclass(frozen=True)
class Cell:
    """What a day of a healthy fleet came to."""

    chip: float
    role_size: int
    accused: int
    groups: int
    names: tuple[str, ...]


Accused = tuple[set[str], set[str]]
"""(ranks, groups); a rank's number is its first word."""


class _Judge(Protocol):
    def look(self, at: float, window: JobWindow) -> Accused: ...

    def restart(self, what: str) -> None: ...


class ShippedWorker:
    """The shipped worker and what it has written."""

    def __init__(self, method: Method) -> None:
        self._config = Config(judge=JudgeConfig(method=method))
        self._store = WrittenShifts()
        self._job = Job("bench")

    def restart(self, _what: str) -> None:
        """What it knew of the job is gone; what it wrote is not."""
        self._job = Job("bench")

    def look(self, at: float, window: JobWindow) -> Accused:
        found = find(window, self._config.judge)
        store = cast(Prometheus, self._store)
        asyncio.run(self._job.compare_with_past(store, at, found, self._config))
        self._job.take(window, found, self._config.judge)
        judged = self._job.judgements
        gpus = [(gpu, of.role) for of in judged for gpu in of.gpus]
        shifts = np.expm1([shift for of in judged for shift in of.rank_shift.tolist()]).tolist()
        self._store.write(at, {gpu: shift for gpu, shift in zip(gpus, shifts, strict=True) if shift == shift})
        groups = {f"{one.role} {one.kernel} {one.coordinate} {one.value}" for one in self._job.group_shifts}
        verdicts = (one for one in self._job.verdicts if one.verdict == "culprit")
        return {f"{one.rank} {one.kernel} {one.cause}" for one in verdicts}, groups


class _NvrxJob:
    """A job that reports at the end of each window."""

    def __init__(self) -> None:
        self._nvrx = Nvrx()

    def restart(self, what: str) -> None:
        if what == "job":
            self._nvrx.restart()

    def look(self, _at: float, window: JobWindow) -> Accused:
        return self._nvrx.stragglers(window.roles), set()


class _Played:
    """Judges beside one fleet: all of them see the same windows."""

    def __init__(self, fleet: VaryingFleet, methods: Sequence[str]) -> None:
        self.fleet = fleet
        self._at = 1e9
        self.judges: dict[str, _Judge] = {
            method: _NvrxJob() if method == NVRX else ShippedWorker(cast(Method, method))
            for method in methods
        }

    def window(self, slow: Mapping[int, float]) -> dict[str, Accused]:
        """Whom each judge accuses after the next window."""
        self._at += SECONDS
        window = self.fleet.window(slow)
        return {method: judge.look(self._at, window) for method, judge in self.judges.items()}

    def happens(self, event: str) -> None:
        if event == "work":
            self.fleet.change_work()
        elif event == "move":
            self.fleet.move(_MOVED)
        else:
            if event == "job":
                self.fleet.restart()
            for judge in self.judges.values():
                judge.restart(event)


def a_day(like: Varying, windows: int, seed: int, events: Sequence[str], say: Callable[[str], None]) -> Cell:
    """Nobody is ill: all who are accused are so wrongly.

    Args:
        events: of `work`, `worker`, `job` and `move`, those that come.
    """
    played = _Played(VaryingFleet(like, seed), (_SHIPPED,))
    due = {name: int(share * windows) for name, share in EVENTS.items() if name in events}
    accused: set[str] = set()
    groups: set[str] = set()
    for number in range(windows):
        for name, at in due.items():
            if at == number:
                played.happens(name)
        ranks, shifts = played.window({})[_SHIPPED]
        accused, groups = accused | ranks, groups | shifts
        say(f"chip {like.chip:.1%}, roles of {like.role_size}: window {number}, accused {len(accused)}")
    names = tuple(sorted(accused) + sorted(groups))
    return Cell(like.chip, like.role_size, len({one.split()[0] for one in accused}), len(groups), names)


def _sick(fleet: VaryingFleet, seed: int) -> list[int]:
    """GPUs that become slow, one in a role and in a quarter of the roles at most."""
    random = np.random.default_rng([seed, 1])
    places = random.choice(len(fleet.roles), min(_SICK, len(fleet.roles) // 4 or 1), replace=False)
    return [int(random.integers(fleet.roles[at].start, fleet.roles[at].stop)) for at in places.tolist()]


def found_share(like: Varying, factor: float, seed: int, say: Callable[[str], None]) -> float:
    """Share of GPUs that become `factor` times slower, one in a role, named within two hours."""
    fleet = VaryingFleet(replace(like, ranks=max(_SICK_RANKS, like.role_size)), seed)
    played, sick = _Played(fleet, (_SHIPPED,)), _sick(fleet, seed)
    named: set[str] = set()
    for number in range(_BEFORE + _AFTER):
        accused, _ = played.window(dict.fromkeys(sick, factor) if number >= _BEFORE else {})[_SHIPPED]
        if number >= _BEFORE:
            named |= {one.split()[0] for one in accused}
        say(f"x{factor}: window {number}, named {len(named & set(map(str, sick)))} of {len(sick)}")
    return len(named & set(map(str, sick))) / len(sick)


@dataclass(frozen=True)
class Compared:
    """One method in one cell: healthy GPUs and groups that it accuses, and the share that it finds by factor.

    Who was accused already before he became slow is not found.
    """

    accused: int
    groups: int
    found: Mapping[float, float]


def compared(
    like: Varying, factors: Sequence[float], seed: int, methods: Sequence[str], say: Callable[[str], None]
) -> dict[str, Compared]:
    """All methods on one fleet: four hours nobody is ill, then GPUs are slow by the factors for two."""
    fleet = VaryingFleet(like, seed)
    played, sick = _Played(fleet, methods), _sick(fleet, seed)
    factor_of = {gpu: factors[number % len(factors)] for number, gpu in enumerate(sick)}
    before: dict[str, Accused] = {method: (set(), set()) for method in methods}
    after: dict[str, Accused] = {method: (set(), set()) for method in methods}
    for number in range(_BEFORE + _AFTER):
        say(f"chip {like.chip:.1%}, roles of {like.role_size}: window {number} of {_BEFORE + _AFTER}")
        ill = number >= _BEFORE
        for method, (ranks, groups) in played.window(factor_of if ill else {}).items():
            of_ranks, of_groups = (after if ill else before)[method]
            of_ranks |= {one.split()[0] for one in ranks}
            of_groups |= groups
    result = {}
    for method, (healthy, groups) in before.items():
        found = {
            factor: [str(gpu) in after[method][0] - healthy for gpu, of in factor_of.items() if of == factor]
            for factor in factors
        }
        shares = {factor: sum(of) / len(of) for factor, of in found.items() if of}
        others = after[method][0] - set(map(str, sick))
        result[method] = Compared(len(healthy | others), len(groups), shares)
    return result


def cells(chip: float | None, role_size: int | None) -> Iterator[tuple[float, int]]:
    """Those that are asked for."""
    for own in CHIPS if chip is None else (chip,):
        for size in ROLE_SIZES if role_size is None else (role_size,):
            yield own, size
