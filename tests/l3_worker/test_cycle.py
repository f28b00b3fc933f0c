"""Cycles that get less than they asked for: too little time, rubbish; and what they write first."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench.servers import PrometheusServer

from argus_core import catalogue, remote_write
from argus_l3_worker.config import Config
from argus_l3_worker.cycle import CycleReport, Worker
from argus_l3_worker.judge.verdicts import culprits
from argus_l3_worker.read.fetch import shards, work_of_steps
from argus_l3_worker.read.prometheus import Sample
from argus_l3_worker.telemetry import Telemetry
from l3_worker.backends import Backend
from l3_worker.cycles import cycles, one_cycle
from l3_worker.fleets import fleet
from l3_worker.published_fleet import Fleet

pytestmark = pytest.mark.servers


def counter(job: str, name: str, value: float, stamp: float, **labels: str) -> bytes:
    named = remote_write.labels_of(name, training_job=job, **labels)
    return remote_write.encode_series(named, value, round(stamp * 1000))


# What is written first


@pytest.mark.parametrize(("status", "delivered"), [(204, True), (409, False)])
def test_what_rules_read_is_the_first_request_and_decides_whether_the_cycle_was_delivered(
    status: int, delivered: bool
) -> None:
    """The success stamp comes before how long the cycle took; refused, the cycle counts as failed."""
    telemetry = Telemetry()
    with Backend() as backend:
        backend.write_statuses = [status]
        report = cycles(backend.url, lambda worker: worker.cycle(60.0, 60.0), telemetry)
    written = [request for request in backend.requests if request.path == "/api/v1/write"]
    names = [
        [dict(remote_write.decode_labels(one))["__name__"] for one in remote_write.unpack(request.body)]
        for request in written
    ]
    assert names == [["argus_l3_last_success_timestamp_seconds"], ["argus_l3_cycle_seconds"]]
    assert report.delivered is delivered
    assert telemetry.registry.get_sample_value(
        "argus_l3_worker_cycles_total", {"result": "success"}
    ) == float(delivered)


# Whom it is told to


def test_a_cause_is_for_the_team_that_the_configuration_names(prometheus: PrometheusServer) -> None:
    """As the rules of a site name another than the table of causes does."""
    now = float(int(time.time()))
    job = Fleet(prometheus)
    for window in range(3):
        for scrape in range(4):
            at = now - 60 * (2 - window) - 15 * (3 - scrape)
            job.publish(at, 64 * (window + 1), fleet(8, seed=window, slow={"3": 1.2}))
    report = cycles(prometheus.url, lambda worker: worker.cycle(now, now), teams={"gpu-compute": "hardware"})
    assert {(one.cause, one.team) for one in report.verdicts} == {("gpu-compute", "hardware")}
    written = prometheus.query("argus_l3_anomaly", now)
    assert {labels["team"] for labels, _ in written} == {"hardware"}


def test_a_team_of_no_cause_is_refused() -> None:
    """A misspelt cause would leave its team as it was, and nobody would know."""
    with pytest.raises(ValueError, match=r"teams\.gpu-compote names no cause; allowed: .*gpu-compute"):
        Config(teams={"gpu-compote": "hardware"})


# Too little time


def test_shards_keep_the_order_and_the_bound() -> None:
    """Kernels in their order, 100 series a shard; one that is larger stands alone."""
    size = {"a": 60.0, "b": 40.0, "c": 1.0, "huge": 500.0, "d": 5.0}
    assert shards(["a", "b", "c", "huge", "d"], size, 100) == [["a", "b"], ["c"], ["huge"], ["d"]]


def test_a_cycle_without_time_judges_the_largest_kernel_and_says_what_it_left_out(
    prometheus: PrometheusServer,
) -> None:
    """Budget used up at once: the kernel with most time is judged, the others are named and counted."""
    now = float(int(time.time()))
    job = Fleet(prometheus)
    job.publish(now, 64, fleet(8, seed=0, slow={"3": 1.5}))
    seconds = {"flash_fwd": 9.0, "gemm_128x128": 5.0, "rms_norm": 1.0, "Memcpy_HtoD": 0.5}
    prometheus.write(
        [
            counter("llm", catalogue.KERNEL_DURATION_TOTAL.name, share * times, at, rank="0", kernel=name)
            for at, times in ((now - 60, 0.0), (now, 1.0))
            for name, share in seconds.items()
        ]
    )
    telemetry = Telemetry()
    report = cycles(
        prometheus.url,
        lambda worker: worker.cycle(now, now, 1e-9),
        telemetry,
        shard_series=1,
        concurrency=1,
    )
    (judged,) = report.judgements
    assert [pair.kernel for pair in judged.pairs] == ["flash_fwd"]
    (abstention,) = report.abstentions
    assert (abstention.reason, "4 of 5 kernels" in abstention.detail) == ("overload", True)
    assert (
        telemetry.registry.get_sample_value("argus_l3_worker_kernels_left_out", {"training_job": "llm"}) == 4
    )
    assert prometheus.query('argus_l3_abstain{reason="overload"}', now)


def test_a_report_is_not_written_out_when_asyncio_ends_with_it(prometheus: PrometheusServer) -> None:
    """`asyncio.run` makes a text of what its task returns: of 10,240 ranks longer than the cycle took."""
    now = float(int(time.time()))
    Fleet(prometheus).publish(now, 64, fleet(8, seed=0))
    report = one_cycle(prometheus.url, now)
    assert report.judgements
    assert len(repr(report)) < 100


def test_a_cycle_with_time_leaves_nothing_out(prometheus: PrometheusServer) -> None:
    """One kernel a query, in any order: the same judgement as by one query."""
    now = float(int(time.time()))
    Fleet(prometheus).publish(now, 64, fleet(8, seed=0, slow={"3": 1.5}))
    whole = one_cycle(prometheus.url, now)
    parts = one_cycle(prometheus.url, now, budget=600.0, shard_series=1)
    assert parts.abstentions == whole.abstentions == ()
    assert np.array_equal(parts.judgements[0].rank_shift, whole.judgements[0].rank_shift)
    assert [p.kernel for p in parts.judgements[0].pairs] == [p.kernel for p in whole.judgements[0].pairs]


def test_windows_without_marked_steps_are_told_apart_by_time(prometheus: PrometheusServer) -> None:
    """One a minute: three at first, none ten seconds later, then the next."""
    now = float(int(time.time()))
    Fleet(prometheus).publish(now - 130.0, 0, fleet(8, seed=0, slow={"3": 1.5}), steps=0)

    async def minute(worker: Worker) -> list[CycleReport]:
        return [await worker.cycle(at, at) for at in (now, now + 10.0, now + 60.0)]

    reports: list[CycleReport] = cycles(prometheus.url, minute)
    assert [one.windows_judged for one in reports] == [3, 0, 1]
    assert all(culprits(one.verdicts) == ["3"] for one in reports)


def test_a_kernel_that_no_sampled_rank_runs_is_found(prometheus: PrometheusServer) -> None:
    """200 ranks, of which 64 tell what kernels there are: one that rank 1 alone runs is asked for too."""
    now = float(int(time.time()))
    modes = fleet(200, seed=0)
    modes["1"][("fallback_gemm", "compute0")] = [(5e-3, 5.2e-3, 64)]
    modes["1"][("odd.name[1]", "compute0")] = [(5e-3, 5.2e-3, 64)]
    Fleet(prometheus).publish(now, 64, modes)
    (judged,) = one_cycle(prometheus.url, now, shard_series=500).judgements
    assert {kernel for kernel, _, _ in judged.not_compared} == {"fallback_gemm", "odd.name[1]"}
    assert len(judged.pairs) == 5
    assert {len(pair.ranks) for pair in judged.pairs} == {200}


# What modes do not say


def test_a_tail_is_as_long_as_the_running_totals_say(prometheus: PrometheusServer) -> None:
    """5 % of rank 3's launches lie outside of its modes, six times; its mean launch takes 40 % longer."""
    now = float(int(time.time()))
    before = range(300, -1, -60)
    for number, at in enumerate((now - seconds for seconds in before), 1):
        Fleet(prometheus).publish(at, 64 * number, fleet(8, seed=number))
        prometheus.write(
            [
                counter(
                    "llm", catalogue.KERNEL_TAIL_EVENTS.name, 100.0 if rank == 3 else 4.0, at,
                    rank=str(rank), kernel="flash_fwd", stream="compute0",
                )
                for rank in range(8)
            ]
        )  # fmt: skip
    prometheus.write(
        [
            counter(
                "llm", family.name, times * each, at, rank=str(rank), kernel="flash_fwd", stream="compute0"
            )
            for at, times in ((now - 60, 0.0), (now - 30, 1.0), (now, 2.0))
            for rank in range(8)
            for family, each in (
                (catalogue.KERNEL_LAUNCHES, 2048.0),
                (catalogue.KERNEL_DURATION_TOTAL, 2.8 if rank == 3 else 2.0),
            )
        ]
    )

    async def a_cycle_each(worker: Worker) -> list[CycleReport]:
        return [await worker.cycle(now - seconds, now - seconds) for seconds in before]

    (verdict,) = cycles(prometheus.url, a_cycle_each)[-1].verdicts
    assert (verdict.rank, verdict.kernel, verdict.cause, verdict.windows) == ("3", "all", "gpu-memory", 6)
    assert np.expm1(verdict.shift) == pytest.approx(0.4, abs=0.01)
    assert prometheus.query('argus_l3_anomaly{cause="gpu-memory", rank="3", team="operations"} > 0.39', now)


def test_work_is_that_of_the_windows_own_steps(prometheus: PrometheusServer) -> None:
    """Hot experts in the last two windows of 20 s: over minutes the rank has hardly more tokens."""
    now = float(int(time.time()))
    for number in range(4):
        slow = {"3": 1.38} if number >= 2 else None
        Fleet(prometheus).publish(now - 60 + 20 * number, 64 * (number + 1), fleet(8, number, slow))
    totals = np.zeros(8)
    for at in np.arange(now - 300, now + 1, 5):
        totals += np.where((np.arange(8) == 3) & (at > now - 40), 7000.0, 5000.0)
        prometheus.write(
            [
                counter("llm", name, value, at, rank=str(rank), **labels)
                for rank in range(8)
                for name, value, labels in (
                    (catalogue.WORK_UNITS.name, totals[rank], {"unit": "tokens"}),
                    (f"{catalogue.ITERATION_DURATION.name}_count", totals[0] / 1000.0, {}),
                )
            ]
        )
    found = one_cycle(prometheus.url, now).verdicts
    assert {(one.rank, one.cause) for one in found} == {("3", "workload")}


def test_work_of_a_step_is_known_although_scrapes_cut_steps() -> None:
    """Rank 1 was scraped one step of ten earlier; without steps there are seconds."""
    units = [Sample({"rank": "0"}, 1000.0), Sample({"rank": "1"}, 900.0)]
    steps = [Sample({"rank": "0"}, 0.5), Sample({"rank": "1"}, 0.45), Sample({"rank": "2"}, 0.5)]
    assert [one.value for one in work_of_steps(units, steps)] == pytest.approx([2000.0, 2000.0])
    assert work_of_steps(units, steps[:1]) == units
    assert work_of_steps(units, [replace(one, value=0.0) for one in steps]) == units


@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -5.0, 1e300])
def test_an_implausible_tail_is_not_known(prometheus: PrometheusServer, rubbish: float) -> None:
    """The rank's modes are judged as ever."""
    now = float(int(time.time()))
    Fleet(prometheus).publish(now, 64, fleet(8, seed=0))
    tail = catalogue.KERNEL_TAIL_EVENTS.name
    prometheus.write([counter("llm", tail, rubbish, now, rank="3", kernel="k", stream="compute0")])
    report = one_cycle(prometheus.url, now)
    assert report.verdicts == () and len(report.judgements) == 1
    assert np.isfinite(published(prometheus, now)).all()


# Bad data


def spoiled(now: float, spoil: Callable[[dict[str, Any]], None], server: PrometheusServer) -> CycleReport:
    for window in range(3):
        job = Fleet(server)
        modes: dict[str, Any] = fleet(8, seed=window)
        spoil(modes)
        job.publish(now - 60.0 * (2 - window), 64 * (window + 1), modes)
    return one_cycle(server.url, now)


def published(server: PrometheusServer, now: float) -> list[float]:
    return [value for _, value in server.query('{__name__=~"argus_l3_.+"}', now)]


NAN = math.nan


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ((NAN, NAN, NAN), "incomplete or not finite"),
        ((1e-3, NAN, 100), "incomplete or not finite"),
        ((math.inf, math.inf, 100), "incomplete or not finite"),
        ((1e-3, 1e-4, 100), "p99 below p50"),
        ((1e-3, 2e-3, 0), "without events"),
        ((1e-3, 2e-3, -5), "without events"),
        ((-1e-3, 2e-3, 100), "implausible duration or count"),
        ((1e-300, 1e300, 100), "implausible duration or count"),
        ((1e-3, 2e-3, 1e300), "implausible duration or count"),
    ],
)
def test_a_bad_triple_is_left_out_with_the_reason(
    prometheus: PrometheusServer, mode: tuple[float, float, float], reason: str
) -> None:
    """One of rank 2's kernels is rubbish: it is counted, the rest judged, nothing but numbers comes out."""
    now = float(int(time.time()))

    def spoil(modes: dict[str, Any]) -> None:
        modes["2"]["rms_norm", "compute0"] = [mode]

    report = spoiled(now, spoil, prometheus)
    if not math.isnan(mode[2]):  # Prometheus stores NaN, but answers of NaN counts are no rows at all
        assert [(one.reason, one.modes) for one in report.left_out] == [(reason, 1)]
    assert [len(one.ranks) for one in report.judgements] == [8]
    assert report.verdicts == ()
    values = published(prometheus, now)
    assert len(values) > 8 and np.isfinite(values).all()


@pytest.mark.parametrize(("ranks", "kernels"), [(1, 5), (2, 5), (8, 1), (1, 1)])
def test_the_smallest_jobs_are_judged_or_abstained_from(
    prometheus: PrometheusServer, ranks: int, kernels: int
) -> None:
    """One rank, two ranks, one kernel: a result or a reason, and numbers only."""
    now = float(int(time.time()))
    modes = {rank: dict(list(pairs.items())[:kernels]) for rank, pairs in fleet(ranks, seed=0).items()}
    Fleet(prometheus).publish(now, 64, modes)
    report = one_cycle(prometheus.url, now)
    assert len(report.judgements) + len(report.abstentions) == 1
    assert np.isfinite(published(prometheus, now)).all()


def test_ranks_without_kernels_or_identity_or_role_are_named(prometheus: PrometheusServer) -> None:
    """A rank that publishes no kernels, one that nobody knows, and series without any rank."""
    now = float(int(time.time()))
    modes: dict[str, Any] = fleet(8, seed=0)
    modes["5"] = {}
    Fleet(prometheus, role="").publish(now, 64, modes)
    stranger = {"kernel": "gemm_128x128", "stream": "compute0", "mode": "0"}
    families = (catalogue.KERNEL_MODE_EVENTS, catalogue.KERNEL_MODE_P50, catalogue.KERNEL_MODE_P99)
    prometheus.write(
        [
            counter("llm", family.name, value, now, **stranger, **labels)
            for family, value in zip(families, (100.0, 1e-3, 2e-3), strict=True)
            for labels in ({"rank": "99"}, {})
        ]
        + [counter("llm", catalogue.KERNEL_WINDOW_LAST_STEP.name, 64.0, now)]
        + [counter("llm", catalogue.RANK_INFO.name, 1.0, now)]
    )
    report = one_cycle(prometheus.url, now)
    assert [(one.rank, one.reason) for one in report.not_judged] == [("5", "no kernel window")]
    assert {one.reason: one.modes for one in report.left_out} == {
        "of a rank without argus_rank_info": 1,
        "without rank or kernel": 1,
    }
    assert [(one.role, len(one.ranks)) for one in report.judgements] == [("all", 7)]


def test_a_flood_of_rubbish_is_survived(prometheus: PrometheusServer) -> None:
    """Thousands of kernels that one rank has alone, with any value at all: the cycle ends and says so.

    ARGUS_RUBBISH_SERIES=1000000 plays the full flood.
    """
    total = int(os.environ.get("ARGUS_RUBBISH_SERIES", "6000"))
    now = float(int(time.time()))
    Fleet(prometheus).publish(now, 64, fleet(8, seed=0))
    rng = np.random.default_rng(0)
    wild = np.array([NAN, math.inf, -math.inf, 0.0, -1.0, 1e-300, 1e300, 1e-3, 50.0])
    families = (catalogue.KERNEL_MODE_EVENTS, catalogue.KERNEL_MODE_P50, catalogue.KERNEL_MODE_P99)
    batch: list[bytes] = []
    for number in range(total // 3):
        where = {"rank": str(rng.integers(0, 12)), "kernel": f'k{number}\\"{{é', "stream": "s", "mode": "x"}
        batch += [counter("llm", family.name, float(rng.choice(wild)), now, **where) for family in families]
        if len(batch) >= 20_000:
            prometheus.write(batch)
            batch = []
    prometheus.write(batch)
    report = one_cycle(prometheus.url, now, budget=60.0, max_kernels=max(1000, total // 100))
    assert report.verdicts == ()
    assert [one.reason for one in report.abstentions] == ["overload"]
    assert report.left_out
    assert np.isfinite(published(prometheus, now)).all()
