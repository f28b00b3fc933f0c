"""Which waits for other ranks may remain in the exclusive time of a phase: one table, and what it asks.

A phase without any is the rank's own work, and may accuse it alone. A wait that Python sees is a span of its
own (torch_hooks/collectives.py) and remains in no other phase. So only what waits in C++, or in a stream of a
library's own, is here. Source: what hooks see of each framework was measured with gloo on CPU; the streams of
a GPU follow from the frameworks' code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from argus_core import wire

if TYPE_CHECKING:
    from argus_training.hook import Observer
    from argus_training.spans import Phase


class Wait(NamedTuple):
    """One row: in which phase, for whom, and where it is so."""

    phase: str
    dimensions: tuple[str, ...]
    when: str
    """One of `CONDITIONS`."""
    why: str


TABLE: Final = (
    Wait("forward", ("dp",), "fsdp1", "parameters are gathered in a stream of its own, module by module"),
    Wait("backward", ("dp",), "fsdp1", "gathers again, and reduces all but the last module's gradients"),
    Wait("backward", ("dp",), "fsdp2", "reduces all but the last module's gradients in a stream of its own"),
    Wait("backward", ("dp",), "megatron_fsdp", "reduces in a stream of its own, and waits for its events"),
    Wait("forward", ("dp",), "zero3", "DeepSpeed gathers parameters in streams of its own"),
    Wait("backward", ("dp",), "deepspeed", "buckets are reduced while it runs, on a stream of their own"),
    Wait("optimizer", ("dp",), "deepspeed", "overflow and norm are reduced, parameters gathered"),
    Wait("backward", ("tp",), "dtensor", "autograd redistributes and waits in C++"),
    Wait("forward", ("cp", "tp"), "transformer_engine", "overlapped collectives are part of its kernels"),
    Wait("backward", ("cp", "tp"), "transformer_engine", "overlapped collectives are part of its kernels"),
    Wait("forward", ("ep",), "deep_ep", "dispatch and combine are kernels of its own"),
    Wait("backward", ("ep",), "deep_ep", "dispatch and combine are kernels of its own"),
    Wait("forward", ("cp", "ep", "tp"), "compiled", "a compiled graph may hold collectives and their waits"),
    Wait("backward", ("cp", "ep", "tp"), "compiled", "a compiled graph may hold collectives and their waits"),
    Wait("forward", ("dp",), "compiled_dp", "a compiled graph holds a collective of data-parallel ranks"),
    Wait("backward", ("dp",), "compiled_dp", "a compiled graph holds a collective of data-parallel ranks"),
)
_OWN_WORK: Final = ("data", "forward", "backward", "optimizer", "gc")
"""Phases of ours whose waits the table tells."""


CONDITIONS: Final[dict[str, Callable[[Observer], bool]]] = {
    "fsdp1": lambda observer: "FullyShardedDataParallel" in observer.root_kinds,
    "fsdp2": lambda observer: "FSDPModule" in observer.root_kinds,
    "megatron_fsdp": lambda observer: "MegatronFSDP" in observer.root_kinds,
    "deepspeed": lambda observer: "DeepSpeedEngine" in observer.root_kinds,
    "zero3": lambda observer: "zero3" in observer.root_kinds,
    "dtensor": lambda _: "torch.distributed.tensor" in sys.modules and "megatron.core" not in sys.modules,
    "transformer_engine": lambda _: "transformer_engine" in sys.modules,
    "deep_ep": lambda _: "deep_ep" in sys.modules,
    "compiled": lambda observer: observer.compiles_model,
    "compiled_dp": lambda observer: observer.compiles_dp,
}
"""Whether it is so in this process, by now."""


def waits_of(
    phase: str, kind: int, group: str, holding: Collection[str], sizes: dict[str, int], world_size: int
) -> int:
    """Mask of `wire.WAITED_FOR` for one phase of ours; a phase that nobody knows: `wire.WAITS_UNKNOWN`.

    Args:
        group: of a collective.
        holding: names of `CONDITIONS` that are so.
        sizes: parallel sizes; empty where the job has not told, then all ranks are dp.
    """
    if world_size < 2 and not sizes:
        return 0
    large = {name for name, size in sizes.items() if size > 1} if sizes else {"dp"}
    if kind == wire.Kind.COMM:
        along = group or phase.partition("-")[0]
        waited = large if along == "world" else {along}
        known = waited <= set(wire.WAITED_FOR)
        return wire.waits_mask(waited) if known else wire.WAITS_UNKNOWN
    if phase not in _OWN_WORK:
        return wire.WAITS_UNKNOWN
    rows = [row for row in TABLE if row.phase == phase and row.when in holding]
    return wire.waits_mask({name for row in rows for name in row.dimensions} & large)


class PhaseWaits:
    """The waits of a process's phases, as far as is known by now."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._world_size = 1

    def of(self, phases: Collection[Phase]) -> dict[tuple[str, int], int]:
        """By name and kind; of a collective of several groups: of any of them.

        A phase that the user has named is the rank's own work, if they said that it computes.
        """
        observer = self._observer
        holding = {name for name, holds in CONDITIONS.items() if holds(observer)}
        sizes = observer.layout().sizes
        # Without a launcher torch tells it, until the program destroys its process groups.
        self._world_size = max(self._world_size, observer.world_size())
        told: dict[tuple[str, int], int] = {}
        for phase in phases:
            if phase.name in observer.user_phases and phase.kind == wire.Kind.COMPUTE:
                mask = 0
            else:
                mask = waits_of(phase.name, phase.kind, phase.group, holding, sizes, self._world_size)
            key = phase.name, phase.kind
            told[key] = told.get(key, 0) | mask
        return told
