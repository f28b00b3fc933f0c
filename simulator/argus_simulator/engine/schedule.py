"""What one rank does in a step, in the order in which its host launches it. No times yet.

A job of Megatron's kind: data, 1F1B of layers with tensor- and expert-parallel collectives, gradients,
optimizer, parameters. Durations are in units of the forward pass of one attention block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from argus_core import wire
from argus_simulator.engine import transformer_blocks as transformer
from argus_simulator.engine.framework_hooks import framework_hooks
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.kernel_symbols import COPY_ON_DEVICE, COPY_TO_DEVICE
from argus_simulator.topology import Topology

Role = Literal["compute", "collective", "send", "recv", "copy"]

# Durations of a healthy operation in units of an attention block's forward pass.
_ATTENTION, _MLP, _ROUTER, _EXPERTS = 1.0, 1.1, 0.15, 1.0
_OPTIMIZER_OF_LAYER, _COPY = 2.2, 1.5
_TENSOR_BODY, _EXPERT_BODY, _PIPELINE_BODY = 0.12, 0.12, 0.2
_GRADIENT_BODY_OF_LAYER, _WORLD_BODY = 3.0, 0.02
_PARAMETERS_OF_LAYER: Final = 1.0
"""Gathering them, or scattering their gradients, where each rank holds a part."""
_EXPERT_GRADIENTS = 0.8
"""Share of the parameters that belongs to experts, where there are some."""

_BESIDE_TRANSFERS: Final = 1.08
"""Computation beside a transfer of gradients takes longer: they share memory and multiprocessors."""

STREAMS: Final = {
    "compute": 7, "copy": 13, "dp": 20, "edp": 24, "tp": 28, "ep": 32, "world": 36,
    "forward-recv": 40, "forward-send": 44, "backward-recv": 48, "backward-send": 52,
}  # fmt: skip
"""Raw CUDA stream ids; a communicator has its own, as PyTorch makes them."""


@dataclass(frozen=True)
class Node:
    """Kernels that are launched together and run one after the other; a communication is one kernel.

    Attributes:
        body: time in units; of a collective, what remains once all members have come.
        needs: positions of earlier nodes of the rank that must have ended.
        exchange: equal on all members of one communication.
        microbatch: -1 outside of microbatches.
    """

    role: Role
    kernels: transformer.Block
    body: float
    stream: str
    phase: str
    microbatch: int = -1
    needs: tuple[int, ...] = ()
    exchange: tuple[str, str, int] | None = None
    dimension: str = ""
    layer: int = -1


@dataclass(frozen=True)
class Marked:
    """A phase that the producer marks: from the first kernel of one node to the last of another."""

    phase: str
    kind: wire.Kind
    first: int
    last: int
    microbatch: int
    group: str
    """What the producer says of the process group: a dimension, or nothing."""
    after: tuple[int, ...] = ()
    """It is a wait, and begins when these nodes have ended: then the stream has come there."""
    until: tuple[int, ...] = ()
    """It ends with these nodes, if one of them is later than the last."""
    apart: bool = False
    """On a stream of its own: no part of the pass in which it is called."""


@dataclass(frozen=True)
class Extras:
    """Ways in which a step differs from the usual one."""

    serial: bool = False
    minority_share: float = 0.0
    forward_only: bool = False


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """The 1F1B order of one stage: ("forward" | "backward", microbatch)."""
    warmup = min(stages - 1 - stage, microbatches)
    order = [("forward", index) for index in range(warmup)]
    for index in range(microbatches - warmup):
        order += [("forward", warmup + index), ("backward", index)]
    return order + [("backward", index) for index in range(microbatches - warmup, microbatches)]


class _Launched:
    """`nodes` in order of launch, and the `marked` phases."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.marked: list[Marked] = []
        self._last: tuple[int, ...] = ()
        """What the stream of the computation waits for next."""

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _last_compute(self) -> int:
        return max(index for index, node in enumerate(self.nodes) if node.role == "compute")

    def _wait(
        self, phase: str, node: int, microbatch: int = -1, *, group: str = "", empty: bool = False
    ) -> None:
        """The stream of the computation waits for a node, once it has come there; `empty`: it has ended."""
        after = (node,) if empty else self._last
        self.marked.append(Marked(phase, wire.Kind.COMM, node, node, microbatch, group, after))

    def _mark(
        self, phase: str, kind: wire.Kind, first: int, last: int | None = None, microbatch: int = -1,
        group: str = "", apart: bool = False, until: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        last = len(self.nodes) - 1 if last is None else last
        self.marked.append(Marked(phase, kind, first, last, microbatch, group, until=until, apart=apart))


class RankSchedule(_Launched):
    """The step of one rank."""

    def __init__(self, topology: Topology, rank: int, model: ModelSettings, extras: Extras) -> None:
        super().__init__()
        self.topology, self.rank, self.model, self.extras = topology, rank, model, extras
        self.stage = topology.coordinates(rank)["pp"]
        self._gradients: list[int] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._hooks = framework_hooks(topology, model.framework)
        self.batches = 1 if self._hooks.whole_batch else model.microbatches
        """How often the loader is asked."""
        self._in_turn = extras.serial or not model.overlap
        self._unsharded: tuple[int, ...] = ()
        """What must have ended before the next layer's parameters are gathered: it frees their memory."""
        self._gathered: list[int] = []
        """Parameters of the layer that comes next."""
        self._scattered: tuple[int, ...] = ()
        self._transferred: list[int] = []
        """Sent and received, and not yet waited for."""
        self._build()

    def _build(self) -> None:
        stages, topology = self.topology.pp, self.topology
        copy = ((COPY_TO_DEVICE, 0.9), (COPY_ON_DEVICE, 0.1))
        self._last = (self._add(Node("copy", copy, _COPY, "copy", "copy")),)
        order = one_forward_one_backward(self.stage, stages, self.model.microbatches)
        if self.extras.forward_only:
            order = [("forward", index) for index in range(self.model.microbatches)]
        # Transfers of the 1F1B part are called two at a time; before and after it each alone.
        fused = {"forward", "backward"} if stages - 1 - self.stage < self.model.microbatches else set()
        sent = ""
        for position, (direction, microbatch) in enumerate(order):
            towards = 1 if direction == "forward" else -1
            together = {order[position - 1][0], direction} == fused if position else False
            if sent and not together:
                self._waits_for_transfer(sent)
            if 0 <= self.stage - towards < stages:
                self._transfer(f"{direction}-recv", -towards, microbatch)
                both = f"{sent}-{direction}-recv" if sent and together else f"{direction}-recv"
                self._waits_for_transfer(both, microbatch)
            sent = ""
            self._pass(direction, microbatch, last=position == len(order) - 1)
            if 0 <= self.stage + towards < stages:
                sent = f"{direction}-send"
                self._transfer(sent, towards, microbatch)
        if sent:
            self._waits_for_transfer(sent)
        if self.extras.forward_only:
            return
        self._finish_gradients()
        if self._hooks.norm:
            self._collective("all-reduce", "world", _WORLD_BODY)
        begin = len(self.nodes)
        layers = self.model.layers
        self._compute(transformer.OPTIMIZER, _OPTIMIZER_OF_LAYER * layers * self.model.optimizer, "optimizer")
        self._mark("optimizer", wire.Kind.COMPUTE, begin)
        if topology.ep > 1:
            self._collective("all-gather", "edp", _GRADIENT_BODY_OF_LAYER * _EXPERT_GRADIENTS * layers / 2)

    def _finish_gradients(self) -> None:
        if self._gradients:
            self._wait(self._hooks.gradients, self._gradients[-1])
        elif self._hooks.finished:
            self._wait(self._hooks.gradients, self._last_compute(), empty=True)
        self._last = (*self._last, *self._gradients)
        for phase in self._hooks.finished:
            self._wait(phase, self._gradients[-1] if self._gradients else self._last_compute(), empty=True)

    # -- one microbatch through this stage ------------------------------------------------------------------

    def _pass(self, direction: str, microbatch: int, *, last: bool) -> None:
        begin = len(self.nodes)
        layers = list(range(self.model.layers))
        if direction == "backward":
            layers.reverse()
        for layer in layers:
            if self._hooks.sharded:
                self._unshard(microbatch, more=layer != layers[-1])
            if direction == "forward":
                self._attention(direction, microbatch, layer)
                self._feed_forward(direction, microbatch, layer)
            else:
                self._feed_forward(direction, microbatch, layer)
                self._attention(direction, microbatch, layer)
            if self._hooks.sharded and direction == "backward":
                self._scatter(microbatch)
            elif last and direction == "backward" and not self._in_turn:
                self._exchange_gradients()
        if self._in_turn and last and direction == "backward" and not self._hooks.sharded:
            for _ in layers:
                self._exchange_gradients()
        first = next(index for index in range(begin, len(self.nodes)) if self.nodes[index].role == "compute")
        # What autograd waits for in C++ is part of the backward, also after its last kernel.
        until = self._last if self._hooks.sharded and direction == "backward" else ()
        self._mark(direction, wire.Kind.COMPUTE, first, self._last_compute(), microbatch, until=until)

    def _attention(self, direction: str, microbatch: int, layer: int) -> None:
        forward = direction == "forward"
        block = transformer.ATTENTION if forward else transformer.ATTENTION_BACKWARD
        self._block(block, _ATTENTION, "attention", direction, microbatch, layer)
        if self.extras.minority_share > 0:
            body = (_ATTENTION + _MLP) * self.extras.minority_share
            self._block(transformer.MINORITY, body, "attention", direction, microbatch, layer)
        self._tensor(direction, microbatch)

    def _feed_forward(self, direction: str, microbatch: int, layer: int) -> None:
        forward = direction == "forward"
        if self.topology.ep == 1:
            block = transformer.MLP if forward else transformer.MLP_BACKWARD
            self._block(block, _MLP, "mlp", direction, microbatch, layer)
        else:
            router = transformer.ROUTER if forward else transformer.ROUTER_BACKWARD
            self._block(router, _ROUTER, "router", direction, microbatch, layer)
            there, back = self._hooks.experts
            self._collective(there, "ep", _EXPERT_BODY, microbatch, name="dispatch")
            block = transformer.EXPERTS if forward else transformer.EXPERTS_BACKWARD
            self._block(block, _EXPERTS, "mlp", direction, microbatch, layer)
            self._collective(back, "ep", _EXPERT_BODY, microbatch, name="combine")
        self._tensor(direction, microbatch)

    def _block(
        self, block: transformer.Block, body: float, part: str, direction: str, microbatch: int, layer: int
    ) -> None:
        body *= 1.0 if direction == "forward" else self.model.backward
        if self._gradients and not self._in_turn:
            body *= _BESIDE_TRANSFERS
        self._compute(block, body, f"{part}-{direction}", microbatch, layer)

    def _tensor(self, direction: str, microbatch: int) -> None:
        """A tensor-parallel all-reduce. Hooks do not see those that DTensor's backward calls in C++."""
        backward = direction == "backward"
        self._collective(
            "all-reduce", "tp", _TENSOR_BODY, microbatch, seen=not (backward and self._hooks.sharded),
            told=self._hooks.tensor_backward if backward else "",
        )  # fmt: skip

    def _exchange_gradients(self) -> None:
        """The gradients of one layer, while the backward pass of the layers before it goes on, or later."""
        needs = self._last
        found: list[int] = []
        if self.topology.ep > 1:
            found += self._collective(
                "reduce-scatter", "edp", _GRADIENT_BODY_OF_LAYER * _EXPERT_GRADIENTS, needs=needs
            )
            needs = (*needs, *found)
        body = _GRADIENT_BODY_OF_LAYER * (1 - _EXPERT_GRADIENTS if self.topology.ep > 1 else 1)
        found += self._collective("all-reduce", "dp", body, needs=needs)
        self._gradients += found

    def _unshard(self, microbatch: int, *, more: bool) -> None:
        """Wait for the parameters of a layer. Those of the next are gathered while it is computed.

        They are called for before the gradients of this one are scattered: the wait for these is in no span.
        """
        found = self._gathered or self._gather(microbatch)
        if not found:
            return
        self._wait("dp-unshard-wait", found[-1], microbatch)
        self._last = self._unsharded = (*self._last, *found)
        self._gathered = self._gather(microbatch) if more and not self._in_turn else []

    def _gather(self, microbatch: int) -> list[int]:
        needs = self._last if self._in_turn else self._unsharded
        return self._collective("all-gather", "dp", _PARAMETERS_OF_LAYER, microbatch, needs=needs)

    def _scatter(self, microbatch: int) -> None:
        """The gradients of a layer are scattered; the computation waits for those of the layer before."""
        found = self._collective("reduce-scatter", "dp", _PARAMETERS_OF_LAYER, microbatch, needs=self._last)
        self._last = (*self._last, *(found if self._in_turn else self._scattered))
        self._scattered = tuple(found)
        self._gradients += found

    # -- single nodes ------------------------------------------------------------------

    def _compute(
        self, block: transformer.Block, body: float, phase: str, microbatch: int = -1, layer: int = -1
    ) -> None:
        node = Node("compute", block, body, "compute", phase, microbatch, self._last, layer=layer)
        self._last = (self._add(node),)

    def _collective(
        self, operation: str, dimension: str, body: float, microbatch: int = -1, *,
        name: str = "", needs: tuple[int, ...] | None = None, seen: bool = True, told: str = "",
    ) -> list[int]:  # fmt: skip
        """Nothing in a group of one. With `needs` the computation goes on meanwhile.

        Args:
            seen: by hooks, where the computation waits for it.
            told: the phase, where it is not that of the operation.
        """
        if len(self.topology.members(self.rank, dimension)) < 2:
            return []
        phase = f"{dimension}-{name or operation}"
        group = self.topology.group(self.rank, dimension)
        number = self._numbers.get((group, phase), 0)
        self._numbers[group, phase] = number + 1
        kernel = ((transformer.COLLECTIVES[operation], 1.0),)
        position = self._add(
            Node(
                "collective", kernel, body * self.model.communication, dimension, phase, microbatch,
                self._last if needs is None else needs, (group, phase, number), dimension,
            )
        )  # fmt: skip
        told = told or self._hooks.operations.get(operation, "")
        if not told and seen:  # functional
            self._wait("functional-wait", position, microbatch, group=dimension)
        elif told and (needs is None or self._hooks.sharded):
            # Gradients of DDP and Megatron travel from C++, and are waited for after the backward.
            self._mark(
                told, wire.Kind.COMM, position, position, microbatch, dimension, apart=needs is not None
            )
        if needs is None:
            self._last = (position,)
        return [position]

    def _transfer(self, phase: str, stages: int, microbatch: int) -> None:
        """Half of a transfer with the rank `stages` further on."""
        direction, _, half = phase.partition("-")
        at = self.topology.coordinates(self.rank)
        other = self.topology.rank_at({**at, "pp": at["pp"] + stages})
        pair = f"{min(self.rank, other)}-{max(self.rank, other)}"
        receives = half == "recv"
        node = Node(
            "recv" if receives else "send", ((transformer.COLLECTIVES["send-recv"], 1.0),),
            _PIPELINE_BODY * self.model.communication, phase, f"pp-{phase}", microbatch,
            () if receives else self._last, (pair, direction, microbatch), "pp",
        )  # fmt: skip
        self._transferred.append(self._add(node))

    def _waits_for_transfer(self, phase: str, microbatch: int = -1) -> None:
        """The computation waits for what was sent and received since it last did."""
        *_, last = self._transferred
        self._wait(self._hooks.transfers or f"pp-{phase}", last, microbatch)
        if self._hooks.fused and len(self._transferred) > 1:
            self._wait(self._hooks.fused, last, microbatch, empty=True)
        self._last = (*self._last, *self._transferred)
        self._transferred.clear()
