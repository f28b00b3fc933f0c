"""The dimension of a communicator is found where it can be known, and left open where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core.kernel_names import collective_phase
from argus_exporter.kernels.communicators import CollectiveSpan, find_dimensions
from argus_exporter.kernels.pairs import find_pairs
from argus_exporter.place.topology import Identity
from argus_training.torch_hooks.collectives import COLLECTIVES
from exporter.kernel_rows import NAMES, kernels

ALL_REDUCE, SEND_RECV = kernels((0, 10, 2, 20)), kernels((0, 10, 4, 21))


def dimensions(records, identity, spans=(), routing=None) -> dict[int, str]:
    return find_dimensions(records, find_pairs(records), NAMES, identity, spans, routing)


def rank(**sizes: int) -> Identity:
    return Identity("job", 0, coordinates=dict.fromkeys(sizes, 0), sizes=sizes)


@pytest.mark.parametrize(
    ("sizes", "records", "dimension"),
    [
        ({"dp": 8}, ALL_REDUCE, "dp"),
        ({"dp": 8, "tp": 1, "pp": 1}, ALL_REDUCE, "dp"),
        ({"dp": 1, "tp": 8}, ALL_REDUCE, "tp"),
        ({"dp": 4, "tp": 1, "pp": 2}, ALL_REDUCE, "dp"),
        ({"dp": 4, "tp": 2, "pp": 2}, SEND_RECV, "pp"),
        ({"dp": 8, "ep": 4}, SEND_RECV, "ep"),
        ({"dp": 4, "tp": 2}, ALL_REDUCE, None),
        ({"dp": 8, "pp": 2, "ep": 2}, SEND_RECV, None),
        ({"dp": 1}, ALL_REDUCE, None),
        ({"dp": 8}, SEND_RECV, "dp"),
        ({"dp": 8, "pp": 2}, np.concatenate([ALL_REDUCE, kernels((0, 10, 4, 20))]), None),
        ({"dp": 8}, np.concatenate([ALL_REDUCE, kernels((0, 10, 4, 20))]), "dp"),
    ],
)
def test_one_dimension_that_is_able_is_the_one(sizes, records, dimension):
    """By elimination; two candidates are none."""
    assert list(dimensions(records, rank(**sizes)).values()) == ([dimension] if dimension else [])


def test_streams_of_compute_have_no_dimension():
    """Only collectives are asked about."""
    assert dimensions(kernels((0, 10, 1, 7)), rank(dp=8)) == {}


def test_the_users_routing_comes_first():
    """`all_reduce: tp` settles what the topology leaves open; a catch-all pattern says nothing about it."""
    identity = rank(dp=4, tp=2)
    assert dimensions(ALL_REDUCE, identity, routing={"all_*": "tp"}) == {20: "tp"}
    assert dimensions(ALL_REDUCE, identity, routing={"*": "tp"}) == {}


def span(begin_us: int, end_us: int, dimension: str, *, on_device: bool = False) -> CollectiveSpan:
    return CollectiveSpan(begin_us * 1000, end_us * 1000, dimension, on_device)


MS = 1_000_000


def test_kernels_launched_inside_host_spans_are_theirs():
    """The call that launches is on the host's clock; the kernel starts 3 ms later."""
    launches = [10 * MS, 20 * MS, 30 * MS]
    records = kernels(*((at + 3 * MS, MS, 2, 20, 3 * MS) for at in launches))
    spans = [span(at // 1000 - 20, at // 1000 + 20, "tp") for at in launches]
    assert dimensions(records, rank(dp=4, tp=2), spans) == {20: "tp"}
    assert dimensions(records, rank(dp=4, tp=2), spans[:2]) == {}, "two kernels are too few"


def test_kernels_that_ran_inside_event_spans_are_theirs():
    """CUDA events around a collective hold its kernel, launch time known or not."""
    records = kernels(*((at * MS, MS, 2, 20) for at in (10, 20, 30)))
    spans = [span(at * 1000 - 50, at * 1000 + 1050, "tp", on_device=True) for at in (10, 20, 30)]
    assert dimensions(records, rank(dp=4, tp=2), spans) == {20: "tp"}


def test_the_whole_jobs_collective_is_not_taken_for_the_replicas():
    """Stages leave the backward one after another: across them the norm of gradients accuses the last."""
    norm = kernels(*((at * MS, MS, 2, 21) for at in (15, 25, 35)))
    both = np.concatenate([kernels(*((at * MS, MS, 2, 20) for at in (10, 20, 30))), norm])
    pipeline = rank(dp=4, pp=4)
    assert dimensions(both, pipeline) == {}, "nothing tells which of the two is which"
    spans = [span(at * 1000 - 50, at * 1000 + 1050, "world", on_device=True) for at in (15, 25, 35)]
    assert dimensions(both, pipeline, spans) == {20: "dp", 21: "world"}
    assert dimensions(both, rank(dp=8)) == {20: "dp", 21: "dp"}, "here the whole job is the replicas"


def test_contradicting_evidence_leaves_it_open():
    """Half of the kernels ran while the other group's collectives did."""
    records = kernels(*((at * MS, MS, 2, 20) for at in range(10, 50, 5)))
    spans = [
        span(at * 1000, at * 1000 + 1000, "tp" if at % 10 else "dp", on_device=True)
        for at in range(10, 50, 5)
    ]
    assert dimensions(records, rank(dp=4, tp=2), spans) == {}


def test_kernels_and_host_calls_share_their_words():
    """A user finds `all_reduce` from both; NCCL has one kernel for sends, receives and all-to-all."""
    nccl = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "SendRecv")
    names = [collective_phase(f"ncclDevKernel_{operation}_Sum_f32_RING_LL") for operation in nccl]
    assert names == ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send_recv"]
    assert set(names) - {"send_recv"} <= set(COLLECTIVES)


@pytest.mark.parametrize(
    "name",
    [
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_Sum_bf16(ncclSymDevArgs)",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_Sum_f32(ncclSymkDevWorkArgs4K)",
    ],
)
def test_every_release_of_nccl_says_all_reduce_in_its_way(name):
    """Names of five generations."""
    assert collective_phase(name) == "all_reduce"


@pytest.mark.parametrize("name", ["gemm", "ncclKernel", "ncclDevKernel_Generic", "ncclKernel_Generic(int)"])
def test_a_kernel_that_names_no_operation_is_no_phase(name):
    """NCCL's generic kernel runs any of them."""
    assert collective_phase(name) is None
