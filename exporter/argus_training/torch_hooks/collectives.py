"""Collectives that the user's Python calls: phase named after the operation, kind comm.

Patched: the functions of `torch.distributed` that are listed here and exist in the installed torch, both
where they are defined and where they are re-exported. One that calls another is one span. Asynchronous
calls (`async_op=True`) return at once, so their host time says nothing: they count in the sequence of their
group (shared page), and their time is left to the kernel channel. So are functional collectives and those
that DDP and FSDP issue from C++ (`backward.py` times the wait for them).

Patched too: the method by which DDP broadcasts its buffers (of BatchNorm) from rank 0 when a forward begins:
phase `dp-buffers-broadcast`. Who comes late to it lets the others wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from argus_core import wire
from argus_training.hook import Hook, Observer
from argus_training.identity import Layout
from argus_training.spans import Task
from argus_training.stopwatch import Mark

# Each torch has some of these. all_gather_single and reduce_scatter_single are 2.13's names for the
# *_into_tensor and *_tensor forms; a test names what the installed torch has and neither list knows.
COLLECTIVES: Final = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
)
LEFT_OUT: Final = ("isend", "irecv", "batch_isend_irecv")
"""Asynchronous by nature."""
POINT_TO_POINT: Final = ("send", "recv", "send_object_list", "recv_object_list")
"""Not entered by all ranks of a group, so they do not count in its sequence."""

_GROUPS_LIMIT: Final = 1024


class CollectivesHook(Hook):
    name = "collectives"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._inside = False
        self._distributed: Any = None
        self._groups: dict[str, str] = {}
        observer.on_topology.append(self._groups.clear)
        self._tasks: dict[tuple[str, str], Task] = {}

    def attach(self, torch: Any) -> None:
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d

        self._distributed = distributed_c10d
        for name in COLLECTIVES:
            original = getattr(distributed_c10d, name, None)
            if original is None:
                continue
            wrapper = self._wrap(name, original)
            exported = getattr(torch.distributed, name, None) is original
            self.replace(distributed_c10d, name, wrapper)
            if exported:
                self.replace(torch.distributed, name, wrapper)
        ddp = torch.nn.parallel.DistributedDataParallel
        if hasattr(ddp, "_sync_buffers"):
            wrapper = self._wrap("dp-buffers-broadcast", ddp._sync_buffers, "dp")
            self.replace(ddp, "_sync_buffers", wrapper)
            # It waits for peers: dynamo.disable's 0.4 us do not count.
            self.when_imported(
                "torch._dynamo", lambda dynamo: self.replace(ddp, "_sync_buffers", dynamo.disable(wrapper))
            )

    def _wrap(self, name: str, original: Callable[..., Any], group: str = "") -> Callable[..., Any]:
        """`group`: its name, where the arguments do not tell."""
        stopwatch = self.observer.stopwatch
        counted = name not in POINT_TO_POINT

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if self._inside or not self.alive:
                return original(*args, **kwargs)
            self._inside = True
            task: Task | None = None
            begin: Mark | None = None
            try:
                process_group = kwargs.get("group") or next(filter(self._is_group, args), None)
                named = group or self._group_name(process_group)
                if counted and named:
                    self.recorder.entered(named)
                if named and not kwargs.get("async_op"):
                    task = self._task(name, named)
                    begin = stopwatch.begin(task)
            except Exception as error:
                self.failed(error)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._inside = False
                if task is not None:
                    stopwatch.discard(task, begin)
                raise
            self._inside = False
            try:
                if task is None:
                    pass
                elif result is not None and hasattr(result, "wait"):  # async_op was given by position
                    stopwatch.discard(task, begin)
                else:
                    stopwatch.span(task, begin)
            except Exception as error:
                self.failed(error)
            return result

        return collective

    def _task(self, name: str, group: str) -> Task:
        known = self._tasks.get((name, group))
        if known is None:
            known = self._tasks[name, group] = self.observer.stopwatch.task(name, wire.Kind.COMM, group)
        return known

    def _is_group(self, argument: Any) -> bool:
        types = self._distributed
        return argument is types.GroupMember.NON_GROUP_MEMBER or isinstance(argument, types.ProcessGroup)

    def _group_name(self, group: Any) -> str:
        """A dimension where the job's layout explains the group, else a name that its members share.

        Empty where this rank is not in it: the collective returns at once.
        """
        if group is self._distributed.GroupMember.NON_GROUP_MEMBER:
            return ""
        if group is None or group is self._distributed.GroupMember.WORLD:
            return "world"
        key = str(group.group_name)
        known = self._groups.get(key)
        if known is None:
            if len(self._groups) >= _GROUPS_LIMIT:
                return "other"
            ranks = sorted(self._distributed.get_process_group_ranks(group))
            world_size = self._distributed.get_world_size()
            description = getattr(group, "group_desc", "")
            known = self._groups[key] = group_name(ranks, self.observer.layout(), world_size, description)
        return known


def group_name(ranks: list[int], layout: Layout, world_size: int, description: str = "") -> str:
    """Name of a process group: `world`, a dimension (`tp`: its ranks differ in tp only), or `ranks:0-6.4`."""
    if len(ranks) == world_size:
        return "world"
    return layout.group(ranks, description) or f"ranks:{ranks[0]}-{ranks[-1]}.{len(ranks)}"
