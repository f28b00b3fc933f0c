"""The building blocks of a transformer: kernels in order of launch, and relative durations.

One name is called with several shapes, so that most (kernel, stream) pairs have more than one mode, as in
public traces (34 to 87 % of the pairs). A simulated kernel stands for several of a real step: a step has a
few hundred of them instead of 1,400.
"""

from __future__ import annotations

from typing import Final

from argus_simulator import kernel_symbols as symbol

Block = tuple[tuple[str, float], ...]
"""(kernel, share of the block's time), in order of launch."""

ATTENTION: Final[Block] = (
    (symbol.NORM, 0.04), (symbol.GEMM_WIDE, 0.29), (symbol.ROPE, 0.03), (symbol.FLASH, 0.40),
    (symbol.GEMM_NARROW, 0.19), (symbol.ADD, 0.05),
)  # fmt: skip
ATTENTION_BACKWARD: Final[Block] = (
    (symbol.GEMM_INPUTS, 0.11), (symbol.GEMM_WEIGHTS, 0.11), (symbol.FLASH_BACKWARD, 0.42),
    (symbol.ROPE_BACKWARD, 0.03), (symbol.GEMM_INPUTS, 0.13), (symbol.GEMM_WEIGHTS, 0.14),
    (symbol.NORM_BACKWARD, 0.04), (symbol.REDUCE, 0.02),
)  # fmt: skip
MLP: Final[Block] = (
    (symbol.NORM, 0.05), (symbol.GEMM_WIDE, 0.44), (symbol.GELU, 0.06), (symbol.GEMM_NARROW, 0.37),
    (symbol.DROPOUT, 0.03), (symbol.ADD, 0.05),
)  # fmt: skip
MLP_BACKWARD: Final[Block] = (
    (symbol.GEMM_INPUTS, 0.21), (symbol.GEMM_WEIGHTS, 0.22), (symbol.GELU_BACKWARD, 0.06),
    (symbol.GEMM_INPUTS, 0.20), (symbol.GEMM_WEIGHTS, 0.22), (symbol.NORM_BACKWARD, 0.05),
    (symbol.REDUCE, 0.04),
)  # fmt: skip
ROUTER: Final[Block] = ((symbol.NORM, 0.45), (symbol.GEMM_NARROW, 0.25), (symbol.PERMUTE, 0.30))
ROUTER_BACKWARD: Final[Block] = (
    (symbol.NORM_BACKWARD, 0.45),
    (symbol.GEMM_INPUTS, 0.30),
    (symbol.PERMUTE, 0.25),
)
EXPERTS: Final[Block] = (
    (symbol.EXPERTS, 0.52),
    (symbol.GELU, 0.06),
    (symbol.EXPERTS, 0.38),
    (symbol.PERMUTE, 0.04),
)
EXPERTS_BACKWARD: Final[Block] = (
    (symbol.EXPERTS_BACKWARD, 0.50), (symbol.GELU_BACKWARD, 0.06), (symbol.EXPERTS_BACKWARD, 0.40),
    (symbol.PERMUTE, 0.04),
)  # fmt: skip
OPTIMIZER: Final[Block] = (
    (symbol.L2_NORM, 0.05), (symbol.L2_NORM, 0.05), (symbol.ADAM, 0.19), (symbol.ADAM, 0.25),
    (symbol.ADAM, 0.19), (symbol.ADAM, 0.23), (symbol.MEMSET, 0.04),
)  # fmt: skip

MINORITY: Final[Block] = ((symbol.POSITION_BIAS, 0.25), (symbol.SWISH, 0.45), (symbol.RMS_NORM_UNFUSED, 0.30))
"""What an unfused operator adds to each layer (FLARE case 3)."""

COLLECTIVES: Final = {
    "all-reduce": symbol.ALL_REDUCE,
    "reduce-scatter": symbol.REDUCE_SCATTER,
    "all-gather": symbol.ALL_GATHER,
    "send-recv": symbol.SEND_RECV,
}
"""Operation to kernel."""
