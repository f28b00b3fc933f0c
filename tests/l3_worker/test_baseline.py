"""A GPU that becomes slower than it was itself, and who only looks like it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import numpy as np
import pytest
from bench.servers import PrometheusServer

from argus_core.remote_write import encode_series, labels_of
from argus_l3_worker.config import Config
from argus_l3_worker.judge.baseline import own_evidence
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.past_shifts import (
    BLOCK_SECONDS,
    BLOCKS,
    RECENT_BLOCKS,
    RECENT_SECONDS,
    PastShifts,
)
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.triples import Floats

CONFIG = Config()
SIZES = [4] * 64
RANKS = sum(SIZES)


def found(
    slower: Mapping[int, float] | None = None,
    moved: Mapping[int, float] | None = None,
    now: Mapping[int, float] | None = None,
    came: Mapping[int, float] | None = None,
    blocks: int = BLOCKS,
    chip: float = 0.03,
) -> dict[int, float]:
    """Ranks with evidence. `slower`: log shift of the recent half hours, `now` of the newest window where it
    differs; `moved`: what came over several ranks of a role at once; `came`: by how much the shifts of others
    fell when this rank's GPU came into the role."""
    random = np.random.default_rng(3)
    chips = chip * random.standard_normal((RANKS, 1))
    past: Floats = chips + 0.006 * random.standard_normal((RANKS, BLOCKS))
    past[:, : BLOCKS - blocks] = np.nan
    for newcomer, moves in (came or {}).items():
        role = slice(newcomer // 4 * 4, newcomer // 4 * 4 + 4)
        past[role, :-5] += moves
        past[newcomer, :-5] = np.nan
    recent = chips[:, 0] + 0.005 * random.standard_normal(RANKS)
    for rank, shift in {**(slower or {}), **(moved or {})}.items():
        recent[rank] += shift
    newest = recent.copy()
    for rank, shift in (now or {}).items():
        newest[rank] += shift - (slower or {})[rank]
    evidence = own_evidence(newest, recent, past, Segments(SIZES), CONFIG.judge, RECENT_BLOCKS)
    return {int(rank): float(evidence[rank]) for rank in np.flatnonzero(evidence)}


def test_a_gpu_that_becomes_slower_is_found_where_chips_differ_by_more() -> None:
    """7 % in a role of four, chips 3 % apart: named alone, with its change."""
    assert found({17: 0.07}) == {17: pytest.approx(0.07, abs=0.02)}


def test_one_that_always_was_slow_is_left_to_its_peers() -> None:
    """Chips that differ by 10 % have not changed."""
    assert found(chip=0.1) == {}


def test_one_that_became_faster_or_has_recovered_is_not_accused() -> None:
    """The newest window must still show it."""
    assert found({17: -0.07}) == {}
    assert found({17: 0.07}, now={17: 0.0}) == {}


def test_what_moves_a_whole_role_is_not_a_gpu_of_it() -> None:
    """Another GPU in the role moved its median: three of four have the same change."""
    assert found(moved={16: 0.06, 17: 0.06, 18: 0.06}) == {}


def test_a_gpu_that_replaces_another_has_not_changed() -> None:
    """It moved the median of its role; the three others have a past of before, and it has none."""
    assert found(came={17: 0.06}) == {}


def test_less_than_two_hours_are_no_past() -> None:
    """Four half hours are needed."""
    assert found({17: 0.07}, blocks=3) == {}
    assert list(found({17: 0.07}, blocks=4)) == [17]


@pytest.mark.servers
def test_the_past_is_what_the_worker_wrote_whatever_the_rank(prometheus: PrometheusServer) -> None:
    """GPU-a wrote 0.02 for hours as rank 0, and 0.08 in the last ones as rank 5: one past of one GPU."""
    at = 1_700_000_000 // BLOCK_SECONDS * BLOCK_SECONDS
    series = []
    for minute in range(240):
        stamp = at - 60.0 * minute
        recent = stamp > at - RECENT_SECONDS
        where = {"training_job": "llm", "role": "pp0.tp0", "gpu_uuid": "GPU-a"}
        labels = labels_of("argus_l3_rank_shift_ratio", rank="5" if recent else "0", **where)
        series.append(encode_series(labels, 0.08 if recent else 0.02, round(stamp * 1000)))
    nameless = labels_of("argus_l3_rank_shift_ratio", training_job="llm", rank="1", role="pp0.tp0")
    prometheus.write([*reversed(series), encode_series(nameless, 0.5, round(at * 1000))])

    past = read(prometheus, at)
    gpu = "GPU-a", "pp0.tp0"
    assert past.recent == {gpu: pytest.approx(np.log(1.08))}
    known = past.past[gpu][~np.isnan(past.past[gpu])]
    assert list(past.past) == [gpu]
    assert known == pytest.approx(np.log(1.02))
    assert known.size in (5, 6)


@pytest.mark.servers
def test_a_worker_that_starts_does_not_take_an_illness_for_the_past(prometheus: PrometheusServer) -> None:
    """Both GPUs have been slow for nine hours; one of them was accused of it for eight."""
    at = 1_700_000_000 // BLOCK_SECONDS * BLOCK_SECONDS
    series = []
    for minute in range(13 * 60, -1, -1):
        stamp = at - 60.0 * minute
        for rank, gpu in (("5", "GPU-a"), ("6", "GPU-b")):
            where = {"training_job": "llm", "rank": rank, "role": "pp0.tp0"}
            labels = labels_of("argus_l3_rank_shift_ratio", gpu_uuid=gpu, **where)
            series.append(encode_series(labels, 0.08 if minute < 9 * 60 else 0.02, round(stamp * 1000)))
            if rank == "5" and minute < 8 * 60:
                slow = {"kernel": "all", "stream": "all", "cause": "gpu-compute", "verdict": "culprit"}
                said = labels_of("argus_l3_anomaly", **where, **slow)
                series.append(encode_series(said, 0.08, round(stamp * 1000)))
    prometheus.write(series)
    past = read(prometheus, at).past
    accused, other = (np.nanmedian(past[gpu, "pp0.tp0"]) for gpu in ("GPU-a", "GPU-b"))
    assert (accused, other) == (pytest.approx(np.log(1.02)), pytest.approx(np.log(1.08)))


@pytest.mark.servers
def test_an_illness_that_is_over_is_no_past_either(prometheus: PrometheusServer) -> None:
    """Slow for five hours, accused of it for four of them, and mended two hours ago: as it was before."""
    at = 1_700_000_000 // BLOCK_SECONDS * BLOCK_SECONDS
    where = {"training_job": "llm", "rank": "5", "role": "pp0.tp0"}
    slow = {"kernel": "all", "stream": "all", "cause": "gpu-compute", "verdict": "culprit"}
    series = []
    for minute in range(13 * 60, -1, -1):
        stamp = round(1000 * (at - 60.0 * minute))
        shift = 0.08 if 120 <= minute < 7 * 60 else 0.02
        labels = labels_of("argus_l3_rank_shift_ratio", gpu_uuid="GPU-a", **where)
        series.append(encode_series(labels, shift, stamp))
        if 120 <= minute < 6 * 60:
            series.append(encode_series(labels_of("argus_l3_anomaly", **where, **slow), 0.08, stamp))
    prometheus.write(series)
    past = read(prometheus, at - 3 * BLOCK_SECONDS, at).past["GPU-a", "pp0.tp0"]
    assert np.nanmedian(past) == pytest.approx(np.log(1.02))
    assert np.isnan(past).sum() >= 6, "those in which it was called slow"


def read(prometheus: PrometheusServer, *times: float) -> PastShifts:
    """What a worker knows of the past that starts, and looks at these times."""

    async def asked() -> PastShifts:
        config = PrometheusConfig(url=prometheus.url)
        async with aiohttp.ClientSession() as session:
            past = PastShifts()
            for at in times:
                await past.read(Prometheus(session, config, Telemetry()), "llm", at, CONFIG.cycle_seconds, ())
            return past

    return asyncio.run(asked())
