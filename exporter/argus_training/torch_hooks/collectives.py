"""Collectives that the user's Python calls: phase named after the operation, kind comm.

Patched: the functions of `torch.distributed` that are listed here and exist in the installed torch, both
where they are defined and where they are re-exported. One that calls another is one span. Asynchronous
calls (`async_op=True`) return at once, so their host time says nothing: they count in the sequence of their
group (shared page), and the wait for them is a span, `all_reduce-wait`: `Work.wait`, which on a GPU makes the
current stream wait. So are the waits of functional collectives (`wait_tensor`) and of FSDP2 for its
parameters (`dp-unshard-wait`). What DDP, FSDP and autograd issue and wait for in C++ has no span here
(`backward.py`). It is counted all the same: about once a second the shared page takes over how many
collectives of each group torch says that this rank has entered, also while the rank hangs in one. Of an
overdue iteration it takes over too what torch's flight recorder says of them (`overdue.py`).

Patched too: the method by which DDP broadcasts its buffers (of BatchNorm) from rank 0 when a forward begins:
phase `dp-buffers-broadcast`. Who comes late to it lets the others wait.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from argus_core import wire
from argus_training.flight_recorder import FlightRecorder
from argus_training.hook import Hook, Observer
from argus_training.identity import Layout
from argus_training.overdue import OverdueIteration
from argus_training.spans import Task, now
from argus_training.stopwatch import Mark
from argus_training.torch_hooks.awaited import Awaited
from argus_training.torch_hooks.group_counts import GroupCounts

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
ASYNCHRONOUS: Final = "batch_isend_irecv"
"""Returns a list of what to wait for."""
LEFT_OUT: Final = ("isend", "irecv")
"""Asynchronous too. `P2POp` takes these functions alone, also from who imported them before us: `awaited.py`
has the methods that they call."""
POINT_TO_POINT: Final = ("send", "recv", "send_object_list", "recv_object_list", ASYNCHRONOUS)
"""Not entered by all ranks of a group, so they do not count in its sequence."""
GROUP_FIRST: Final = ("barrier", "monitored_barrier")
"""Of the others the first argument is what they move."""

_GROUPS_LIMIT: Final = 1024
_COUNTS_NO_BATCHES: Final = (2, 6)
"""From this torch on NCCL's groups do not count batches of transfers as collectives (pytorch#134833)."""


class CollectivesHook(Hook):
    name = "collectives"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._inside: dict[int, None] = {}  # by thread; a call to a set would cost more
        self._distributed: Any = None
        self._groups: dict[str, str] = {}
        observer.on_topology.append(self._groups.clear)
        self._tasks: dict[tuple[str, str], Task] = {}
        self._overdue: OverdueIteration | None = None
        self._awaited: Awaited
        self._counts: GroupCounts

    def attach(self, torch: Any) -> None:
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d

        self._distributed = distributed_c10d
        self._counts = GroupCounts(
            self.recorder,
            distributed_c10d,
            self._group_name,
            self.observer.layout,
            counts_batches=tuple(map(int, torch.__version__.split(".")[:2])) < _COUNTS_NO_BATCHES,
        )
        self._is_compiling, self._tensor = torch.compiler.is_compiling, torch.Tensor
        for name in (*COLLECTIVES, ASYNCHRONOUS):
            original = getattr(distributed_c10d, name, None)
            if original is None:
                continue
            wrapper = self._wrap(name, original)
            exported = getattr(torch.distributed, name, None) is original
            self.replace(distributed_c10d, name, wrapper)
            if exported:
                self.replace(torch.distributed, name, wrapper)
        from torch._C import _distributed_c10d

        self._overdue = OverdueIteration(
            self.recorder, FlightRecorder(_distributed_c10d, self._unread), self.observer.stopwatch.gpu_is_in
        )
        self.recorder.outbox.on_turn = self._turn
        self._awaited = Awaited(self, self._group_name, self._is_compiling, distributed_c10d)
        self._awaited.attach()
        wait = self._wrap_wait(distributed_c10d.Work.wait, self._awaited.by_work)
        self.replace(distributed_c10d.Work, "wait", wait)
        self.when_imported("torch.distributed._functional_collectives", self._attach_functional)
        for package in ("fsdp._fully_shard", "_composable.fsdp"):  # since torch 2.6, and before
            self.when_imported(f"torch.distributed.{package}._fsdp_param_group", self._attach_fsdp)
        ddp = torch.nn.parallel.DistributedDataParallel
        if hasattr(ddp, "_sync_buffers"):
            wrapper = self._wrap("dp-buffers-broadcast", ddp._sync_buffers, "dp")
            self.replace(ddp, "_sync_buffers", wrapper)
            # It waits for peers: dynamo.disable's 0.4 us do not count.
            self.when_imported(
                "torch._dynamo", lambda dynamo: self.replace(ddp, "_sync_buffers", dynamo.disable(wrapper))
            )

    def _turn(self) -> None:
        """By the sender, about once a second."""
        if not self.alive:
            return
        try:
            names = self._counts.take()
        except Exception as error:
            self.failed(error)
            return
        if self._overdue is not None:
            try:
                backends = {backend for backend, _ in list(self._distributed._world.pg_map.values())}
                self._overdue.turn(names, backends)
            except Exception as error:
                self._overdue = None
                self._unread(error)

    def _unread(self, error: Exception) -> None:
        if not self.recorder.host.limit:
            self.recorder.host.limited("flight_recorder")
        self.recorder.host.say(f"torch's flight recorder is not read: {error!r}")

    def _attach_functional(self, functional: Any) -> None:
        wrapper = self._wrap_wait(functional.wait_tensor, self._awaited.by_tensor)
        self.replace(functional, "wait_tensor", wrapper)
        self._awaited.attach_functional(functional)

    def _attach_fsdp(self, module: Any) -> None:
        """On a GPU FSDP2 gathers in a stream of its own; here the one that computes waits for it."""
        class_ = module.FSDPParamGroup
        wrapper = self._wrap_wait(class_.wait_for_unshard, lambda _: ("dp-unshard", "dp"))
        self.replace(class_, "wait_for_unshard", wrapper)

    def _wrap(self, name: str, original: Callable[..., Any], group: str = "") -> Callable[..., Any]:
        """`group`: its name, where the arguments do not tell."""
        counted = name not in POINT_TO_POINT
        not_groups = 0 if name in GROUP_FIRST else 1
        words, transfers, batches = self.recorder.words, self._counts.transfers, self._counts.batches
        places: dict[str, tuple[int, Task]] = {}  # of a group: the word that counts, and what a span is of

        def begins(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Task | None, str]:
            process_group = kwargs.get("group")
            if not process_group and len(args) > not_groups:
                process_group = self._group_in(args)
            number = 1
            if name == ASYNCHRONOUS:
                operations = args[0] if args else kwargs["p2p_op_list"]
                number, process_group = len(operations), operations[0].group if operations else None
            named = group or ("world" if process_group is None else self._group_name(process_group))
            if not named:
                return None, named
            if named not in places:
                places[named] = self.recorder.collectives(named), self._task(name, named)
            slot, task = places[named]
            if counted:  # as Recorder.entered does it, without a call
                words[slot + 1] = now()
                words[slot] += 1
            else:
                transfers[named] = transfers.get(named, 0) + number
                if name == ASYNCHRONOUS:
                    batches[named] = batches.get(named, 0) + 1
            return None if kwargs.get("async_op") or name == ASYNCHRONOUS else task, named

        def ended(result: Any, named: str) -> bool:
            works = result if type(result) is list else (result,)
            awaited = [self._awaited.note(work, name, named) for work in works]
            return not any(awaited)  # async_op may have been given by position

        return self._around(original, begins, ended)

    def _wrap_wait(
        self, original: Callable[..., Any], of: Callable[[Any], tuple[str, str]]
    ) -> Callable[..., Any]:
        """`of`: name and group of what its first argument stands for."""

        def begins(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Task | None, str]:
            name, group = of(args[0] if args else next(iter(kwargs.values()), None))
            return self._task(f"{name}-wait", group), group

        return self._around(original, begins)

    def _around(
        self,
        original: Callable[..., Any],
        begins: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Task | None, str]],
        ended: Callable[[Any, str], bool] | None = None,
    ) -> Callable[..., Any]:
        """`original` with a span around it.

        Args:
            begins: gives what the span is of (None: there is none), and the group.
            ended: takes a result other than None, and the group; whether it was a span. None: it always was.
        """
        stopwatch, is_compiling = self.observer.stopwatch, self._is_compiling
        progress, recorder, outbox = self.observer.progress, self.recorder, self.recorder.outbox
        words, put, waiting = recorder.words, recorder.put, outbox.log.waiting
        inside, communicating = self._inside, progress.communicating

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # First: a compiler that traces the user's function sees no more of us.
            if is_compiling() or (thread := get_ident()) in inside or not self.alive:
                return original(*args, **kwargs)
            inside[thread] = None
            task: Task | None = None
            begin: Mark | None = None
            group, usual = "", False
            try:
                try:
                    task, group = begins(args, kwargs)
                    if communicating and communicating[thread]:  # a framework's own name for it tells more
                        task = None
                    if task is not None:
                        # A step may hold thousands: then somebody has to look at how many wait.
                        usual = progress.steady and waiting() < outbox.room and thread == recorder.thread
                        if usual:
                            begin = words[task.slot] = now()
                        else:
                            begin = stopwatch.begin(task)
                except Exception as error:
                    self.failed(error)
                result = original(*args, **kwargs)
            except BaseException:
                del inside[thread]
                if task is not None:
                    stopwatch.discard(task, begin)
                raise
            del inside[thread]
            try:
                is_span = result is None or ended is None or ended(result, group)
                if task is not None:
                    if is_span and usual and progress.steady:
                        words[task.slot] = 0
                        put((task.code, begin, now()))
                    else:
                        (stopwatch.span if is_span else stopwatch.discard)(task, begin)
            except Exception as error:
                self.failed(error)
            return result

        return call

    def _task(self, name: str, group: str) -> Task:
        known = self._tasks.get((name, group))
        if known is None:
            known = self._tasks[name, group] = self.observer.stopwatch.task(name, wire.Kind.COMM, group)
        return known

    def _group_in(self, args: tuple[Any, ...]) -> Any:
        """Given by position, or None."""
        types = self._distributed
        for argument in args:
            if type(argument) is not self._tensor and (
                argument is types.GroupMember.NON_GROUP_MEMBER or isinstance(argument, types.ProcessGroup)
            ):
                return argument
        return None

    def _group_name(self, group: Any) -> str:
        """A dimension where the job's layout explains the group, else a name that its members share.

        Empty where this rank is not in it, or alone: the collective returns at once.
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
            named = group_name(ranks, self.observer.layout(), world_size, description)
            known = self._groups[key] = named if len(ranks) > 1 else ""
        return known


def group_name(ranks: list[int], layout: Layout, world_size: int, description: str = "") -> str:
    """Name of a process group: `world`, a dimension (`tp`: its ranks differ in tp only), or `ranks:0-6.4`.

    Ranks that are not evenly spaced have a checksum too: groups of one name are counted together.
    """
    if len(ranks) == world_size:
        return "world"
    if dimension := layout.group(ranks, description):
        return dimension
    even = ranks == list(range(ranks[0], ranks[-1] + 1, (ranks[1:] or [ranks[0] + 1])[0] - ranks[0]))
    checksum = "" if even else f".{zlib.crc32(repr(ranks).encode()):08x}"
    return f"ranks:{ranks[0]}-{ranks[-1]}.{len(ranks)}{checksum}"
