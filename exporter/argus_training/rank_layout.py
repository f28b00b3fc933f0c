"""The rank of this process, and the parallel layout of all ranks of its job.

The rank comes from the launcher's environment. In a process that `multiprocessing` started (mp.spawn), whose
environment is its parent's, and without a launcher, it is what `torch.distributed` was initialised with; a
plain `python train.py` is rank 0 of 1.

The layout comes from the first of these that exists: ARGUS_PARALLEL, Megatron's parallel state, the largest
device mesh with named dimensions that covers the job, process groups whose descriptions name their dimension
(`partitions.py`). Without any the job counts as data-parallel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from argus_training import identity
from argus_training.identity import Layout, Place

_ORDERS = (("pp", "dp", "tp"), ("dp", "pp", "tp"))
"""Megatron's default order of ranks, and `tp-cp-ep-pp-dp`."""


class RankLayout:
    """Looked up each time: process groups are made after us.

    Args:
        torch: the imported torch.
        environ: the launcher's variables.
        parallel: ARGUS_PARALLEL.
        say: takes a sentence about a value that cannot be used.
    """

    def __init__(
        self, torch: Any, environ: Mapping[str, str], parallel: str, say: Callable[[str], None]
    ) -> None:
        self._torch = torch
        self._environ = environ
        self._parallel = parallel
        self._say = say
        self._mesh = Layout()
        self._groups = Layout()
        self._known: tuple[object, Layout] | None = None
        try:
            self._launched_place: Place | None = identity.place(environ)
        except identity.NoRank:
            self._launched_place = None

    def place(self) -> Place | None:
        """The rank of this process; None where it has none (yet)."""
        child = _is_child()
        if self._launched_place is not None and not child:
            return self._launched_place
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return Place(
                "torch.distributed",
                distributed.get_rank(),
                self._local_rank(),
                distributed.get_world_size(),
            )
        # A child without a process group (a loader's worker, Hogwild) cannot be declared from its siblings.
        return None if child else Place("none", 0, 0, 1)

    @property
    def launched(self) -> bool:
        """Whether a launcher made this process a rank; else it must train before it counts as one."""
        return self._launched_place is not None and not _is_child()

    def world_size(self) -> int:
        """Ranks of the job; below 1: not known (yet)."""
        place = self.place()
        return place.world_size if place is not None else -1

    def layout(self) -> Layout:
        """Parallel sizes and order of the job's ranks; empty where nothing tells."""
        place = self.place()
        megatron = sys.modules.get("megatron.core.parallel_state")
        made = megatron is not None and megatron.model_parallel_is_initialized()
        key = (place, made, self._mesh, self._groups)
        if self._known is None or self._known[0] != key:
            try:
                self._known = key, self._find(place, megatron if made else None)
            except AssertionError:  # Megatron calls itself initialised before all of its groups are made
                return self._find(place, None)
        return self._known[1]

    def note_mesh(self, names: tuple[str, ...], shape: tuple[int, ...]) -> bool:
        """A device mesh was made. Whether the layout is another one now."""
        before = self.layout()
        self._mesh = self._of_all_ranks(names, shape) or self._mesh
        return self.layout() != before

    def note_groups(self, names: tuple[str, ...], shape: tuple[int, ...]) -> bool:
        """Process groups are the lines of such a mesh. Whether the layout is another one now."""
        before = self.layout()
        self._groups = self._of_all_ranks(names, shape) or self._groups
        return self.layout() != before

    def _of_all_ranks(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Layout | None:
        """The layout of a mesh; None where it covers a part of the job, or is none that we know."""
        layout, place = from_mesh(names, shape), self.place()
        size = math.prod(layout.sizes[name] for name in layout.order) if layout.sizes else 0
        return layout if place is not None and size == place.world_size else None

    def _find(self, place: Place | None, megatron: Any) -> Layout:
        if place is None:
            return Layout()
        try:
            declared = identity.layout(self._parallel, place.world_size)
        except ValueError as error:
            self._say(f"{error}; going on without it")
            declared = Layout()
        if declared.sizes:
            return declared
        if megatron is not None:
            return from_megatron(megatron, place.rank)
        return self._mesh if self._mesh.sizes else self._groups

    def _local_rank(self) -> int:
        text = self._environ.get("LOCAL_RANK", "")
        if text.isdecimal() and not _is_child():
            return int(text)
        return int(self._torch.cuda.current_device()) if self._torch.cuda.is_initialized() else -1


def from_mesh(names: tuple[str, ...], shape: tuple[int, ...]) -> Layout:
    """Layout of a device mesh over all ranks in order, dimensions from slowest to fastest.

    `tp` and `pp` are what they say. All others (dp_replicate, dp_shard, cp, ...) hold replicas of the same
    work and together are dp; they must be neighbours. `ep` and `cp` are kept where they are the fastest.
    """
    if len(names) != len(shape):
        raise ValueError(f"a mesh of dimensions {names} has the shape {shape}")
    groups: list[tuple[str, int]] = []
    sizes = {"tp": 1, "pp": 1, "dp": 1}
    for name, size in zip(names, shape):
        role = name if name in ("tp", "pp") else "dp"
        sizes[role] *= size
        if not groups or groups[-1][0] != role:
            groups.append((role, size))
    order = [role for role, _ in groups]
    if len(set(order)) != len(order):
        return Layout()
    replicas = [(name, size) for name, size in zip(names, shape) if name not in ("tp", "pp")]
    fastest, size = replicas[-1] if replicas else ("", 1)
    if fastest in ("cp", "ep") and size > 1:
        sizes[fastest] = size
    order += [role for role in ("dp", "tp", "pp") if role not in order]
    return Layout(sizes, tuple(order))


def from_megatron(state: Any, rank: int) -> Layout:
    """Layout of `megatron.core.parallel_state`; context parallel splits data parallel, as it does there.

    Empty where no order of ranks that we know gives this rank the place that Megatron gave it.
    """
    tp, pp = (
        int(state.get_tensor_model_parallel_world_size()),
        int(state.get_pipeline_model_parallel_world_size()),
    )
    cp = int(state.get_context_parallel_world_size())
    sizes = {"tp": tp, "pp": pp, "dp": cp * int(state.get_data_parallel_world_size())}
    at = {
        "tp": int(state.get_tensor_model_parallel_rank()),
        "pp": int(state.get_pipeline_model_parallel_rank()),
        "dp": int(state.get_context_parallel_rank()) + cp * int(state.get_data_parallel_rank()),
    }
    for order in _ORDERS:
        layout = Layout(sizes, order)
        if layout.coordinates(rank) == at:
            ep = int(state.get_expert_model_parallel_world_size())
            if cp > 1:
                sizes["cp"] = cp
            if ep > 1 and at["dp"] % ep == int(state.get_expert_model_parallel_rank()):
                sizes["ep"] = ep
            return layout
    return Layout()


def _is_child() -> bool:
    """Whether `multiprocessing` started this process."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None
