"""A fleet whose healthy GPUs differ, for the quality bench: what chips, work and operators do to durations.

Windows are clustered by the exporter's own code, as in l3_fleet: a rank's window is one of a bank, scaled by
what its GPU is like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from argus_core.modes import find_modes
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.read.assemble import JobWindow
from argus_l3_worker.read.past_shifts import RECENT_SECONDS, Gpu
from argus_l3_worker.read.prometheus import Sample, Series
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples, Window

SECONDS: Final = 60.0
TENSOR: Final = 8
_BANK: Final = 200
_LEVELS: Final = np.linspace(0.1, 0.9, 9)
# Seconds of the faster mode, width, launches; a second mode 1.5 times as long, or none.
_KERNELS: Final = (
    ("gemm", 4e-4, 0.03, 300, False),
    ("flash", 9e-4, 0.05, 200, True),
    ("norm", 2e-4, 0.04, 400, False),
    ("expert", 6e-4, 0.02, 250, True),
)
_SECOND_MODE: Final = 1.5
# How a change of work for all moves the durations of each kernel: longer sequences, say.
_OTHER_WORK: Final = np.array([1.0, 1.6, 1.0, 0.7])
_OTHER_MODEL: Final = 1.3


@dataclass(frozen=True)
class Varying:
    """What healthy GPUs differ by. Spreads are standard deviations of logs.

    Attributes:
        chip: of the GPUs, for life; `interaction`: of a GPU's kernels among each other, as a share of it.
        noise: of a kernel's median from window to window, Student's t of `freedom` degrees, as are launches.
        temperature, memory: of a GPU from window to window, and the correlation of two in a row.
        outliers: share of launches that take 3 to 100 times as long.
        weights: of the share of a kernel's second mode between ranks.
    """

    ranks: int = 10_240
    role_size: int = 8
    chip: float = 0.02
    interaction: float = 1 / 3
    noise: float = 0.003
    temperature: float = 0.01
    memory: float = 0.9
    freedom: float = 5.0
    outliers: float = 0.003
    weights: float = 0.15
    models: bool = True

    def sizes(self) -> list[int]:
        """Ranks of each role; the last has what is left, if that is four and more."""
        whole, rest = divmod(self.ranks, self.role_size)
        return [self.role_size] * whole + ([rest] if rest >= 4 else [])


class VaryingFleet:
    """GPUs with a life of their own, and the windows that they publish one after the other."""

    def __init__(self, like: Varying, seed: int) -> None:
        self.like = like
        self._rng = np.random.default_rng(seed)
        sizes = like.sizes()
        self.ranks = sum(sizes)
        borders = np.cumsum([0, *sizes])
        self.roles = [slice(*border) for border in pairwise(borders.tolist())]
        kernels = (self.ranks, len(_KERNELS))
        self._chip = like.chip * self._rng.standard_normal((self.ranks, 1))
        self._chip = self._chip + like.interaction * like.chip * self._rng.standard_normal(kernels)
        self._warmth = like.temperature * self._rng.standard_normal(self.ranks)
        self._gpu: Ints = np.arange(self.ranks)
        self._level = np.clip(
            np.round(3 + self._rng.standard_normal(kernels) * like.weights * 10).astype(int), 0, 8
        )
        self._banks = [_bank(like, self._rng, *kernel[1:]) for kernel in _KERNELS]
        self._named = [self._role(place, rows) for place, rows in enumerate(self.roles)]
        self._uuids = [f"GPU-{gpu}" for gpu in range(self.ranks)]
        slower = [role.slower for role in self._named]
        self._slower = np.repeat(slower, sizes)[:, None]
        self._number = 0
        self.work = np.ones(len(_KERNELS))

    def _role(self, place: int, rows: slice) -> _Role:
        # Two models, in uneven numbers, told apart as the documentation asks for.
        model = ".b" if self.like.models and place // TENSOR % 4 == 3 else ""
        ranks, size = range(rows.start, rows.stop), rows.stop - rows.start
        return _Role(
            f"pp{place // TENSOR}.tp{place % TENSOR}{model}",
            _OTHER_MODEL if model else 1.0,
            tuple(map(str, ranks)),
            np.arange(size, dtype=np.intp),
            np.full(size, np.nan),
            {
                "pp": (str(place // TENSOR),) * size,
                "tp": (str(place % TENSOR),) * size,
                "dp": tuple(map(str, range(size))),
                "node": tuple(f"host{rank // 8}" for rank in ranks),
                "rack": tuple(f"rack{rank // 128}" for rank in ranks),
            },
        )

    def change_work(self) -> None:
        """For all ranks alike."""
        self.work = _OTHER_WORK

    def restart(self) -> None:
        """The job counts its steps anew."""
        self._number = 0

    def move(self, share: float) -> None:
        """This share of the GPUs change places, half within their role and half between roles."""
        movers = self._rng.choice(self.ranks, int(share * self.ranks / 2) * 2, replace=False)
        far = movers[: len(movers) // 2]
        self._gpu[far] = self._gpu[np.roll(far, 1)]
        for role in self.roles:
            near = movers[len(far) :][(movers[len(far) :] >= role.start) & (movers[len(far) :] < role.stop)]
            self._gpu[near] = self._gpu[np.roll(near, 1)]

    def window(self, slow: Mapping[int, float]) -> JobWindow:
        """The next one. `slow`: factor of the compute kernels of some GPUs, by their first rank."""
        like, rng = self.like, self._rng
        self._number += 1
        new = np.sqrt(1.0 - like.memory**2) * like.temperature * rng.standard_normal(self.ranks)
        self._warmth = like.memory * self._warmth + new
        factor = np.exp(self._chip + self._warmth[:, None])
        for gpu, times in slow.items():
            factor[gpu] *= times
        factor = factor[self._gpu]
        noise = like.noise * rng.standard_t(like.freedom, factor.shape)
        factor *= np.exp(noise * np.sqrt((like.freedom - 2.0) / like.freedom)) * self.work
        tails = np.zeros(self.ranks)
        tables = []
        for place, bank in enumerate(self._banks):
            level = self._level[:, place] if len(bank.modes) > 1 else np.zeros(self.ranks, dtype=int)
            chosen = rng.integers(0, _BANK, self.ranks)
            drawn = bank.modes[level, chosen]
            tails += bank.tails[level, chosen]
            p50, p99 = (drawn[:, :, at] * factor[:, place, None] * self._slower for at in (1, 2))
            tables.append((drawn[:, :, 0], p50, p99))
        return JobWindow(tuple(self._of_roles(tables, tails)), (), (), {})

    def _of_roles(self, tables: list[tuple[Floats, Floats, Floats]], tails: Floats) -> Iterator[RoleTriples]:
        window = Window(64 * self._number, 64)
        for role, rows in zip(self._named, self.roles, strict=True):
            pairs = tuple(
                PairTriples(name, "compute0", role.everyone, count[rows], p50[rows], p99[rows])
                for (name, *_), (count, p50, p99) in zip(_KERNELS, tables, strict=True)
            )
            yield RoleTriples(
                "bench",
                role.name,
                window,
                role.ranks,
                pairs,
                role.unpublished,
                role.coordinates,
                tails[rows],
                gpus=tuple(self._uuids[gpu] for gpu in self._gpu[rows].tolist()),
            )


@dataclass(frozen=True)
class _Role:
    """What stays as it is from window to window; `slower` is the factor of its model of GPU."""

    name: str
    slower: float
    ranks: tuple[str, ...]
    everyone: Ints
    unpublished: Floats
    coordinates: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Bank:
    """(count, p50, p99) of clustered windows, shape (levels, windows, modes, 3), and far launches of each."""

    modes: Floats
    tails: Floats


def _bank(
    like: Varying, rng: np.random.Generator, seconds: float, sigma: float, launches: int, two: bool
) -> _Bank:
    levels: list[list[tuple[tuple[tuple[float, float, float], ...], int]]] = []
    for share in _LEVELS if two else (0.0,):
        of_level = []
        for _ in range(_BANK):
            values = seconds * np.exp(sigma * rng.standard_t(like.freedom, launches))
            values[rng.random(launches) < share] *= _SECOND_MODE
            far = rng.random(launches) < like.outliers
            values[far] *= np.exp(rng.uniform(np.log(3.0), np.log(100.0), int(far.sum())))
            found = find_modes(values)
            modes = tuple((float(mode.count), mode.p50, mode.p99) for mode in found.modes)
            of_level.append((modes, found.tail_events))
        levels.append(of_level)
    width = max(len(modes) for of_level in levels for modes, _ in of_level)
    table = np.zeros((len(levels), _BANK, width, 3))
    for level, of_level in enumerate(levels):
        for row, (modes, _) in enumerate(of_level):
            table[level, row, : len(modes)] = modes
            table[level, row, len(modes) :, 1:] = modes[-1][1:]
    tails = np.array([[float(far) for _, far in of_level] for of_level in levels])
    return _Bank(table, tails)


class WrittenShifts:
    """What Prometheus would answer the worker about its own series: medians of 90 minutes and of 30.

    Its two forms of query for shifts; nobody was accused before a start here.
    """

    def __init__(self) -> None:
        self._gpus: dict[Gpu, int] = {}
        self._written: list[tuple[float, Floats]] = []

    def write(self, at: float, shifts: Mapping[Gpu, float]) -> None:
        """What a cycle writes of all ranks: ratio by (gpu_uuid, role)."""
        for gpu in shifts:
            self._gpus.setdefault(gpu, len(self._gpus))
        row = np.full(len(self._gpus), np.nan)
        row[[self._gpus[gpu] for gpu in shifts]] = list(shifts.values())
        self._written.append((at, row))

    async def instant(self, _query: str, time: float) -> list[Sample]:
        """The medians of the hour before `time`, where half of its cycles wrote."""
        medians = self._medians(time - RECENT_SECONDS, time, RECENT_SECONDS / SECONDS / 2.0)
        return [
            Sample(_labels(gpu), value)
            for gpu, value in zip(self._gpus, medians, strict=True)
            if value == value
        ]

    async def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The median of each `step` seconds."""
        if "argus_l3_anomaly" in query:
            return []
        times = np.arange(start, end + step / 2.0, step).tolist()
        rows = [self._medians(at - step, at, 1.0) for at in times]
        found = []
        for gpu, values in zip(self._gpus, np.transpose(rows).tolist(), strict=True):
            points = tuple((at, value) for at, value in zip(times, values, strict=True) if value == value)
            if points:
                found.append(Series(_labels(gpu), points))
        return found

    def _medians(self, after: float, until: float, least: float) -> list[float]:
        """Of each GPU; NaN where fewer than `least` cycles wrote one."""
        gpus = len(self._gpus)
        rows = [row for at, row in self._written if after < at <= until]
        table = np.full((gpus, len(rows) or 1), np.nan)
        for place, row in enumerate(rows):
            table[: len(row), place] = row
        medians = Segments([table.shape[1]] * gpus).medians(table.ravel())
        medians[(~np.isnan(table)).sum(axis=1) < least] = np.nan
        values: list[float] = medians.tolist()
        return values


def _labels(gpu: Gpu) -> dict[str, str]:
    return {"gpu_uuid": gpu[0], "role": gpu[1]}
