"""Judgements on kernels of real GPU traces. Faults, and how chips differ, are injected: none is public."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench.l3_cells import ShippedWorker
from bench.l3_tables import judge_role, pair_triples

from argus_core.modes import ModeConfig, find_modes
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import History, culprits, decide
from argus_l3_worker.read.assemble import JobWindow
from argus_l3_worker.roles import Abstention
from argus_l3_worker.triples import Floats, RoleTriples, Window, kind_of
from l3_worker.kineto import durations
from long_forms import LONG

pytestmark = [pytest.mark.traces, pytest.mark.slow]
SEEDS = 180 if LONG else 8

RANKS, SICK, WINDOWS, TOP_PAIRS = 8, 3, 3, 20
CLOCK = ModeConfig(tick_seconds=1e-6)
CONFIG = JudgeConfig()

Events = dict[tuple[str, str], Floats]


def role(by_rank: list[Events], last_step: int) -> RoleTriples:
    """What exporters would publish: the modes of the pairs with the most time."""
    total: dict[tuple[str, str], float] = {}
    for events in by_rank:
        for key, values in events.items():
            total[key] = total.get(key, 0.0) + float(values.sum())
    pairs = []
    for key in sorted(total, key=lambda key: -total[key])[:TOP_PAIRS]:
        modes = []
        for rank, events in enumerate(by_rank):
            found = find_modes(events[key], CLOCK).modes if key in events else ()
            if found:
                modes.append((rank, [(mode.p50, mode.p99, float(mode.count)) for mode in found]))
        if modes:
            pairs.append(pair_triples(*key, modes))
    ranks = tuple(str(rank) for rank in range(len(by_rank)))
    unknown = np.full(len(ranks), np.nan)
    return RoleTriples("trace", "all", Window(last_step, 64), ranks, tuple(pairs), unknown)


def resampled(trace: Events, random: np.random.Generator, factor: float, repeats: int) -> list[Events]:
    """Ranks that draw their events from one trace with replacement; one has its compute kernels stretched."""
    return [
        {
            key: random.choice(values, len(values) * repeats)
            * (factor if rank == SICK and kind_of(key[0]) == "compute" else 1.0)
            for key, values in trace.items()
        }
        for rank in range(RANKS)
    ]


def accused(trace: Events, seed: int, factor: float, repeats: int) -> list[str]:
    random = np.random.default_rng(seed)
    history = History(CONFIG.windows, CONFIG.windows_needed)
    for window in range(WINDOWS):
        result = judge_role(role(resampled(trace, random, factor, repeats), 64 * (window + 1)), CONFIG)
        if isinstance(result, Abstention):
            # Of six steps some windows have too few launches; longer ones are always judged.
            assert (result.reason, repeats) == ("too-few-events", 1)
            history.add(None)
        else:
            history.add(result)
    return culprits(decide("trace", [("all", history)]))


@pytest.fixture(scope="module")
def resnet(traces: Path) -> Events:
    """The pairs with the most time of one real ResNet-50 trace of six steps."""
    events = durations(min((traces / "resnet50_kineto").glob("*.gz")))
    top = sorted(events, key=lambda key: -float(events[key].sum()))[:TOP_PAIRS]
    return {key: events[key] for key in top}


@pytest.mark.parametrize("repeats", [1, 5])
def test_nobody_is_accused_in_a_resampled_healthy_job(resnet: Events, repeats: int) -> None:
    """Eight ranks of 6 or 30 steps, 3 windows: no verdict."""
    assert [accused(resnet, seed, 1.0, repeats) for seed in range(SEEDS)] == [[]] * SEEDS


@pytest.mark.parametrize("factor", [1.2, 1.07])
def test_the_stretched_rank_and_only_it_is_accused(resnet: Events, factor: float) -> None:
    """Compute kernels x1.2, and x1.07 by the rank as a whole, injected into one rank of a real trace."""
    found = [accused(resnet, seed, factor, repeats=2) for seed in range(SEEDS)]
    assert found == [[str(SICK)]] * SEEDS


@pytest.mark.parametrize("repeats", [(0, 1), (2, 3)])
def test_two_runs_of_one_healthy_job_are_alike(traces: Path, repeats: tuple[int, int]) -> None:
    """Rank 3 draws from another real run than its peers: a healthy pair, so nobody is accused."""
    files = sorted((traces / "resnet50_kineto").glob("*.gz"))
    peers, own = (durations(files[repeat]) for repeat in repeats)
    common = [key for key in sorted(peers, key=lambda key: -float(peers[key].sum())) if key in own][
        :TOP_PAIRS
    ]
    for seed in range(5):
        random = np.random.default_rng(seed)
        history = History(CONFIG.windows, CONFIG.windows_needed)
        for window in range(WINDOWS):
            by_rank: list[Events] = []
            for rank in range(RANKS):
                source = own if rank == SICK else peers
                by_rank.append({key: random.choice(source[key], len(source[key]) * 2) for key in common})
            result = judge_role(role(by_rank, 64 * (window + 1)), CONFIG)
            assert isinstance(result, RoleJudgement)
            history.add(result)
        assert decide("trace", [("all", history)]) == []


Modes = dict[tuple[str, str], list[list[tuple[float, float, float]]]]
"""By pair, of some windows of one healthy rank."""


@pytest.fixture(scope="module")
def windows(resnet: Events) -> Modes:
    """Windows of 30 steps whose events are drawn from the trace with replacement."""
    random = np.random.default_rng(0)
    return {
        key: [
            [(mode.p50, mode.p99, float(mode.count)) for mode in find_modes(events, CLOCK).modes]
            for events in (random.choice(values, 5 * len(values)) for _ in range(24))
        ]
        for key, values in resnet.items()
    }


class ChipsApart:
    """A job of 16 ranks in roles of one size, each rank on a chip of its own: 2 % apart, for life."""

    def __init__(self, windows: Modes, size: int, seed: int) -> None:
        self._windows, self._size = windows, size
        self._random = np.random.default_rng([seed, size])
        self.slowness = np.exp(0.02 * self._random.standard_normal(16))
        self._worker = ShippedWorker("modes")
        self._at = 1e9
        self._number = 0

    def accused(self, cycles: int, every_s: float = 60.0) -> set[str]:
        """Ranks, and groups of them, that the shipped worker accuses in the next cycles."""
        found: set[str] = set()
        for _ in range(cycles):
            self._at += every_s
            self._number += 1
            ranks, groups = self._worker.look(self._at, JobWindow(tuple(self._roles()), (), (), {}))
            found |= {rank.split()[0] for rank in ranks} | set(groups)
        return found

    def _roles(self) -> Iterator[RoleTriples]:
        unknown = np.full(self._size, np.nan)
        for begin in range(0, 16, self._size):
            ranks = [str(rank) for rank in range(begin, begin + self._size)]
            pairs = []
            for (kernel, stream), drawn in self._windows.items():
                chips = self.slowness[begin:] if kind_of(kernel) == "compute" else np.ones(self._size)
                modes = [
                    (
                        place,
                        [(chips[place] * p50, chips[place] * p99, count) for p50, p99, count in of_window],
                    )
                    for place in range(self._size)
                    if (of_window := drawn[self._random.integers(len(drawn))])
                ]
                if modes:
                    pairs.append(pair_triples(kernel, stream, modes))
            gpus = tuple(f"GPU-{rank}" for rank in ranks)
            window = Window(64 * self._number, 64)
            yield RoleTriples("trace", f"pp{begin}", window, tuple(ranks), tuple(pairs), unknown, gpus=gpus)


@pytest.mark.parametrize("size", [4, 8])
def test_chips_two_percent_apart_are_healthy(windows: Modes, size: int) -> None:
    """Three windows of a job, again and again."""
    jobs = [ChipsApart(windows, size, seed) for seed in range(180 if LONG else 8)]
    assert [job.accused(WINDOWS) for job in jobs] == [set()] * len(jobs)


@pytest.mark.parametrize("factor", [1.2, 1.07] if LONG else [1.07])
@pytest.mark.parametrize("size", [4, 8])
def test_a_chip_that_becomes_slower_is_named_within_two_hours(
    windows: Modes, size: int, factor: float
) -> None:
    """Among chips 2 % apart a change of 7 % shows in the GPU's own past, which is three hours long here."""
    for seed in range(20 if LONG else 1):
        job = ChipsApart(windows, size, seed)
        assert job.accused(18, every_s=600.0) == set()
        job.slowness[SICK] *= factor
        assert job.accused(65, every_s=110.0) == {str(SICK)}, seed


def test_one_short_step_of_eight_real_ranks_is_not_judged(traces: Path) -> None:
    """Eight real DLRM ranks, one step, four events a pair: too few, said so, nobody accused."""
    files = sorted((traces / "dlrm_kineto").glob("worker*.gz"))
    assert len(files) == 8
    result = judge_role(role([durations(file) for file in files], 12), CONFIG)
    assert isinstance(result, Abstention)
    assert result.reason == "too-few-events"
