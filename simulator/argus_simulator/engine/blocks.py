"""Kernels of the building blocks of a transformer: names as CUPTI would report them, and relative durations.

One name is called with several shapes, so that most (kernel, stream) pairs have more than one mode, as in
public traces (34 to 87 % of the pairs). A simulated kernel stands for several of a real step: a step has a
few hundred of them instead of 1,400.
"""

from __future__ import annotations

from typing import Final

Block = tuple[tuple[str, float], ...]
"""(kernel, share of the block's time), in order of launch."""

_GEMM: Final = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{}_align8>(Params)"
_ELEMENTWISE: Final = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul>>(int)"
)
_WIDE, _NARROW = _GEMM.format("256x128_32x3_tn"), _GEMM.format("128x128_64x3_tn")
_WEIGHTS, _INPUTS = _GEMM.format("256x128_32x3_nt"), _GEMM.format("256x128_32x3_nn")
_NORM: Final = "void layer_norm_fwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)"
_NORM_BACKWARD: Final = "void layer_norm_bwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)"
_FLASH: Final = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)"
_FLASH_BACKWARD: Final = (
    "void flash_bwd_dq_dk_dv_loop_kernel<Flash_bwd_kernel_traits<128, 64, 128>>(Flash_bwd_params)"
)
_ROPE: Final = "void fused_rope_forward<c10::BFloat16, float>(int, int, int)"
_ROPE_BACKWARD: Final = "void fused_rope_backward<c10::BFloat16, float>(int, int, int)"
_GELU, _GELU_BACKWARD = (
    _ELEMENTWISE.format("GeluCUDAKernelImpl"),
    _ELEMENTWISE.format("GeluBackwardKernelImpl"),
)
_ADD: Final = _ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>")
_DROPOUT: Final = "void fused_dropout_kernel_vec<c10::BFloat16, float, 1, 4>(TensorInfo)"
_REDUCE: Final = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)"
_EXPERTS: Final = "void grouped_gemm_kernel<cutlass::bfloat16_t, 128, 256>(GroupedGemmParams)"
_EXPERTS_BACKWARD: Final = (
    "void grouped_gemm_backward_kernel<cutlass::bfloat16_t, 128, 256>(GroupedGemmParams)"
)
_PERMUTE: Final = "void moe_permute_kernel<c10::BFloat16, 8>(MoePermuteParams)"
_ADAM: Final = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(long, int)"
_L2_NORM: Final = "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>>(long, int)"
MEMSET: Final = "Memset (Device)"
COPY: Final = "Memcpy HtoD (Pinned -> Device)"

ATTENTION: Final[Block] = (
    (_NORM, 0.04), (_WIDE, 0.29), (_ROPE, 0.03), (_FLASH, 0.40), (_NARROW, 0.19), (_ADD, 0.05),
)  # fmt: skip
ATTENTION_BACKWARD: Final[Block] = (
    (_INPUTS, 0.11), (_WEIGHTS, 0.11), (_FLASH_BACKWARD, 0.42), (_ROPE_BACKWARD, 0.03), (_INPUTS, 0.13),
    (_WEIGHTS, 0.14), (_NORM_BACKWARD, 0.04), (_REDUCE, 0.02),
)  # fmt: skip
MLP: Final[Block] = (
    (_NORM, 0.05), (_WIDE, 0.44), (_GELU, 0.06), (_NARROW, 0.37), (_DROPOUT, 0.03), (_ADD, 0.05),
)  # fmt: skip
MLP_BACKWARD: Final[Block] = (
    (_INPUTS, 0.21), (_WEIGHTS, 0.22), (_GELU_BACKWARD, 0.06), (_INPUTS, 0.20), (_WEIGHTS, 0.22),
    (_NORM_BACKWARD, 0.05), (_REDUCE, 0.04),
)  # fmt: skip
ROUTER: Final[Block] = ((_NORM, 0.45), (_NARROW, 0.25), (_PERMUTE, 0.30))
ROUTER_BACKWARD: Final[Block] = ((_NORM_BACKWARD, 0.45), (_INPUTS, 0.30), (_PERMUTE, 0.25))
EXPERTS: Final[Block] = ((_EXPERTS, 0.52), (_GELU, 0.06), (_EXPERTS, 0.38), (_PERMUTE, 0.04))
EXPERTS_BACKWARD: Final[Block] = (
    (_EXPERTS_BACKWARD, 0.50), (_GELU_BACKWARD, 0.06), (_EXPERTS_BACKWARD, 0.40), (_PERMUTE, 0.04),
)  # fmt: skip
OPTIMIZER: Final[Block] = (
    (_L2_NORM, 0.05), (_L2_NORM, 0.05), (_ADAM, 0.19), (_ADAM, 0.25), (_ADAM, 0.19), (_ADAM, 0.23),
    (MEMSET, 0.04),
)  # fmt: skip

POSITION: Final = _ELEMENTWISE.format("PositionBiasKernelImpl")
ACTIVATION: Final = _ELEMENTWISE.format("SwishMulKernelImpl")
NORMALISE: Final = "void at::native::rms_norm_unfused_kernel<c10::BFloat16>(float*)"
MINORITY: Final[Block] = ((POSITION, 0.25), (ACTIVATION, 0.45), (NORMALISE, 0.30))
"""What an unfused operator adds to each layer (FLARE case 3)."""

_NCCL: Final = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
COLLECTIVES: Final = {
    "all-reduce": _NCCL.format("AllReduce_Sum_bf16_RING_LL"),
    "reduce-scatter": _NCCL.format("ReduceScatter_Sum_bf16_RING_LL"),
    "all-gather": _NCCL.format("AllGather_RING_LL"),
    "send-recv": _NCCL.format("SendRecv"),
}
"""Operation to kernel; NCCL's all-to-all is made of sends and receives."""
