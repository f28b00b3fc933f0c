"""The cross-checks on what Prometheus answers: with gaps, resets, and with dcgm-exporter or without."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from bench.servers import PrometheusServer

from argus_l3_worker.cli import main
from argus_l3_worker.cross_checks import CrossChecks, Values, divergences, series_of, unlike_peers
from argus_l3_worker.read.prometheus import Series
from l3_worker.stories import HOUR, STEP, Story

RANKS = [str(rank) for rank in range(8)]


def launches(totals: np.ndarray) -> list[Series]:
    return [
        Series({"rank": str(rank)}, [(15.0 * slice_, float(v)) for slice_, v in enumerate(row) if v == v])
        for rank, row in enumerate(totals)
    ]


def test_a_rank_that_stalls_has_another_rhythm() -> None:
    """100 launches a slice, except on rank 3, which stops for a third of the time."""
    totals = np.cumsum(np.full((8, 31), 100.0), axis=1)
    totals[3, 10:20] = totals[3, 10]
    found = divergences(launches(totals), RANKS, seed=0)
    assert max(found, key=found.__getitem__) == "3"
    assert found["3"] > 5 * np.median(list(found.values()))


def test_a_counter_reset_and_a_scrape_gap_are_no_stall() -> None:
    """Rank 0 restarts, rank 1 misses scrapes: neither looks stalled."""
    totals = np.cumsum(np.full((8, 31), 100.0), axis=1)
    totals[0, 15:] -= totals[0, 15]
    totals[1, 5:8] = np.nan
    found = divergences(launches(totals), RANKS, seed=0)
    assert max(found.values()) < 0.06


def test_too_few_scrapes_say_nothing() -> None:
    """Two points make one slice."""
    assert divergences(launches(np.ones((8, 2))), RANKS, seed=0) == {}
    assert divergences([], RANKS, seed=0) == {}


def shares(compute: dict[str, float]) -> Values:
    """Of eight ranks half of the time is compute, unless said; what is left is exposed, idle and copies."""
    of = {rank: compute.get(rank, 0.5) for rank in RANKS}
    return {
        "compute": {rank: (share,) for rank, share in of.items()},
        "exposed": {rank: (0.8 * (1.0 - share),) for rank, share in of.items()},
        "idle": {rank: (0.15 * (1.0 - share),) for rank, share in of.items()},
        "copy": {rank: (0.05 * (1.0 - share),) for rank, share in of.items()},
    }


def test_a_rank_whose_gpu_time_is_unlike_its_peers() -> None:
    """Who computes for 90 % of the time exposes little; 60 % is too little for EROICA's 0.4."""
    found = unlike_peers(shares({"3": 0.9}), {}, RANKS, seed=0)
    assert found == {("3", part): 1.0 for part in ("compute", "exposed", "idle")}
    assert unlike_peers(shares({"3": 0.6}), {}, RANKS, seed=0) == {}
    assert unlike_peers(shares({}), {}, RANKS, seed=0) == {}


def test_a_part_below_one_percent_is_nothing() -> None:
    """Copies of 0.5 % of rank 3 are a fifth of the others', and no news (equation 11)."""
    assert ("3", "copy") not in unlike_peers(shares({"3": 0.9}), {}, RANKS, seed=0)


def test_utilisation_counts_where_all_ranks_of_the_role_have_it() -> None:
    """Equal shares, and one GPU half as busy while it computes: only mu tells."""
    busy = {rank: (0.4 if rank == "3" else 0.9, 0.1) for rank in RANKS}
    alike = dict.fromkeys(RANKS, (0.99, 0.01))
    sm, engine = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    assert unlike_peers(shares({}), {sm: busy, engine: alike}, RANKS, seed=0) == {("3", "compute"): 1.0}
    without_one = {rank: values for rank, values in busy.items() if rank != "7"}
    assert unlike_peers(shares({}), {sm: without_one, engine: alike}, RANKS, seed=0) == {}
    assert unlike_peers(shares({}), {sm: without_one}, RANKS, seed=0) == {}


def test_ranks_without_the_anatomy_are_left_out() -> None:
    """And three are too few."""
    some = {part: {r: v for r, v in of.items() if r in "2345"} for part, of in shares({"3": 0.9}).items()}
    assert {rank for rank, _ in unlike_peers(some, {}, RANKS, seed=0)} == {"3"}
    few = {part: {r: v for r, v in of.items() if r in "345"} for part, of in some.items()}
    assert unlike_peers(few, {}, RANKS, seed=0) == {}


def test_what_the_checks_find_as_series() -> None:
    """One score a rank; a worker without a name has no label."""
    found = CrossChecks("llm", {"3": 0.25}, {("3", "compute"): 0.875})
    of_rank = (("rank", "3"), ("training_job", "llm"))
    assert dict(series_of(found, "")) == {
        (("__name__", "argus_l3_rhythm_divergence"), *of_rank): 0.25,
        (("__name__", "argus_l3_pattern_distance"), ("part", "compute"), *of_rank): 0.875,
    }


@pytest.mark.servers
def test_from_series_to_a_line_of_diagnose(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an hour of a job of eight whose rank 3 stands still now and then, and whose GPU 3 is less busy.

    Eight GPUs of somebody else on the same Prometheus are not asked for.
    """
    story = Story(prometheus)
    for rank in range(16):
        gpu, ours = {"UUID": f"GPU-{rank}", "gpu": str(rank % 8)}, rank < 8
        mean = 0.4 if rank == 3 or not ours else 0.9
        story.tell("DCGM_FI_PROF_SM_ACTIVE", lambda at, of=mean: of + 0.1 * (at // STEP % 2), **gpu)
        if not ours:
            continue
        story.tell("argus_rank_info", 1.0, rank=str(rank), role="pp0", gpu_uuid=gpu["UUID"])
        stops = 120 if rank == 3 else 0
        stream = {"rank": str(rank), "stream": "compute0"}
        story.tell(
            "argus_kernel_launches_total",
            lambda at, stops=stops: 100.0 * (HOUR + at - max(at + stops, 0)),
            **stream,
        )
        for part, share in (("compute", 0.5), ("exposed", 0.3), ("copy", 0.05), ("idle", 0.15)):
            of_part = {"rank": str(rank), "part": part}
            story.tell("argus_iteration_gpu_seconds_total", lambda at, of=share: of * (HOUR + at), **of_part)
    story.write()
    at = ["--prometheus.url", prometheus.url, "--time", str(story.end)]

    config = tmp_path / "worker.yaml"
    config.write_text("witness: {enabled: true}\n")
    assert main(["once", *at, "--config", str(config), "--write"]) == 0
    ((labels, share),) = prometheus.query("argus_l3_pattern_distance", story.end)
    assert (labels["rank"], labels["part"], share) == ("3", "compute", 1.0)
    assert len(prometheus.query("argus_l3_rhythm_divergence", story.end)) == 8

    capsys.readouterr()
    assert main(["diagnose", *at, "--job", "llm", "--since", "1h"]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("cross-checks"))
    said = re.fullmatch(
        r"cross-checks: rhythm \(KAIR\) farthest on rank 3, (0\.\d\d), median (0\.\d\d); "
        r"GPU time \(EROICA\): rank 3 unlike 100% of its peers in compute",
        line,
    )
    assert said is not None
    # It stands still for two of five minutes; to each of the others that is one distance of seven.
    assert float(said[1]) == pytest.approx(0.4, abs=0.06)
    assert float(said[2]) == pytest.approx(0.4 / 7, abs=0.02)


@pytest.mark.servers
def test_off_nothing_is_asked_and_nothing_said(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default."""
    story = Story(prometheus)
    for rank in RANKS:
        story.tell("argus_rank_info", 1.0, rank=rank, role="pp0")
        for part in ("compute", "idle"):
            of_part = {"rank": rank, "part": part}
            story.tell("argus_iteration_gpu_seconds_total", lambda at: 0.5 * (HOUR + at), **of_part)
    story.write()
    at = ["--prometheus.url", prometheus.url, "--time", str(story.end)]
    assert main(["once", *at, "--write"]) == 0
    assert prometheus.query('{__name__=~"argus_l3_(rhythm|pattern).*"}', story.end) == []
    capsys.readouterr()
    assert main(["diagnose", *at, "--job", "llm", "--since", "1h"]) == 0
    assert "cross-checks" not in capsys.readouterr().out
