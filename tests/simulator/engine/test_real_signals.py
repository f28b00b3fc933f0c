"""At the levels of real signals the lab sends what hooks send, and nothing else."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from argus_core import wire
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape, JobStep
from argus_simulator.engine.settings import ModelSettings, NoiseSettings
from argus_simulator.topology import Topology

QUIET = NoiseSettings(
    step_cv=0, kernel_cv=0, rank_cv=0, host_cv=0, body_cv=0, launch_cv=0, loader_cv=0, outlier_probability=0
)
SHAPES = {
    "ddp": Topology(dp=8, tp=1, pp=1),
    "hybrid": Topology(dp=2, tp=2, pp=2),
    "experts": Topology(dp=8, tp=1, pp=1, ep=4),
    "sharded": Topology(dp=8, tp=1, pp=1),
    "tensors": Topology(dp=2, tp=4, pp=1),
}
FRAMEWORK = {"sharded": "fsdp2", "tensors": "fsdp2"}
"""Of two dimensions: FSDP2 over DTensor."""
OWN = {"data", "forward", "backward", "optimizer"}
MEGATRON = OWN | {
    "all_reduce", "dp-grads-sync", "tp-grads-allreduce", "pp-embedding-grads-allreduce",
    "pp-embedder-grads-allreduce",
}  # fmt: skip
SENT = {
    "ddp": {"data", "forward", "backward", "dp-allreduce", "optimizer"},
    "hybrid": MEGATRON | {
        "all_reduce-wait", "pp-forward-send", "pp-forward-recv", "pp-backward-send", "pp-backward-recv",
        "pp-forward-send-backward-recv", "pp-backward-send-forward-recv",
    },
    "experts": MEGATRON | {"all_to_all_single", "all_gather_into_tensor"},
    "sharded": {
        "data", "forward", "backward", "optimizer", "all_gather_single", "dp-unshard-wait",
        "reduce_scatter_single", "dp-reduce-scatter", "functional-wait",
    },
}  # fmt: skip
SENT["tensors"] = SENT["sharded"]
WAITS_REMAIN = {shape: {"backward"} for shape in FRAMEWORK}
"""Phases in which a rank waits for others without a span of its own."""


def step(shape: str, *faults: Fault) -> JobStep:
    """The second step of a quiet job: what hooks say of it."""
    model = ModelSettings(signals="hooks", framework=FRAMEWORK.get(shape, ""))
    job = Job(JobShape(SHAPES[shape], 0.5, model, noise=QUIET), faults, 1)
    job.next_step()
    return job.next_step()


def exclusive(done: JobStep, rank: int) -> dict[str, float]:
    """Seconds by phase, without what lies in other phases; not of streams beside that of the computation."""
    seconds: dict[str, float] = defaultdict(float)
    for span in done.spans_of(rank):
        phase = done.plan.span_texts[span["phase_id"] - 1]
        if phase.endswith("_single") and phase != "all_to_all_single":
            continue
        seconds[phase] += span["duration_ns"] / 1e9 - float(span["nested_seconds"])
    return dict(seconds)


@pytest.mark.parametrize("shape", SHAPES)
def test_phases_are_those_of_the_framework(shape: str) -> None:
    done = step(shape)
    found = set().union(*(exclusive(done, rank) for rank in range(8)))
    apart = {phase for phase in SENT[shape] if phase in ("all_gather_single", "reduce_scatter_single")}
    assert found == SENT[shape] - apart
    assert apart <= set(done.plan.span_texts)


@pytest.mark.parametrize("shape", SHAPES)
def test_phases_add_up_to_no_more_than_the_iteration(shape: str) -> None:
    """And to nearly all of it, without a phase for the rest."""
    done = step(shape)
    for rank in range(8):
        iteration = float(done.end_ns[rank] - done.start_ns[rank]) / 1e9
        assert 0.9 * iteration <= sum(exclusive(done, rank).values()) <= iteration


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slow_gpu_has_the_longest_passes_and_the_others_their_own(shape: str) -> None:
    """However much the others wait for it: within 2 % of a job without a slow one."""
    slow = 5
    fault = Fault(mechanism="kernels", ranks=(slow,), factor=1.5, onset_step=0)
    healthy, faulty = step(shape), step(shape, fault)
    for rank in range(8):
        for phase in {"forward", "backward"} - WAITS_REMAIN.get(shape, set()):
            ratio = exclusive(faulty, rank)[phase] / exclusive(healthy, rank)[phase]
            assert ratio == pytest.approx(1.5 if rank == slow else 1.0, rel=0.02), phase


def test_fsdps_backward_waits_for_a_slow_rank_where_no_span_says_so() -> None:
    """For the scattering of the layer before, whose memory is freed."""
    fault = Fault(mechanism="kernels", ranks=(5,), factor=1.5, onset_step=0)
    healthy, faulty = step("sharded"), step("sharded", fault)
    assert exclusive(faulty, 0)["backward"] > 1.05 * exclusive(healthy, 0)["backward"]


def test_who_waits_for_gradients_waits_from_the_end_of_its_backward_on() -> None:
    """Also while the collectives of the layers before have not begun, for which a slow rank is missing."""
    fault = Fault(mechanism="kernels", ranks=(5,), factor=1.5, onset_step=0)
    healthy, faulty = step("ddp"), step("ddp", fault)
    longer = float(faulty.end_ns[0] - faulty.start_ns[0] - (healthy.end_ns[0] - healthy.start_ns[0])) / 1e9
    waited = exclusive(faulty, 0)["dp-allreduce"] - exclusive(healthy, 0)["dp-allreduce"]
    assert waited == pytest.approx(longer, rel=0.05)


def test_the_host_enters_a_collective_before_the_gpu_comes_to_it() -> None:
    """Also gradients, which travel from C++: once a layer."""
    done = step("hybrid")
    plan = done.plan
    own = plan.comm[(plan.rank[plan.comm] == 0) & (plan.exchange[plan.comm] >= 0)]
    groups = [plan.groups[plan.group_of_exchange[plan.exchange[node]]][1] for node in own]
    assert groups.count("dp") == 2
    assert groups.count("tp") == 4 * 2 * 2 * 2  # microbatches, layers, halves of a layer, directions
    assert np.all(done.times.host[own] < done.times.arrival[own])


def test_kinds_are_those_of_hooks() -> None:
    done = step("hybrid")
    kinds = {done.plan.span_texts[one["phase_id"] - 1]: wire.Kind(int(one["kind"])) for one in done.spans}
    assert {phase for phase, kind in kinds.items() if kind == wire.Kind.COMPUTE} == {
        "forward", "backward", "optimizer",
    }  # fmt: skip
