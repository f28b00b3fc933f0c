"""Kernels of a transformer by the names under which CUPTI reports them."""

from __future__ import annotations

from typing import Final

_GEMM: Final = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{}_align8>(Params)"
GEMM_WIDE, GEMM_NARROW = _GEMM.format("256x128_32x3_tn"), _GEMM.format("128x128_64x3_tn")
GEMM_WEIGHTS, GEMM_INPUTS = _GEMM.format("256x128_32x3_nt"), _GEMM.format("256x128_32x3_nn")

NORM: Final = "void layer_norm_fwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)"
NORM_BACKWARD: Final = "void layer_norm_bwd_kernel<__nv_bfloat16, float, 8192>(LaunchParams)"
RMS_NORM_UNFUSED: Final = "void at::native::rms_norm_unfused_kernel<c10::BFloat16>(float*)"
FLASH: Final = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)"
FLASH_BACKWARD: Final = (
    "void flash_bwd_dq_dk_dv_loop_kernel<Flash_bwd_kernel_traits<128, 64, 128>>(Flash_bwd_params)"
)
ROPE: Final = "void fused_rope_forward<c10::BFloat16, float>(int, int, int)"
ROPE_BACKWARD: Final = "void fused_rope_backward<c10::BFloat16, float>(int, int, int)"

_ELEMENTWISE: Final = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul>>(int)"
)
GELU: Final = _ELEMENTWISE.format("GeluCUDAKernelImpl")
GELU_BACKWARD: Final = _ELEMENTWISE.format("GeluBackwardCUDAKernelImpl")
ADD: Final = _ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>")
POSITION_BIAS: Final = _ELEMENTWISE.format("PositionBiasKernelImpl")
SWISH: Final = _ELEMENTWISE.format("SwishMulKernelImpl")
DROPOUT: Final = "void fused_dropout_kernel_vec<c10::BFloat16, float, 1, 4>(TensorInfo)"
REDUCE: Final = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)"

EXPERTS: Final = "void grouped_gemm_kernel<cutlass::bfloat16_t, 128, 256>(GroupedGemmParams)"
EXPERTS_BACKWARD: Final = (
    "void grouped_gemm_backward_kernel<cutlass::bfloat16_t, 128, 256>(GroupedGemmParams)"
)
PERMUTE: Final = "void moe_permute_kernel<c10::BFloat16, 8>(MoePermuteParams)"

ADAM: Final = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(long, int)"
L2_NORM: Final = "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>>(long, int)"
MEMSET: Final = "Memset (Device)"
COPY_TO_DEVICE: Final = "Memcpy HtoD (Pinned -> Device)"
COPY_ON_DEVICE: Final = "Memcpy DtoD (Device -> Device)"

_NCCL: Final = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE: Final = _NCCL.format("AllReduce_Sum_bf16_RING_LL")
REDUCE_SCATTER: Final = _NCCL.format("ReduceScatter_Sum_bf16_RING_LL")
ALL_GATHER: Final = _NCCL.format("AllGather_RING_LL")
SEND_RECV: Final = _NCCL.format("SendRecv")
"""NCCL's all-to-all is made of sends and receives, too."""
