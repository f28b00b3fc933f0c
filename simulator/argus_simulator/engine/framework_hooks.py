"""What the hooks of a real framework send, by the shape of the job. How that is known: contract.yaml."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from argus_core import wire
from argus_simulator.topology import Topology


@dataclass(frozen=True)
class FrameworkHooks:
    """Of one framework.

    Attributes:
        gradients: phase of the wait for gradients after the backward.
        operations: phase of each collective that Python calls, by our name of the operation.
        waits: along which dimensions a phase may wait in its exclusive time, where its name does not say so;
            empty: nobody knows.
        sharded: each rank holds a part of every layer, which is gathered for each pass; tensor-parallel
            collectives are DTensor's, of which the forward's waits are told and the backward's are not.
        tensor_backward: phase of a tensor-parallel collective of the backward, where Python waits for what it
            has called before.
        experts: operations that bring tokens to their experts, and back.
        transfers: phase of the wait for transfers between stages, by what is waited for together; the
            computation waits for what it sends, too. Empty: `send` and `recv` of each direction, as Megatron
            calls them.
        fused: phase of a send that travels together with a receive, where that has one of its own.
        finished: phases after the gradients' in which nothing is to do where the job has no such group.
        norm: of gradients, reduced over all ranks.
        whole_batch: the loader is asked once a step and not for each micro-batch: the framework divides it.
    """

    name: str
    gradients: str
    operations: Mapping[str, str]
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sharded: bool = False
    tensor_backward: str = ""
    experts: tuple[str, str] = ("send-recv", "send-recv")
    transfers: str = ""
    fused: str = ""
    finished: tuple[str, ...] = ()
    norm: bool = False
    whole_batch: bool = False


_TORCH_OPERATIONS: Final = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather_into_tensor",
    "reduce-scatter": "reduce_scatter_tensor",
    "send-recv": "all_to_all_single",
}
_MEGATRON: Final = FrameworkHooks(
    "megatron",
    "dp-grads-sync",
    _TORCH_OPERATIONS,
    tensor_backward="all_reduce-wait",
    norm=True,
    finished=("tp-grads-allreduce", "pp-embedding-grads-allreduce", "pp-embedder-grads-allreduce"),
)
FRAMEWORKS: Final = {
    hooks.name: hooks
    for hooks in (
        FrameworkHooks("ddp", "dp-allreduce", _TORCH_OPERATIONS),
        _MEGATRON,
        dataclasses.replace(_MEGATRON, name="megatron-allgather", experts=("all-gather", "reduce-scatter")),
        FrameworkHooks(
            "fsdp2",
            "dp-reduce-scatter",
            {"all-gather": "all_gather_single", "reduce-scatter": "reduce_scatter_single"},
            {"backward": ("dp", "tp")},
            sharded=True,
            norm=True,
        ),
        FrameworkHooks(
            "pipelining",
            "dp-allreduce",
            _TORCH_OPERATIONS,
            {"batch_isend_irecv-wait": ("pp",), "work-wait": ("pp",)},
            transfers="batch_isend_irecv-wait",
            fused="work-wait",
            whole_batch=True,
        ),
    )
}


def framework_hooks(topology: Topology, framework: str) -> FrameworkHooks:
    """Of a framework by name; empty: of the one that trains so."""
    dense = topology.ranks == topology.dp and topology.ep == 1
    return FRAMEWORKS[framework or ("ddp" if dense else "megatron")]


def waits(phase: str, kind: wire.Kind, group: str, topology: Topology, hooks: FrameworkHooks) -> int:
    """Mask of whom a phase may wait for in its exclusive time: only where it communicates."""
    large = [name for name, size in topology.sizes.items() if size > 1]
    if phase in hooks.waits:
        told = hooks.waits[phase]
        return wire.waits_mask(name for name in told if name in large) if told else wire.WAITS_UNKNOWN
    if kind != wire.Kind.COMM:
        return 0
    along = group or phase.partition("-")[0]
    return wire.waits_mask(large if along == "world" else [along])
