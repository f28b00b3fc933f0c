"""What each rank does in a step: host work, launches, and the operations on its streams. No times yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from argus_simulator.engine.schedule import one_forward_one_backward
from argus_simulator.traces.layout import Layout

OperationKind = Literal["compute", "comm", "memory"]

ATTENTION = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)"
ATTENTION_BACKWARD = "void flash_bwd_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>, true>(Flash_bwd_params)"
GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
)
EXPERTS = "void grouped_gemm_kernel<cutlass::bfloat16_t, 128, 256>(GroupedGemmParams)"
NORM = "void rms_norm_kernel<float, c10::BFloat16>(RmsNormParams)"
ADAM = "void multi_tensor_apply_kernel<AdamFunctor<float>, 4>(TensorListMetadata<4>, AdamFunctor<float>)"
COPY = "Memcpy HtoD (Pinned -> Device)"
_NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
_NCCL_OF = {
    "all_reduce": _NCCL.format("AllReduce_Sum_bf16_RING_LL"),
    "reduce_scatter": _NCCL.format("ReduceScatter_Sum_bf16_RING_LL"),
    "all_gather": _NCCL.format("AllGather_RING_LL"),
    "all_to_all": _NCCL.format("SendRecv"),
    "send_recv": _NCCL.format("SendRecv"),
}


@dataclass(frozen=True)
class Work:
    """Sizes of a step. Times in seconds of a healthy, noiseless operation."""

    microbatches: int = 4
    layers: int = 2
    attention: float = 2.2e-3
    gemm: float = 1.4e-3
    norm: float = 0.12e-3
    experts: float = 2.6e-3
    optimizer: float = 3e-3
    data: float = 2e-3
    copy: float = 0.6e-3
    launch: float = 8e-6
    tensor_parallel_body: float = 0.25e-3
    expert_body: float = 0.5e-3
    pipeline_body: float = 0.3e-3
    gradient_body: float = 6e-3
    last_stage_factor: float = 1.0


@dataclass(frozen=True)
class Operation:
    """One kernel or copy.

    Attributes:
        base_s: duration; of a communication, what remains once all members have arrived.
        needs: positions in the rank's operations that must have ended.
        exchange: (group, phase, number within the step or microbatch): equal on all members; None: no comm.
        peers: ranks that take part.
    """

    name: str
    stream: str
    kind: OperationKind
    base_s: float
    phase: str
    microbatch: int
    needs: tuple[int, ...] = ()
    exchange: tuple[str, str, int] | None = None
    peers: tuple[int, ...] = ()
    group: str = ""


@dataclass
class StepProgram:
    """The operations of one step of one rank, in launch order; each depends on earlier ones only."""

    operations: list[Operation] = field(default_factory=list)


class _Builder:
    """Writes down one step. `last` is the operation that the next computation has to wait for."""

    def __init__(self, layout: Layout, rank: int, work: Work) -> None:
        self.layout, self.rank, self.work = layout, rank, work
        self.place = layout.place(rank)
        self.program = StepProgram()
        self.last: tuple[int, ...] = ()
        self._numbers: dict[tuple[str, str], int] = {}

    def compute(self, name: str, seconds: float, phase: str, microbatch: int) -> None:
        self._add(Operation(name, "compute0", "compute", seconds, phase, microbatch, self.last))

    def exchange(
        self, operation: str, phase: str, dimension: str, stream: str, body: float, microbatch: int = -1,
        *, blocks: bool = True,
    ) -> tuple[int, ...]:  # fmt: skip
        """A collective along `dimension`; nothing in a group of one. `blocks`: later work waits."""
        group = self.layout.group(self.rank, dimension)
        members = self.layout.members(group, dimension)
        if len(members) < 2:
            return ()
        return (self._communicate(operation, phase, group, members, stream, body, microbatch, blocks),)

    def transfer(self, phase: str, stages: int, stream: str, microbatch: int, *, receives: bool) -> int:
        """Half of a point-to-point transfer with the rank `stages` further on."""
        other = self.layout.neighbour(self.rank, stages)
        group = self.layout.group(self.rank, "pp")
        return self._communicate(
            "send_recv", phase, group, tuple(sorted((self.rank, other))), stream,
            self.work.pipeline_body, microbatch, receives,
        )  # fmt: skip

    def _communicate(
        self, operation: str, phase: str, group: str, members: tuple[int, ...], stream: str, body: float,
        microbatch: int, blocks: bool,
    ) -> int:  # fmt: skip
        wire = phase.split("_", 1)[1] if operation == "send_recv" else phase
        scope = f"{group}:{members[0]}-{members[-1]}" if operation == "send_recv" else group
        number = self._numbers.get((scope, wire), 0)
        self._numbers[scope, wire] = number + 1
        return self._add(
            Operation(
                _NCCL_OF[operation], stream, "comm", body, phase, microbatch, () if blocks and
                operation == "send_recv" else self.last, (scope, wire, number), members, group,
            ),
            blocks=blocks,
        )  # fmt: skip

    def _add(self, operation: Operation, *, blocks: bool = True) -> int:
        self.program.operations.append(operation)
        position = len(self.program.operations) - 1
        if blocks:
            if operation.kind == "comm" and operation.exchange and operation.phase.startswith("recv"):
                self.last = (*self.last, position)
            else:
                self.last = (position,)
        return position


def step_program(layout: Layout, rank: int, work: Work) -> StepProgram:
    """One step of Megatron's kind: 1F1B, TP and EP in the layers, gradients, optimizer, parameters."""
    build = _Builder(layout, rank, work)
    stage, stages = build.place["pp"], layout.pp
    # The batch: the first computation waits for the copy.
    build._add(Operation(COPY, "copy0", "memory", work.copy, "forward", 0))
    order = one_forward_one_backward(stage, stages, work.microbatches)
    grads: list[int] = []
    for position, (direction, microbatch) in enumerate(order):
        forward = direction == "forward"
        towards = 1 if forward else -1
        if 0 <= stage - towards < stages and stages > 1:
            build.transfer(f"recv_{direction}", -towards, "nccl3", microbatch, receives=True)
        _layers(build, direction, microbatch)
        if 0 <= stage + towards < stages and stages > 1:
            build.transfer(f"send_{direction}", towards, "nccl2", microbatch, receives=False)
        if position == len(order) - 1 and layout.ep > 1:
            grads.extend(
                build.exchange("reduce_scatter", "edp-reduce_scatter", "edp", "nccl0", work.gradient_body,
                               blocks=False)
            )  # fmt: skip
    dense = "world" if layout.ep > 1 and layout.pp == 1 and layout.tp == 1 else "dp"
    grads.extend(
        build.exchange("all_reduce", f"{dense}-all_reduce", dense, "nccl0", work.gradient_body, blocks=False)
    )
    build.last = (*build.last, *grads)
    build.compute(ADAM, work.optimizer, "optimizer", -1)
    parameters = "edp" if layout.ep > 1 else "dp"
    build.exchange("all_gather", f"{parameters}-all_gather", parameters, "nccl0", work.gradient_body / 2)
    build.exchange("all_reduce", "world-all_reduce", "world", "nccl0", 30e-6)
    return build.program


def _layers(build: _Builder, direction: str, microbatch: int) -> None:
    work, layout = build.work, build.layout
    twice = 1.0 if direction == "forward" else 2.0
    if build.place["pp"] == layout.pp - 1:
        twice *= work.last_stage_factor
    attention = ATTENTION if direction == "forward" else ATTENTION_BACKWARD
    for _ in range(work.layers):
        build.compute(NORM, work.norm, direction, microbatch)
        build.compute(GEMM, work.gemm * twice, direction, microbatch)
        build.compute(attention, work.attention * twice, direction, microbatch)
        if layout.tp > 1:
            build.exchange(
                "all_reduce", "tp-all_reduce", "tp", "nccl1", work.tensor_parallel_body, microbatch
            )
        build.compute(NORM, work.norm, direction, microbatch)
        if layout.ep > 1:
            build.exchange("all_to_all", "ep-dispatch", "ep", "nccl1", work.expert_body, microbatch)
            build.compute(EXPERTS, work.experts * twice, direction, microbatch)
            build.exchange("all_to_all", "ep-combine", "ep", "nccl1", work.expert_body, microbatch)
        else:
            build.compute(GEMM, work.gemm * 1.6 * twice, direction, microbatch)
        if layout.tp > 1:
            build.exchange(
                "all_reduce", "tp-all_reduce", "tp", "nccl1", work.tensor_parallel_body, microbatch
            )
