"""Synthetic fleets for the benches of the worker, with triples from the exporter's own clustering.

For each kernel a bank of windows is sampled and clustered by `find_modes`, as an exporter does; a rank's
window is one of the bank, scaled by what is wrong with the rank. So sampling noise, wrong mode counts and
outliers are those of the real compressor, and 10,000 ranks x 200 kernels take seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from argus_core.modes import find_modes
from argus_l3_worker.roles import coordinates_of
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples, Window

_BANK = 400
_OUTLIER_SHARE = 0.003
_CHIP_SPREAD = 0.005


@dataclass(frozen=True)
class Kernel:
    """One (kernel, stream): its true modes, and its bank of clustered windows.

    Attributes:
        bank: (count, p50, p99) of each window, shape (windows, modes, 3), count 0 where it has fewer modes.
        tails: launches outside of every mode in each window of the bank, shape (windows,).
        shifted: the same as `bank` with the slowest mode 12 % slower.
    """

    name: str
    stream: str
    bank: Floats
    tails: Floats
    shifted: Floats


@dataclass
class Faults:
    """What is wrong in a fleet; ranks by position. Factors multiply durations."""

    compute: dict[int, float] = field(default_factory=dict)
    collectives: dict[int, float] = field(default_factory=dict)
    mode_of_kernel: tuple[int, int] | None = None
    """(rank, kernel) of which one mode is 12 % slower."""
    far: dict[int, float] = field(default_factory=dict)
    """Share of a rank's launches of compute kernels that take far longer than all modes."""


@dataclass(frozen=True)
class Fleet:
    ranks: int
    kernels: tuple[Kernel, ...]
    ranks_per_host: int = 8
    hosts_per_rack: int = 16

    def window(self, number: int, faults: Faults, rng: np.random.Generator, chips: Floats) -> RoleTriples:
        """One window of all ranks. `chips`: each GPU's own speed, shape (ranks,)."""
        compute, collectives = chips.copy(), np.ones(self.ranks)
        for rank, times in faults.compute.items():
            compute[rank] *= times
        for rank, times in faults.collectives.items():
            collectives[rank] *= times
        names = tuple(map(str, range(self.ranks)))
        everyone: Ints = np.arange(self.ranks, dtype=np.intp)
        pairs = []
        tails = np.zeros(self.ranks)
        for index, kernel in enumerate(self.kernels):
            chosen = rng.integers(0, len(kernel.bank), self.ranks)
            drawn = kernel.bank[chosen]
            if not kernel.stream.startswith("nccl"):
                tails += kernel.tails[chosen]
                for rank, share in faults.far.items():
                    hit = rng.binomial(drawn[rank, :, 0].astype(int), share)
                    drawn[rank, :, 0] -= hit
                    tails[rank] += hit.sum()
            if faults.mode_of_kernel is not None and faults.mode_of_kernel[1] == index:
                drawn[faults.mode_of_kernel[0]] = kernel.shifted[rng.integers(0, len(kernel.shifted))]
            # Collectives of healthy ranks differ by far: who arrives last has the shortest.
            waits = collectives * rng.uniform(0.7, 1.3, self.ranks)
            factor: Floats = waits if kernel.stream.startswith("nccl") else compute
            count = drawn[:, :, 0]
            p50, p99 = drawn[:, :, 1] * factor[:, None], drawn[:, :, 2] * factor[:, None]
            pairs.append(PairTriples(kernel.name, kernel.stream, everyone, count, p50, p99))
        nothing = np.full(self.ranks, np.nan)
        return RoleTriples(
            "bench",
            "pp0.tp0",
            Window(64 * number, 64),
            names,
            tuple(pairs),
            nothing,
            self._coordinates(),
            tails,
        )

    def chips(self, rng: np.random.Generator) -> Floats:
        """Healthy GPUs differ by half a percent."""
        spread: Floats = np.exp(_CHIP_SPREAD * rng.standard_normal(self.ranks))
        return spread

    def _coordinates(self) -> dict[str, tuple[str, ...]]:
        per_rack = self.ranks_per_host * self.hosts_per_rack
        labels = [
            {
                "node": f"host{rank // self.ranks_per_host}",
                "rack": f"rack{rank // per_rack}",
                "dp": str(rank),
                "ep": str(rank % 8),
                "pp": "0",
            }
            for rank in range(self.ranks)
        ]
        return coordinates_of(labels, ("node", "rack", "dp", "ep", "edp", "pp"))


def fleet(
    ranks: int, kernels: int, seed: int, *, outliers: bool, progress: Callable[[str], None] = lambda _: None
) -> Fleet:
    """A fleet of `kernels` kernels, one in ten a collective: 1-3 modes, n = 40-400, sigma 0.5-12 %."""
    rng = np.random.default_rng(seed)
    made = []
    for index in range(kernels):
        progress(f"kernel {index + 1} of {kernels}")
        made.append(_kernel(index, rng, outliers))
    return Fleet(ranks, tuple(made))


def _kernel(index: int, rng: np.random.Generator, outliers: bool) -> Kernel:
    collective = index % 10 == 9
    modes = int(rng.integers(1, 4))
    events = int(rng.integers(40, 401))
    base = float(np.exp(rng.uniform(np.log(60e-6), np.log(3e-3))))
    medians = base * np.cumprod(np.concatenate(([1.0], rng.uniform(1.3, 6.0, modes - 1))))
    sigmas = rng.uniform(0.005, 0.12, modes)
    weights = rng.dirichlet(np.full(modes, 4.0))
    counts = np.maximum(np.round(weights * events), 5).astype(int)

    def window(last: float) -> tuple[list[tuple[float, float, float]], int]:
        samples = [
            median * (last if place == modes - 1 else 1.0) * np.exp(sigma * rng.standard_normal(count))
            for place, (median, sigma, count) in enumerate(zip(medians, sigmas, counts, strict=True))
        ]
        durations = np.concatenate(samples)
        if outliers:
            hit = rng.random(durations.size) < _OUTLIER_SHARE
            durations[hit] *= np.exp(rng.uniform(np.log(3.0), np.log(100.0), int(hit.sum())))
        found = find_modes(durations)
        return [(float(mode.count), mode.p50, mode.p99) for mode in found.modes], found.tail_events

    windows = [window(1.0) for _ in range(_BANK)]
    plain, tails = [modes for modes, _ in windows], [float(far) for _, far in windows]
    slow = [window(1.12)[0] for _ in range(_BANK // 4)]
    width = max(len(found) for found in plain + slow)
    return Kernel(
        f"ncclDevKernel_{index}" if collective else f"kernel_{index}",
        "nccl0" if collective else "compute0",
        _padded(plain, width),
        np.array(tails),
        _padded(slow, width),
    )


def _padded(windows: list[list[tuple[float, float, float]]], width: int) -> Floats:
    """Rectangles: missing modes repeat the last one with a count of 0, as PairTriples wants them."""
    table = np.zeros((len(windows), width, 3))
    for row, modes in enumerate(windows):
        table[row, : len(modes)] = modes
        table[row, len(modes) :, 1:] = modes[-1][1:]
    return table
