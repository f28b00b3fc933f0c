"""What would have been scraped from a job in virtual time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from argus_core import wire
from argus_exporter.intake import records
from argus_exporter.ranks.rank_state import RankState
from argus_simulator.engine.faults import Fault
from argus_simulator.fast_play.history import History, InProcess, record
from argus_simulator.lab import load_scenario

BEGIN_NS = 1_700_000_000 * 10**9
SCENARIO = dataclasses.replace(
    load_scenario("faults/dataload-stall", topology="pipeline", seed=1).compressed(0.5), faults={}
)
"""Sixteen ranks, steps of 1 s, tensor and pipeline parallel."""


class OneByOne(InProcess):
    """Counts spans as the exporter does."""

    def _add_up(self, rank: RankState, spans: NDArray[np.void]) -> None:
        header = wire.Header(wire.MessageType.SPANS, len(spans), 0, 0)
        records.take(rank, header, memoryview(spans.tobytes()), self._bound)


def named(history: History, name: str) -> list[tuple[dict[str, str], NDArray[np.float64]]]:
    """Labels and values of each series of a metric."""
    found = [(dict(labels), values) for labels, (_, values) in history.series.items()]
    return [(labels, values) for labels, values in found if labels["__name__"] == name]


def test_spans_that_are_added_up_count_as_spans_one_by_one():
    """The same series, scrapes and values, but for the rounding of sums."""
    fast = record(SCENARIO, "a", BEGIN_NS, 50.0)
    slow = record(SCENARIO, "a", BEGIN_NS, 50.0, link=lambda host, *rest: OneByOne(host.ranks, *rest))
    assert fast.series.keys() == slow.series.keys()
    for labels, (times, values) in slow.series.items():
        np.testing.assert_array_equal(times, fast.series[labels][0])
        np.testing.assert_allclose(values, fast.series[labels][1], rtol=1e-9, err_msg=str(labels))


def test_a_job_of_steps_of_a_second_is_scraped_every_fifteen():
    """Sixty steps in a minute, and each of the sixteen ranks knows them."""
    history = record(SCENARIO, "a", BEGIN_NS, 1000.0, steps=60)
    assert history.progress.steps == 60
    steps = named(history, "argus_iteration_duration_seconds_count")
    assert {int(labels["rank"]) for labels, _ in steps} == set(range(16))
    for _, values in steps:
        assert len(values) in (4, 5)
        np.testing.assert_allclose(np.diff(values), 15, atol=1)


def test_a_job_that_hangs_is_there_until_its_end():
    """Also where the end lies between two nanoseconds."""
    hanging = load_scenario("faults/hang-noncomm", topology="pipeline", seed=1).compressed(0.5)
    [(name, fault)] = hanging.faults.items()
    hanging = dataclasses.replace(hanging, faults={name: dataclasses.replace(fault, onset_step=5)})
    history = record(hanging, "a", BEGIN_NS, 30.0000000004)
    assert (history.progress.hung, history.progress.steps) == (True, 5)
    assert history.end_ms - history.begin_ms == 30_000


def test_hardware_counters_say_what_the_fault_does_to_the_gpu():
    """The slow rank's clock is lower by the fault's factor from its onset on, and its reason is there."""
    throttled = load_scenario("faults/gpu-throttle", topology="dense", seed=1).compressed(0.5)
    [(name, fault)] = throttled.faults.items()
    [slow] = fault.ranks
    throttled = dataclasses.replace(throttled, faults={name: dataclasses.replace(fault, onset_step=30)})
    history = record(throttled, "a", BEGIN_NS, 1000.0, steps=80)
    infos = named(history, "argus_rank_info")
    gpus = {labels["gpu_uuid"]: int(labels["rank"]) for labels, _ in infos}
    for labels, values in named(history, "DCGM_FI_DEV_SM_CLOCK"):
        lowest = 1980 / fault.factor if gpus[labels["UUID"]] == slow else 1980
        assert (values[0], values[-1]) == (1980, round(lowest))
    reasons = {
        gpus[labels["UUID"]]: values[-1]
        for labels, values in named(history, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    }
    assert reasons == {rank: 64.0 if rank == slow else 0.0 for rank in range(16)}


def test_a_healthy_job_has_hardware_counters_too():
    """Or whoever has some would be at fault: an Xid of one GPU that is as fast as before."""
    control = load_scenario("controls/benign-events", topology="dense", seed=1).compressed(0.5)
    [(name, event)] = control.faults.items()
    control = dataclasses.replace(control, faults={name: dataclasses.replace(event, onset_step=10)})
    history = record(control, "a", BEGIN_NS, 1000.0, steps=60)
    last = sorted(values[-1] for _, values in named(history, "DCGM_FI_DEV_XID_ERRORS"))
    assert last == [0.0] * 15 + [63.0]
    healthy = record(dataclasses.replace(control, faults={}), "a", BEGIN_NS, 1000.0, steps=60)
    assert history.progress.step_ends == healthy.progress.step_ends


def test_hardware_counters_go_on_where_the_job_hangs():
    """A GPU that has fallen off the bus: its Xid comes when no step ends any more."""
    hanging = load_scenario("faults/hang-noncomm", topology="pipeline", seed=1).compressed(0.5)
    [(name, fault)] = hanging.faults.items()
    lost = dataclasses.replace(fault, onset_step=5, counters="xid-79")
    history = record(dataclasses.replace(hanging, faults={name: lost}), "a", BEGIN_NS, 60.0)
    assert history.progress.hung
    of_rank = [values[-1] for _, values in named(history, "DCGM_FI_DEV_XID_ERRORS")]
    assert sorted(of_rank) == [0.0] * 15 + [79.0]


def test_a_job_restarts_on_more_hosts_than_it_had():
    """Those have exporters too."""
    fewer = dataclasses.replace(SCENARIO.topology, dp=2)
    grows = Fault("restart", tuple(range(8)), onset_step=5, dp=4)
    scenario = dataclasses.replace(SCENARIO, topology=fewer, faults={"grows": grows})
    history = record(scenario, "a", BEGIN_NS, 60.0)
    assert {labels["rank"] for labels, _ in named(history, "argus_rank_info")} == set(map(str, range(16)))


def test_without_counters_nobody_asks_the_hardware():
    """As on a site without dcgm-exporter."""
    assert named(record(SCENARIO, "a", BEGIN_NS, 40.0), "DCGM_FI_DEV_SM_CLOCK") == []


def test_experts_have_the_units_of_work_that_megatrons_hooks_count():
    """Only what is routed to a rank depends on its experts: samples and tokens are as many on all ranks."""
    experts = load_scenario("faults/moe-imbalance", topology="moe", seed=1).compressed(0.5)
    [(name, fault)] = experts.faults.items()
    [popular] = fault.ranks
    experts = dataclasses.replace(experts, faults={name: dataclasses.replace(fault, onset_step=0)})
    done: dict[str, dict[int, float]] = {}
    for labels, values in named(record(experts, "a", BEGIN_NS, 60.0), "argus_work_units_total"):
        done.setdefault(labels["unit"], {})[int(labels["rank"])] = values[np.isfinite(values)][-1]
    assert set(done) == {"routed_tokens", "samples", "tokens"}
    a_step = {unit: of[popular] / done["samples"][popular] for unit, of in done.items()}
    others = {unit: of[popular ^ 8] / done["samples"][popular ^ 8] for unit, of in done.items()}
    assert a_step["tokens"] == others["tokens"] == others["routed_tokens"]
    assert a_step["routed_tokens"] > 1.5 * others["routed_tokens"]


def test_a_job_has_the_model_that_it_is_given():
    """By which it is compared with its past."""
    history = record(SCENARIO, "a", BEGIN_NS, 40.0, model="m")
    assert {labels["model"] for labels, _ in named(history, "argus_job_info")} == {"m"}


def test_with_kernels_phases_have_an_anatomy():
    """By the exporter, from marks and spans on the GPU: parts add up to the span, and to the iteration."""
    scenario = load_scenario("healthy", seed=1)
    history = record(scenario, "a", BEGIN_NS, 60.0)
    last = {
        (labels["__name__"], labels.get("phase"), labels.get("part")): values[-1]
        for labels, values in (pair for name in GPU_PARTS for pair in named(history, name))
        if labels["rank"] == "0"
    }
    for phase in ("forward", "backward", "optimizer"):
        parts = sum(last["argus_phase_gpu_seconds_total", phase, part] for part in PARTS)
        spans = last["argus_phase_gpu_spans_total", phase, None]
        usual = (
            last["argus_phase_duration_seconds_sum", phase, None]
            / last["argus_phase_duration_seconds_count", phase, None]
        )
        assert parts / spans == pytest.approx(usual, rel=0.02)
    iterations = sum(last["argus_iteration_gpu_seconds_total", None, part] for part in PARTS)
    assert iterations == pytest.approx(last["argus_iteration_duration_seconds_sum", None, None], rel=0.15)


PARTS = ("compute", "exposed", "copy", "idle")
GPU_PARTS = (
    "argus_phase_gpu_seconds_total",
    "argus_phase_gpu_spans_total",
    "argus_iteration_gpu_seconds_total",
    "argus_phase_duration_seconds_sum",
    "argus_phase_duration_seconds_count",
    "argus_iteration_duration_seconds_sum",
)
