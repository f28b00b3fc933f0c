"""What a program trains on: the GPU, or a stand-in: the CPU, and a fake CUPTI that is told of each
operation.

The stand-in is a device in so far as programs ask: every operation of torch becomes a kernel that starts
when its stream has finished the one before and is recorded when it has ended; a copy, a memory set, an
event, a graph and a profiler window behave accordingly. Its times are made up: it shows that programs and
counting work, and nothing about CUDA.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.gpu_day.stand_ins import VARIABLE

Durations = dict[str, list[float]]
"""Microseconds of each kernel, by name."""


class Device(Protocol):
    """The device of a program. `torch_device` is where its tensors live."""

    torch_device: str

    def on(self) -> AbstractContextManager[Any]:
        """While the program runs."""
        ...

    def synchronize(self) -> None: ...

    def profiled(self) -> AbstractContextManager[Durations]:
        """A window of torch.profiler; filled when it has ended."""
        ...

    def graph(self, work: Callable[[], object]) -> Callable[[], object]:
        """Capture `work`; calling the answer replays it."""
        ...

    def stream(self) -> AbstractContextManager[Any]:
        """Work on a stream of its own."""
        ...

    def event(self) -> Any:
        """Recorded now, on the current stream; `elapsed_time(later)` in ms."""
        ...

    def spin(self, milliseconds: float) -> None:
        """A kernel that lasts about so long."""
        ...

    def copy_in(self, mebibytes: int) -> None:
        """From pinned host memory to the device."""
        ...

    def fill(self, count: int) -> None:
        """One memory set of so many 32-bit words."""
        ...


class Gpu:
    """CUDA."""

    torch_device = "cuda"

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._words = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
        self._cycles_per_ms = 0.0

    def on(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    @contextlib.contextmanager
    def profiled(self) -> Iterator[Durations]:
        seen: Durations = defaultdict(list)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            yield seen
        for event in profile.events():
            # An annotation of the host has a shadow on the GPU's timeline, which is no kernel.
            shadow = getattr(event, "is_user_annotation", False)
            if event.device_type == torch.autograd.DeviceType.CUDA and not shadow:
                seen[event.name].append(event.time_range.elapsed_us())

    def graph(self, work: Callable[[], object]) -> Callable[[], object]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        replay: Callable[[], object] = graph.replay
        return replay

    def stream(self) -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = torch.cuda.stream(torch.cuda.Stream())
        return made

    def event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def spin(self, milliseconds: float) -> None:
        if not self._cycles_per_ms:
            self._cycles_per_ms = self._measured_cycles()
        torch.cuda._sleep(int(milliseconds * self._cycles_per_ms))

    def _measured_cycles(self) -> float:
        cycles = 20_000_000
        torch.cuda._sleep(cycles)
        begin = self.event()
        torch.cuda._sleep(cycles)
        end = self.event()
        torch.cuda.synchronize()
        return cycles / float(begin.elapsed_time(end))

    def copy_in(self, mebibytes: int) -> None:
        host = torch.empty(mebibytes << 20, dtype=torch.uint8, pin_memory=True)
        host.to("cuda", non_blocking=True)

    def fill(self, count: int) -> None:
        # The driver's own call: torch fills with a kernel, not with a memory set.
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        address = ctypes.c_uint64(self._words.data_ptr())
        status = self._driver.cuMemsetD32Async(address, 0, ctypes.c_size_t(count), stream)
        if status != 0:
            raise RuntimeError(f"cuMemsetD32Async ended with CUDA error {status}")


class _Activity(ctypes.Structure):
    """`fake::Activity` of native/injector/testing/fake_cupti.hpp."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("kind", "device", "stream", "correlation", "graph", "call")),
        *((name, ctypes.c_uint64) for name in ("start", "end", "bytes")),
        ("value", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    )


SLOWER = "GPU_DAY_SLOWER"
"""Factor on the stand-in's durations, with a spread of 2 %; unset: they are all alike."""
NCCL_HOST = "GPU_DAY_NCCL_HOST"
"""Path of the library `fake_nccl_host` of native/nccl/testing; unset: nobody speaks for NCCL."""
_MEMCPY, _MEMSET, _RUNTIME, _KERNEL = 1, 2, 5, 10
_LAUNCH_KERNEL, _LAUNCH_GRAPH = 211, 311
_KERNEL_NS, _ISSUE_NS = 10_000, 8_000
_FIRST_STREAM = 7
_VIEWS = (
    "view",
    "detach",
    "alias",
    "_to_copy",
    "t.",
    "transpose",
    "expand",
    "empty",
    "_unsafe_view",
    "slice",
)


class _Event:
    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def elapsed_time(self, later: _Event) -> float:
        return (later.at_ns - self.at_ns) / 1e6


class StandIn(TorchDispatchMode):  # type: ignore[misc]
    """CPU torch beside the fake libcuda and libcupti, which LD_LIBRARY_PATH finds."""

    torch_device = "cpu"

    def __init__(self) -> None:
        super().__init__()
        ctypes.CDLL("libcuda.so.1").cuInit(0)
        cupti = ctypes.CDLL("libcupti.so.13")
        self._emit, self._timestamp = cupti.fake_emit, cupti.cuptiGetTimestamp
        self._emit.argtypes = (ctypes.POINTER(_Activity),)
        self._emit.restype = None
        self._stream, self._streams, self._correlation = _FIRST_STREAM, _FIRST_STREAM, 0
        self._busy: dict[int, int] = {}
        self._waiting: list[_Activity] = []
        self._names: dict[str, bytes] = {}
        self._captured: list[str] | None = None
        self._graphs = 0
        self._journal: Durations | None = None
        slower = float(os.environ.get(SLOWER, "0"))
        self._random = random.Random(os.getpid())
        self._slower = slower

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        if name == "c10d.allreduce_.default":
            _tell_nccls_plugin(sum(tensor.numel() for tensor in args[0]))
        if not any(part in name for part in _VIEWS):
            self._launch(name)
        return function(*args, **(kwargs or {}))

    def on(self) -> AbstractContextManager[Any]:
        return self

    def synchronize(self) -> None:
        last = max(self._busy.values(), default=0)
        while (left := last - self._now()) > 0:
            time.sleep(left / 1e9)
        self._record(everything=True)

    @contextlib.contextmanager
    def profiled(self) -> Iterator[Durations]:
        seen: Durations = defaultdict(list)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            self._journal = seen
            try:
                yield seen
                self.synchronize()
            finally:
                self._journal = None

    def graph(self, work: Callable[[], object]) -> Callable[[], object]:
        names: list[str] = []
        self._captured = names
        try:
            work()
        finally:
            self._captured = None
        self._graphs += 1
        number = self._graphs

        def replay() -> None:
            self._correlation += 1
            self._call(_LAUNCH_GRAPH)
            for name in names:
                self._add(_KERNEL, name, graph=number)

        return replay

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        before, self._streams = self._stream, self._streams + 1
        self._stream = self._streams
        try:
            yield
        finally:
            self._stream = before

    def event(self) -> Any:
        return _Event(max(self._now(), self._busy.get(self._stream, 0)))

    def spin(self, milliseconds: float) -> None:
        self._launch("spin", duration_ns=int(milliseconds * 1e6))

    def copy_in(self, mebibytes: int) -> None:
        self._correlation += 1
        self._add(_MEMCPY, "Memcpy HtoD (Pinned -> Device)", size=mebibytes << 20)

    def fill(self, count: int) -> None:
        self._correlation += 1
        self._add(_MEMSET, "Memset (Device)", size=4 * count, duration_ns=1_000)

    def _now(self) -> int:
        ticks = ctypes.c_uint64()
        self._timestamp(ctypes.byref(ticks))
        return ticks.value

    def _launch(self, name: str, duration_ns: int = _KERNEL_NS) -> None:
        if self._captured is not None:
            self._captured.append(name)
            return
        self._correlation += 1
        self._call(_LAUNCH_KERNEL)
        self._add(_KERNEL, name, duration_ns=duration_ns)

    def _call(self, call: int) -> None:
        now = self._now()
        made = _Activity(kind=_RUNTIME, call=call, correlation=self._correlation, start=now, end=now + 3_000)
        self._emit(ctypes.byref(made))

    def _lasting(self, duration_ns: int) -> int:
        if not self._slower:
            return duration_ns
        return round(duration_ns * self._slower * self._random.lognormvariate(0.0, 0.02))

    def _add(
        self, kind: int, name: str, *, duration_ns: int = _KERNEL_NS, graph: int = 0, size: int = 0
    ) -> None:
        duration_ns = self._lasting(duration_ns)
        start = max(self._now() + _ISSUE_NS, self._busy.get(self._stream, 0))
        self._busy[self._stream] = start + duration_ns
        if self._journal is not None:
            self._journal[name].append(duration_ns / 1e3)
        text = self._names.setdefault(name, name.encode())
        self._waiting.append(
            _Activity(
                kind=kind,
                stream=self._stream,
                correlation=self._correlation,
                graph=graph,
                start=start,
                end=start + duration_ns,
                bytes=size,
                name=text,
            )
        )
        if len(self._waiting) >= 512:
            self._record()

    def _record(self, *, everything: bool = False) -> None:
        """CUPTI writes a record when its kernel has ended."""
        now = self._now()
        ended = [one for one in self._waiting if everything or one.end <= now]
        self._waiting = [one for one in self._waiting if not everything and one.end > now]
        for one in ended:
            self._emit(ctypes.byref(one))


def _tell_nccls_plugin(elements: int) -> None:
    """Gloo reduces; NCCL's profiler plugin, where this process is to have one, hears of it as from NCCL."""
    host, plugin = os.environ.get(NCCL_HOST), os.environ.get("NCCL_PROFILER_PLUGIN")
    if not (host and plugin):
        return
    call = ctypes.CDLL(host, mode=ctypes.RTLD_GLOBAL).fake_nccl_all_reduce
    call.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_size_t)
    call.restype = None
    group = torch.distributed.group.WORLD
    call(
        plugin.encode(), torch.distributed.get_rank(group), torch.distributed.get_world_size(group), elements
    )


def device() -> Device:
    """Of this process."""
    return StandIn() if VARIABLE in os.environ else Gpu()
