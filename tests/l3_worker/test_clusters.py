"""Two clusters of ranks: found where they are, not found in noise, and explained by what ranks share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_l3_worker.judge.clusters import (
    MANY,
    UNEXPLAINED,
    Explanation,
    Split,
    explain,
    named_values,
    splits,
)
from argus_l3_worker.judge.segments import Segments

GAP = math.log(1.03)


def fleet(ranks: int, slow: int, shift: float, seed: int = 0, spread: float = 0.005) -> np.ndarray:
    """Signed shifts: `slow` of the ranks are `shift` further, all with the spread of healthy GPUs."""
    values = spread * np.random.default_rng(seed).standard_normal(ranks)
    values[:slow] += shift
    return values - np.median(values)


def split(shifts: np.ndarray, least_gap: float, errors: np.ndarray | None = None) -> Split | None:
    """Of ranks that are one scope."""
    known_exactly = np.zeros_like(shifts) if errors is None else errors
    return splits(shifts, Segments([shifts.size]), least_gap, known_exactly, shifts).get(0)


@pytest.mark.parametrize("ranks", [512, 10_000])
@pytest.mark.parametrize("share", [0.1, 0.26, 0.3, 0.4, 0.5, 0.7])
def test_clusters_twelve_percent_apart_are_found_at_any_share(ranks: int, share: float) -> None:
    """Also where the fence (26 %) and the median deviation (40 %) are blind: docs/evidence/shifts.md."""
    slow = int(share * ranks)
    found = split(fleet(ranks, slow, math.log(1.12)), GAP)
    assert found is not None
    assert found.slow.tolist() == [index < slow for index in range(ranks)]
    assert found.gap == pytest.approx(math.log(1.12), abs=0.002)


@pytest.mark.parametrize("ranks", [8, 64, 1000, 10_000])
@pytest.mark.parametrize("spread", [0.005, 0.02, 0.1])
def test_healthy_ranks_are_one_cluster(ranks: int, spread: float) -> None:
    """200 kernels of noise, however wide: no split."""
    for seed in range(200 if ranks < 10_000 else 20):
        assert split(fleet(ranks, 0, 0.0, seed, spread), GAP) is None


@pytest.mark.parametrize("ranks", [8, 12, 16, 32])
def test_few_ranks_that_fall_apart_by_chance_are_not_certain(ranks: int) -> None:
    """Of a few thousand jobs some do, for life: at 16 ranks one of 1,500 is five deviations apart."""
    found = [split(fleet(ranks, 0, 0.0, seed, 0.03), GAP) for seed in range(6000)]
    assert not any(one.certain for one in found if one is not None)


@pytest.mark.parametrize(("ranks", "slow"), [(32, 10), (32, 16), (512, 40)])
def test_clusters_far_apart_are_certain(ranks: int, slow: int) -> None:
    """15 %, of chips that differ by 0.7 %."""
    for seed in range(20):
        found = split(fleet(ranks, slow, math.log(1.15), seed, 0.007), GAP)
        assert found is not None
        assert found.certain


def test_uniform_and_heavy_tailed_ranks_are_one_cluster() -> None:
    """Noise need not be normal: flat, and with 0.3 % of ranks far out."""
    random = np.random.default_rng(3)
    for _ in range(100):
        assert split(random.uniform(-0.1, 0.1, 1000), GAP) is None
        far = 0.005 * random.standard_normal(1000)
        far[:3] += 1.0
        assert split(far, GAP) is None


def test_a_gap_below_the_effect_is_no_split() -> None:
    """Two GPU batches 2 % apart, sharply: below what is worth a word."""
    assert split(fleet(512, 200, 0.02, spread=0.001), GAP) is None


def test_a_gap_within_the_error_of_the_shifts_is_no_split() -> None:
    """10 % between clusters that are tight by chance: what is known to 3 % proves nothing, to 1 % it does."""
    values = fleet(16, 8, 0.1, spread=0.001)
    assert split(values, GAP, np.full(16, 0.03)) is None
    assert split(values, GAP, np.full(16, 0.01)) is not None


def test_ranks_of_unknown_shift_are_not_slow() -> None:
    """NaN: the pair is not comparable on that rank."""
    values = fleet(64, 20, 0.3)
    values[[0, 40]] = np.nan
    found = split(values, GAP)
    assert found is not None
    assert found.slow.tolist() == [0 < index < 20 for index in range(64)]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_each_scope_is_cut_as_if_it_were_alone(seed: int) -> None:
    """Of any size, some of their ranks unknown."""
    random = np.random.default_rng(seed)
    scopes = Segments(random.choice([1, 7, 8, 9, 33, 64], 12))
    shifts = random.normal(0.0, 0.01, scopes.of_row.size)
    slow = random.random(shifts.size) < random.choice([0.0, 0.2, 0.5], scopes.count)[scopes.of_row]
    shifts[slow] += 0.2
    shifts[random.random(shifts.size) < 0.1] = np.nan
    errors = np.abs(random.normal(0.0, 0.01, shifts.size))
    found = splits(shifts, scopes, GAP, errors, shifts)
    for place, own in enumerate(scopes.slices):
        alone, one = split(shifts[own], GAP, errors[own]), found.get(place)
        assert (alone is None) == (one is None)
        if alone is not None and one is not None:
            assert one.slow.tolist() == alone.slow.tolist()
            assert (one.gap, one.certain) == (alone.gap, alone.certain)


def test_at_half_nobody_knows_which_cluster_is_sick() -> None:
    """4 of 8 slow is even; 2 of 8 is too few to be a cluster at all."""
    found = split(fleet(8, 4, 0.2), GAP)
    assert found is not None
    assert found.even
    assert split(fleet(8, 2, 0.2), GAP) is None


COORDINATES = {
    "node": [f"host{rank // 8}" for rank in range(64)],
    "rack": [f"rack{rank // 32}" for rank in range(64)],
    "tp": [str(rank % 4) for rank in range(64)],
    "dp": [str(rank) for rank in range(64)],
}


def slow(ranks: range | list[int]) -> np.ndarray:
    return np.isin(np.arange(64), list(ranks))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (range(16, 24), ("node", ("host2",))),
        (range(32), ("rack", ("rack0",))),
        (range(3, 64, 4), ("tp", ("3",))),
        ([*range(8), *range(24, 32)], ("node", ("host0", "host3"))),
        ([*range(16, 23)], ("node", ("host2",))),
    ],
    ids=[
        "one host",
        "a rack rather than its hosts",
        "a tensor index",
        "two hosts",
        "seven of a host's eight",
    ],
)
def test_what_slow_ranks_share_is_named(
    ranks: range | list[int], expected: tuple[str, tuple[str, ...]]
) -> None:
    """The coordinate with the fewest values that fits."""
    found = explain(slow(ranks), COORDINATES)
    assert found is not None
    assert (found.coordinate, found.values) == expected


def test_scattered_ranks_are_not_explained() -> None:
    """A value a rank (dp) explains everything and says nothing."""
    random = np.random.default_rng(1)
    for _ in range(50):
        assert explain(slow(random.choice(64, 20, replace=False).tolist()), COORDINATES) is None


def test_ranks_without_a_value_are_no_group() -> None:
    """The ranks that lack a label have nothing in common by that."""
    racks = ["" if rank < 32 else "rack1" for rank in range(64)]
    assert explain(slow(range(32)), {"rack": racks}) is None


def test_labels_stay_bounded() -> None:
    """Nothing named, few values, too many values."""
    assert named_values(None) == (UNEXPLAINED, ("",))
    assert named_values(Explanation("node", ("a", "b"), 1.0)) == ("node", ("a", "b"))
    assert named_values(Explanation("node", tuple(map(str, range(9))), 1.0)) == ("node", (MANY,))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_renaming_ranks_renames_the_clusters(seed: int, share: float) -> None:
    """The split follows its ranks through any permutation."""
    values = fleet(100, int(100 * share), 0.15, seed)
    order = np.random.default_rng(seed).permutation(100)
    plain, moved = split(values, GAP), split(values[order], GAP)
    assert plain is not None and moved is not None
    assert moved.slow.tolist() == plain.slow[order].tolist()
