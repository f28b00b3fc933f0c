"""What a rank runs on its GPU in one step: (kernel, stream) pairs with one to three duration modes.

The table is shaped after a dense transformer block in bf16. A kernel's modes stand for the shapes it is
called with, in a fixed order, so that a window of whole steps holds exact counts in each mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from argus_core import wire

Floats = NDArray[np.float64]

COMPUTE_STREAM, COPY_STREAM, COMM_STREAM = 7, 13, 20
"""Raw CUDA stream ids, as CUPTI would report them."""


@dataclass(frozen=True)
class KernelKind:
    """One (kernel, stream) pair of a phase.

    `share` of the phase's GPU time goes to it, spread over `launches` a step. Launch i has mode
    i modulo len(modes); `modes` are relative durations.
    """

    name: str
    share: float
    launches: int
    modes: tuple[float, ...] = (1.0,)
    stream: int = COMPUTE_STREAM
    operation: wire.Operation = wire.Operation.KERNEL


_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{}_align8>(Params)"
_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul>>(int)"
)

FORWARD: tuple[KernelKind, ...] = (
    KernelKind(_GEMM.format("256x128_32x3_tn"), 0.34, 6, (1.0, 2.7)),
    KernelKind(_GEMM.format("128x128_64x3_tn"), 0.16, 6, (1.0, 1.6, 3.1)),
    KernelKind(
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)", 0.24, 4
    ),
    KernelKind("void layer_norm_fwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)", 0.06, 4),
    KernelKind("void fused_rope_forward<c10::BFloat16, float>(int, int, int)", 0.03, 4, (1.0, 1.3)),
    KernelKind(_ELEMENTWISE.format("GeluCUDAKernelImpl"), 0.07, 4),
    KernelKind(_ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>"), 0.05, 8, (1.0, 2.0)),
    KernelKind("void fused_dropout_kernel_vec<c10::BFloat16, float, 1, 4>(TensorInfo)", 0.03, 4),
    KernelKind("void cross_entropy_forward_kernel<c10::BFloat16, float>(float*)", 0.02, 2),
)
BACKWARD: tuple[KernelKind, ...] = (
    KernelKind(_GEMM.format("256x128_32x3_nt"), 0.27, 6, (1.0, 2.7)),
    KernelKind(_GEMM.format("256x128_32x3_nn"), 0.23, 6, (1.0, 2.4)),
    KernelKind(
        "void flash_bwd_dq_dk_dv_loop_kernel<Flash_bwd_kernel_traits<128, 64, 128>>(Flash_bwd_params)",
        0.26,
        4,
    ),
    KernelKind("void layer_norm_bwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)", 0.06, 4),
    KernelKind("void layer_norm_bwd_finalize_kernel<float>(LaunchParams)", 0.02, 4),
    KernelKind("void fused_rope_backward<c10::BFloat16, float>(int, int, int)", 0.03, 4),
    KernelKind(_ELEMENTWISE.format("GeluBackwardCUDAKernelImpl"), 0.06, 4),
    KernelKind(
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)",
        0.04,
        6,
        (1.0, 1.9, 3.4),
    ),
    KernelKind("void cross_entropy_backward_kernel<c10::BFloat16, float>(float*)", 0.03, 2),
)
OPTIMIZER: tuple[KernelKind, ...] = (
    KernelKind(
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(long, int)",
        0.80,
        8,
        (1.0, 1.4),
    ),
    KernelKind(
        "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>>(long, int)", 0.12, 4
    ),
    KernelKind("Memset (Device)", 0.08, 4, (1.0,), COMPUTE_STREAM, wire.Operation.MEMSET),
)
DATA: tuple[KernelKind, ...] = (
    KernelKind("Memcpy HtoD (Pinned -> Device)", 0.9, 2, (1.0,), COPY_STREAM, wire.Operation.MEMCPY),
    KernelKind("Memcpy DtoD (Device -> Device)", 0.1, 2, (1.0,), COPY_STREAM, wire.Operation.MEMCPY),
)
COLLECTIVE_NAMES = {
    "dp-all-reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "tp-all-reduce": "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
}


@dataclass(frozen=True)
class KernelPlan:
    """The launches of one phase in a step, in launch order: layers interleave the kinds."""

    kinds: tuple[KernelKind, ...]

    @cached_property
    def kind_of_launch(self) -> NDArray[np.intp]:
        return np.array([kind for kind, _ in self._launches], dtype=np.intp)

    @cached_property
    def relative_seconds(self) -> Floats:
        """Share of the phase's GPU time that each launch takes; sums to 1 for shares that do."""
        shares = [self.kinds[kind].share * self._mode_share(kind, launch) for kind, launch in self._launches]
        total = sum(kind.share for kind in self.kinds)
        return np.array(shares) / total

    def matching(self, pattern: str) -> NDArray[np.bool_]:
        """Launches of kernels whose name matches the glob, shape (launches,)."""
        hit = np.array([fnmatchcase(kind.name, pattern) for kind in self.kinds], dtype=bool)
        chosen: NDArray[np.bool_] = hit[self.kind_of_launch]
        return chosen

    @cached_property
    def _launches(self) -> list[tuple[int, int]]:
        """(kind, launch number) sorted by where in the phase the launch falls."""
        every = [
            ((launch + 0.5) / kind.launches, index, launch)
            for index, kind in enumerate(self.kinds)
            for launch in range(kind.launches)
        ]
        return [(index, launch) for _, index, launch in sorted(every)]

    def _mode_share(self, kind: int, launch: int) -> float:
        modes, launches = self.kinds[kind].modes, self.kinds[kind].launches
        total = sum(modes[index % len(modes)] for index in range(launches))
        return modes[launch % len(modes)] / total


PLANS: dict[str, KernelPlan] = {
    "data": KernelPlan(DATA),
    "forward": KernelPlan(FORWARD),
    "backward": KernelPlan(BACKWARD),
    "optimizer": KernelPlan(OPTIMIZER),
}


def all_names() -> tuple[str, ...]:
    """Every kernel name that a simulated rank can send, in a stable order."""
    return (*(kind.name for plan in PLANS.values() for kind in plan.kinds), *COLLECTIVE_NAMES.values())
