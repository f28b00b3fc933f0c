"""What the hooks of a real framework send, by the shape of the job.

Recorded from real programs on two ranks (tests/frameworks: DDP; megatron-core's GPTModel with tp, pp, ep).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from argus_core import wire
from argus_simulator.topology import Topology


@dataclass(frozen=True)
class FrameworkHooks:
    """Of one framework.

    Attributes:
        gradients: phase of the wait for gradients after the backward.
        operations: phase of each collective that Python calls, by our name of the operation.
    """

    name: str
    gradients: str
    operations: Mapping[str, str]


_TORCH_OPERATIONS: Final = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather_into_tensor",
    "reduce-scatter": "reduce_scatter_tensor",
    "send-recv": "all_to_all_single",
}
DDP: Final = FrameworkHooks("ddp", "dp-allreduce", _TORCH_OPERATIONS)
MEGATRON: Final = FrameworkHooks("megatron", "dp-grads-sync", _TORCH_OPERATIONS)


def framework_hooks(topology: Topology) -> FrameworkHooks:
    """Which framework trains so."""
    return DDP if topology.ranks == topology.dp and topology.ep == 1 else MEGATRON


def waits(phase: str, kind: wire.Kind, group: str, topology: Topology) -> int:
    """Mask of whom a phase may wait for in its exclusive time: only where it communicates."""
    if kind != wire.Kind.COMM:
        return 0
    along = group or phase.partition("-")[0]
    return wire.waits_mask(
        [name for name, size in topology.sizes.items() if size > 1] if along == "world" else [along]
    )
