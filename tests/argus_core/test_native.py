"""The compiled library: found, refused when it does not fit, and W1 by ranking against all pairs."""

import logging
import math
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from argus_core import native
from argus_core.modes import ModeConfig, find_modes, mode_counts

LIBRARY = native.library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="libargus_numeric is not built here")


def all_pairs(cdf: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The naive twin: every pair of ranks."""
    others = cdf.shape[1] - 1
    return np.stack(
        [(weights @ np.abs(cdf - cdf[:, [rank]])).sum(axis=1) / others for rank in range(others + 1)], axis=1
    )


FAR = math.erfc(-8 / math.sqrt(2)) / 2
"""The library's normal distribution from 8 deviations on."""


def by_library(cdf: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """As the library ranks: each grid point of F as mixtures that are that high there."""
    scores = np.zeros((weights.shape[0], cdf.shape[1]))
    for row, of_point in zip(cdf, weights.T, strict=True):
        mixtures = (row[:, None], np.zeros((row.size, 1)), np.ones((row.size, 1)))
        scores += LIBRARY.w1_mean_of_mixtures(mixtures, np.array([9.0]), of_point[:, None])
    return scores


@needs_library
@pytest.mark.parametrize(("grid", "ranks"), [(1, 2), (7, 3), (64, 257)])
def test_w1_by_ranking_equals_all_pairs(grid, ranks):
    """Linear and log weights from one ranking, both as the pairs have them."""
    rng = np.random.default_rng(grid)
    cdf, weights = np.sort(rng.random((grid, ranks)), axis=0), rng.random((2, grid))
    assert by_library(cdf, weights) == pytest.approx(all_pairs(cdf, weights), rel=1e-8)


def by_stable_order(cdf: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The ranking step by step: F to 33 bits, a stable order, prefix sums; no sum in another order."""
    ranks = cdf.shape[1]
    scores = np.zeros((weights.shape[0], ranks))
    for row, of_point in zip(cdf, weights.T, strict=True):
        keys = (np.clip(row, 0.0, 1.0) * (2.0**33 - 1.0)).astype(np.uint64)
        order = np.argsort(keys, kind="stable")
        ascending = row[order]
        before = np.concatenate(([0.0], np.cumsum(ascending)[:-1]))
        distance = np.empty(ranks)
        distance[order] = ascending * (2.0 * np.arange(ranks) - ranks) + np.cumsum(row)[-1] - 2.0 * before
        if row.min() < row.max():
            scores += of_point[:, None] / (ranks - 1.0) * distance
    return scores


@needs_library
@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 159, 160, 161, 512])
def test_w1_is_the_same_to_the_last_bit_whichever_way_ranks_are_sorted(ranks):
    """Small roles are sorted by comparison, large ones by digits; ties keep the order of the ranks."""
    rng = np.random.default_rng(ranks)
    cdf, weights = rng.random((40, ranks)), rng.random((2, 40))
    cdf[10:20] = np.round(cdf[10:20], 1)  # many ties
    cdf[20:30, ::3] = cdf[20:30, :1] + 1e-11 * rng.random(cdf[20:30, ::3].shape)  # closer than a key tells
    assert by_library(cdf, weights).tolist() == by_stable_order(cdf * FAR, weights).tolist()


@needs_library
def test_w1_of_ties_and_of_one_rank_is_zero():
    """Equal ranks are at no distance; a lone rank has no others."""
    assert not by_library(np.full((4, 9), 0.25), np.ones((1, 4))).any()
    assert by_library(np.ones((4, 1)), np.ones((1, 4))).tolist() == [[0.0]]


@needs_library
def test_w1_of_one_step_by_hand():
    """One rank of three ahead by a whole step of 2 s: mean 2 s for it, 1 s for the others."""
    cdf = np.array([[1.0, 0.0, 0.0]])
    assert by_library(cdf, np.array([[2.0]]))[0] == pytest.approx([2.0, 1.0, 1.0], rel=1e-15)


@needs_library
@pytest.mark.parametrize("count", [8, 33, 500])
def test_modes_of_many_windows_are_those_of_each(count, monkeypatch):
    """In one call, by the library and by numpy; windows of one mode and of several."""
    rng, config = np.random.default_rng(count), ModeConfig(min_events=4)
    factors = rng.choice([1.0, 2.0, 9.0], (30, count))
    factors[:10], factors[10:20] = 1.0, np.minimum(factors[10:20], 2.0)
    windows = np.sort(1e-3 * factors * rng.lognormal(0.0, 0.02, (30, count)), axis=1)
    expected = [[mode.count for mode in find_modes(window, config).modes] for window in windows]
    assert {len(modes) for modes in expected} >= {1, 2}
    by_library = mode_counts(windows, config)
    assert [[events for events in row if events] for row in by_library.tolist()] == expected
    monkeypatch.setenv("ARGUS_NO_NATIVE", "1")
    assert mode_counts(windows, config).tolist() == by_library.tolist()


@needs_library
def test_threads_do_not_disturb_each_other():
    """Each thread has its own scratch memory."""
    windows = [np.random.default_rng(seed).lognormal(-9.0, 0.5, 2000) for seed in range(32)]
    expected = [find_modes(window) for window in windows]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(find_modes, windows)) == expected


def test_environment_switches_it_off(monkeypatch):
    """ARGUS_NO_NATIVE=1 keeps to numpy, at any time; 0 and empty do not."""
    monkeypatch.setenv("ARGUS_NO_NATIVE", "1")
    assert native.library() is None
    monkeypatch.setenv("ARGUS_NO_NATIVE", "0")
    assert native.library() is LIBRARY


@pytest.fixture
def only_place(monkeypatch):
    """Let the loader look at one path alone."""

    def look_at(path: Path) -> None:
        monkeypatch.setattr(native, "_places", lambda: [path])
        native._installed.cache_clear()

    yield look_at
    monkeypatch.undo()
    native._installed.cache_clear()


def test_absent_library_is_no_event(only_place, tmp_path, caplog):
    """Installed without a compiler: numpy, and nothing in the log."""
    only_place(tmp_path / "libargus_numeric.so")
    assert native._installed() is None
    assert not caplog.records


def test_broken_library_falls_back_and_says_so(only_place, tmp_path, caplog):
    """A file that is no library is one warning, and numpy."""
    (tmp_path / "libargus_numeric.so").write_text("not ELF")
    only_place(tmp_path / "libargus_numeric.so")
    with caplog.at_level(logging.WARNING):
        assert native._installed() is None
    assert "compiled numerics are not used" in caplog.text


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_library_of_another_interface_is_refused(tmp_path):
    """An older library beside newer Python is named, with the cure."""
    source, built = tmp_path / "old.cpp", tmp_path / "old.so"
    source.write_text('extern "C" long argus_numeric_abi() { return 0; }')
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(built)], check=True)
    with pytest.raises(native.NativeError, match=r"has interface 0.*install the package again"):
        native.Library(built)
