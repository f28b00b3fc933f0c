"""Cells of the quality bench: the shipped judge over a day of a healthy fleet, and GPUs that become slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np

from argus_l3_worker.config import Config
from argus_l3_worker.job import Job, find
from argus_l3_worker.read.prometheus import Prometheus
from bench.l3_varying import SECONDS, Varying, VaryingFleet, WrittenShifts

CHIPS: Final = (0.005, 0.01, 0.02, 0.03)
ROLE_SIZES: Final = (4, 8, 16, 80, 1_280)
_CONFIG: Final = Config()
# Of a run: when a change of work for all comes, the worker and the job restart, and GPUs change places.
EVENTS: Final = {"work": 0.3, "worker": 0.45, "job": 0.6, "move": 0.6}
_MOVED: Final = 0.02
_SICK_RANKS: Final = 1_280
_SICK: Final = 40
_BEFORE, _AFTER = 240, 120


@dataclass(frozen=True)
class Cell:
    """What a day of a healthy fleet came to."""

    chip: float
    role_size: int
    accused: int
    groups: int
    names: tuple[str, ...]


class _Played:
    """A worker beside a fleet."""

    def __init__(self, fleet: VaryingFleet) -> None:
        self.fleet = fleet
        self._store = WrittenShifts()
        self._at = 1e9
        self.restart_worker()

    def restart_worker(self) -> None:
        """What it knew of the job is gone; what it wrote is not."""
        self._job = Job("bench")

    def window(self, slow: Mapping[int, float]) -> tuple[set[str], set[str]]:
        """(ranks, groups) that are accused after the next window."""
        self._at += SECONDS
        window = self.fleet.window(slow)
        found = find(window, _CONFIG.judge)
        store = cast(Prometheus, self._store)
        asyncio.run(self._job.compare_with_past(store, self._at, found, _CONFIG))
        self._job.take(window, found, _CONFIG.judge)
        written = {}
        for of in self._job.judgements:
            for gpu, shift in zip(of.gpus, np.expm1(of.rank_shift).tolist(), strict=True):
                if shift == shift:
                    written[gpu, of.role] = shift
        self._store.write(self._at, written)
        groups = {f"{one.role} {one.kernel} {one.coordinate} {one.value}" for one in self._job.group_shifts}
        verdicts = (one for one in self._job.verdicts if one.verdict == "culprit")
        return {f"{one.rank} {one.kernel} {one.cause}" for one in verdicts}, groups


def a_day(like: Varying, windows: int, seed: int, events: Sequence[str], say: Callable[[str], None]) -> Cell:
    """Nobody is ill: all who are accused are so wrongly.

    Args:
        events: of `work`, `worker`, `job` and `move`, those that come.
    """
    played = _Played(VaryingFleet(like, seed))
    due = {name: int(share * windows) for name, share in EVENTS.items() if name in events}
    accused: set[str] = set()
    groups: set[str] = set()
    for number in range(windows):
        for name, at in due.items():
            if at == number:
                _happens(name, played)
        ranks, shifts = played.window({})
        accused, groups = accused | ranks, groups | shifts
        say(f"chip {like.chip:.1%}, roles of {like.role_size}: window {number}, accused {len(accused)}")
    names = tuple(sorted(accused) + sorted(groups))
    return Cell(like.chip, like.role_size, len({one.split()[0] for one in accused}), len(groups), names)


def _happens(event: str, played: _Played) -> None:
    if event == "work":
        played.fleet.change_work()
    elif event == "move":
        played.fleet.move(_MOVED)
    else:
        if event == "job":
            played.fleet.restart()
        played.restart_worker()


def found_share(like: Varying, factor: float, seed: int, say: Callable[[str], None]) -> float:
    """Share of GPUs that become `factor` times slower, one in a role, named within two hours."""
    fleet = VaryingFleet(replace(like, ranks=max(_SICK_RANKS, like.role_size)), seed)
    played, random = _Played(fleet), np.random.default_rng([seed, 1])
    places = random.choice(len(fleet.roles), min(_SICK, len(fleet.roles) // 4 or 1), replace=False)
    sick = [int(random.integers(fleet.roles[at].start, fleet.roles[at].stop)) for at in places.tolist()]
    named: set[str] = set()
    for number in range(_BEFORE + _AFTER):
        accused, _ = played.window(dict.fromkeys(sick, factor) if number >= _BEFORE else {})
        if number >= _BEFORE:
            named |= {one.split()[0] for one in accused}
        say(f"x{factor}: window {number}, named {len(named & set(map(str, sick)))} of {len(sick)}")
    return len(named & set(map(str, sick))) / len(sick)


def cells(chip: float | None, role_size: int | None) -> Iterator[tuple[float, int]]:
    """Those that are asked for."""
    for own in CHIPS if chip is None else (chip,):
        for size in ROLE_SIZES if role_size is None else (role_size,):
            yield own, size
