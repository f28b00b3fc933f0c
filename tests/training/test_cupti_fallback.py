"""The kernels channel by cupti-python, against a stand-in that copies only its published interface.

The stand-in's signatures and fields are those of cupti-python 13.0 and 13.4 (`cupti/cupti.pyi`); the package
itself needs a GPU and is not run here.
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.link import Link
from argus_training import cupti_records
from argus_training.cupti_fallback import TOOLS, CuptiFallback, taken
from argus_training.cupti_records import demangle
from argus_training.identity import Layout, Place, hello
from exporter.exporter_process import config, exporter, scrape, value, wait_for

EPOCH_NS = 1_700_000_000_000_000_000
"""How far the stand-in's clock is behind Unix time."""


class ActivityKind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    CONCURRENT_KERNEL = 10
    OVERHEAD = 17


class cuptiError(Exception):  # noqa: N801  (the package's own spelling)
    pass


@dataclass
class ActivityKernel10:
    start: int
    end: int
    name: str = "gemm"
    stream_id: int = 7
    device_id: int = 0
    kind: int = ActivityKind.CONCURRENT_KERNEL


@dataclass
class ActivityMemcpy6:
    start: int
    end: int
    bytes: int = 4096
    copy_kind: int = 1
    src_kind: int = 2
    dst_kind: int = 3
    stream_id: int = 13
    device_id: int = 0
    kind: int = ActivityKind.MEMCPY


@dataclass
class ActivityMemset4:
    start: int
    end: int
    bytes: int = 1
    memory_kind: int = 3
    stream_id: int = 7
    device_id: int = 0
    kind: int = ActivityKind.MEMSET


class Cupti:
    """One process's CUPTI: one pair of callbacks, kinds that are on or off, buffers that flushes complete."""

    ActivityKind = ActivityKind
    cuptiError = cuptiError  # noqa: N815

    def __init__(self) -> None:
        self.enabled: set[int] = set()
        self.callbacks: tuple[Callable[[], tuple[int, int]], Callable[[list[object]], None]] | None = None
        self.buffer: list[object] = []
        self.flushes: list[int] = []
        self.refuse = False
        self.rate = 1.0

    def activity_register_callbacks(
        self, func_buffer_requested: Callable[[], tuple[int, int]], func_buffer_completed: Callable[..., None]
    ) -> None:
        self.callbacks = func_buffer_requested, func_buffer_completed

    def activity_enable(self, kind: int) -> None:
        if self.refuse:
            raise cuptiError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def activity_flush_all(self, flag: int) -> None:
        self.flushes.append(flag)
        if self.callbacks is not None and self.buffer:
            requested, completed = self.callbacks
            size, limit = requested()
            assert size > 0
            assert limit == 0
            activities, self.buffer = self.buffer, []
            completed(activities)

    def get_timestamp(self) -> int:
        return int((time.time_ns() - EPOCH_NS) * self.rate)

    # -- what the GPU does ----------------------------------------------------------------------------------

    def ran(self, *activities: object) -> None:
        self.buffer += [activity for activity in activities if activity.kind in self.enabled]  # type: ignore[attr-defined]

    def kernel(self, duration_ns: int = 1000, **more: object) -> None:
        start = self.get_timestamp() - duration_ns
        self.ran(ActivityKernel10(start, start + duration_ns, **more))  # type: ignore[arg-type]


class Wire(Link):
    """A link that keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), lambda: hello(Place("t", 0, 0, 1), "job", Layout()))
        self.kernels = bytearray()
        self.states: list[wire.ChannelState] = []
        self.bound: dict[int, str] = {}

    def name_id(self, text: str) -> int:
        known = super().name_id(text)
        self.bound[known] = text
        return known

    def add_packed(self, type_: wire.MessageType, packed: bytes) -> None:
        if type_ is wire.MessageType.KERNELS:
            self.kernels += packed
        elif type_ is wire.MessageType.CHANNELS:
            self.states += wire.ChannelState.unpack_all(packed)

    def flush(self) -> None:
        pass

    def records(self) -> np.ndarray:  # type: ignore[type-arg]
        return np.frombuffer(bytes(self.kernels), KERNEL_DTYPE)

    def names(self) -> list[str]:
        return [self.bound[int(record["name_id"])] for record in self.records()]

    def reason(self) -> str:
        return self.bound.get(self.states[-1].reason_id, "")


@dataclass
class Rank:
    cupti: Cupti
    link: Wire
    fallback: CuptiFallback
    steps: int = 0
    seconds: float = 0.0
    """The watchdog's clock."""


@pytest.fixture
def rank() -> Iterator[Rank]:
    cupti, link = Cupti(), Wire()
    made = Rank(cupti, link, None)  # type: ignore[arg-type]
    made.fallback = CuptiFallback(
        link,
        load=lambda: cupti,
        ready=lambda: True,
        steps=lambda: made.steps,
        watchdog_s=30,
        monotonic=lambda: made.seconds,
    )
    yield made
    made.fallback.close()


def test_kernels_copies_and_sets_become_records_of_the_wire(rank: Rank) -> None:
    """As libargus_cupti sends them: Unix times, durations, Kineto's names, KiB, stream and device."""
    rank.fallback.turn()
    at = rank.cupti.get_timestamp() - 1_000_000
    rank.cupti.ran(
        ActivityKernel10(at, at + 5000, name="_Z4gemmPf", device_id=2),
        ActivityMemcpy6(at, at + 700),
        ActivityMemset4(at, at + 30),
    )
    rank.fallback.turn()
    records = rank.link.records()
    assert rank.link.names() == ["gemm(float*)", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"]
    assert records["duration_ns"].tolist() == [5000, 700, 30]
    assert records["stream"].tolist() == [7, 13, 7]
    assert records["kilobytes"].tolist() == [0, 4, 1]
    assert records["operation"].tolist() == [
        wire.Operation.KERNEL,
        wire.Operation.MEMCPY,
        wire.Operation.MEMSET,
    ]
    assert records["device"].tolist() == [2, 0, 0]
    assert records["issue_ns"].tolist() == [-1, -1, -1]
    assert abs(int(records["start_ns"][0]) - time.time_ns()) < 60_000_000_000
    assert (rank.link.states[-1].channel, rank.link.states[-1].up) == (wire.Channel.KERNELS, 1)


def test_kinds_of_other_tools_are_none_of_ours(rank: Rank) -> None:
    """They are neither records nor losses."""
    rank.fallback.turn()
    rank.cupti.enabled.add(ActivityKind.OVERHEAD)
    at = rank.cupti.get_timestamp() - 1000
    rank.cupti.ran(ActivityKernel10(at, at + 1, kind=ActivityKind.OVERHEAD))
    rank.fallback.turn()
    assert len(rank.link.records()) == 0
    assert rank.fallback.queue.dropped == 0


def test_nothing_is_loaded_before_cuda_is_used() -> None:
    """A process without CUDA never imports the package and never speaks."""
    loaded: list[bool] = []
    link = Wire()
    fallback = CuptiFallback(link, load=lambda: loaded.append(True), ready=lambda: False, steps=lambda: 0)
    fallback.turn()
    assert loaded == []
    assert link.states == []


def test_a_missing_package_is_a_reason() -> None:
    """The channel is down; training goes on."""
    link = Wire()

    def load() -> object:
        raise ImportError("No module named 'cupti'")

    fallback = CuptiFallback(link, load=load, ready=lambda: True, steps=lambda: 0)
    fallback.turn()
    fallback.turn()
    assert link.states[-1].up == 0
    assert link.reason() == "cupti_python_missing"


def test_a_cupti_that_refuses_is_a_reason(rank: Rank) -> None:
    """Another tool holds the only session."""
    rank.cupti.refuse = True
    rank.fallback.turn()
    assert rank.link.reason() == "cupti_error"
    assert rank.cupti.enabled == set()


def test_a_profiler_window_in_mid_run_is_left_alone_and_recovered_from(rank: Rank) -> None:
    """Kineto's way: it registers callbacks of its own, and switches the kinds off when it stops."""
    rank.fallback.turn()
    rank.cupti.kernel()
    rank.fallback.pause()
    theirs: list[object] = []
    rank.cupti.activity_register_callbacks(lambda: (1 << 20, 0), theirs.extend)
    rank.cupti.activity_enable(ActivityKind.CONCURRENT_KERNEL)
    rank.cupti.kernel()
    rank.fallback.turn()
    assert rank.link.reason() == "paused"
    rank.cupti.activity_flush_all(0)
    rank.cupti.activity_disable(ActivityKind.CONCURRENT_KERNEL)
    rank.fallback.rearm()
    rank.cupti.kernel()
    rank.fallback.turn()
    assert len(theirs) == 1
    assert len(rank.link.records()) == 2
    assert rank.link.states[-1].up == 1


def test_stolen_callbacks_are_taken_back(rank: Rank) -> None:
    """No word from the thief: steps go on, kernels do not, and after the watchdog's time they do."""
    rank.fallback.turn()
    rank.cupti.activity_register_callbacks(lambda: (1 << 20, 0), lambda _: None)
    for rank.seconds in range(1, 32):
        assert rank.fallback.rearmed == 0
        rank.steps += 1
        rank.cupti.kernel()
        rank.fallback.turn()
    assert rank.fallback.rearmed == 1
    rank.cupti.kernel()
    rank.fallback.turn()
    assert len(rank.link.records()) >= 1


def test_a_rank_that_does_not_step_is_not_rearmed(rank: Rank) -> None:
    """A stall is no theft."""
    for rank.seconds in range(1, 100):
        rank.fallback.turn()
    assert rank.fallback.rearmed == 0


def test_a_kernel_without_an_end_is_dropped_and_counted(rank: Rank) -> None:
    """It ran while CUPTI was flushed."""
    rank.fallback.turn()
    at = rank.cupti.get_timestamp() - 1000
    rank.cupti.ran(ActivityKernel10(at, 0), ActivityKernel10(at, at + 10))
    rank.fallback.turn()
    assert len(rank.link.records()) == 1
    assert rank.link.states[-1].dropped == 1


def test_impossible_times_stop_the_channel(rank: Rank) -> None:
    """A thousand in a row: better no numbers than wrong ones."""
    rank.fallback.turn()
    rank.cupti.ran(*(ActivityKernel10(5, 1) for _ in range(1000)))
    rank.fallback.turn()
    assert rank.link.reason() == "invalid_timestamps"
    assert rank.cupti.enabled == set()


def test_a_clock_that_counts_something_else_stops_the_channel(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kineto may register a timestamp callback that counts processor ticks."""
    now = [EPOCH_NS + 10**18]
    monkeypatch.setattr(rank.fallback, "_clock", lambda: now[0])
    monkeypatch.setattr(rank.cupti, "get_timestamp", lambda: (now[0] - EPOCH_NS) * 3)
    rank.fallback.turn()
    now[0] += 1_000_000_000
    rank.fallback.turn()
    assert rank.link.reason() == "foreign_clock"


def test_a_flood_is_bounded_and_counted(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker does not come: what exceeds the queue is dropped."""
    monkeypatch.setattr(cupti_records, "_QUEUE_LIMIT", 100)
    rank.fallback.turn()
    for _ in range(30):
        for _ in range(10):
            rank.cupti.kernel()
        rank.cupti.activity_flush_all(0)
    assert len(rank.fallback.queue) == 100
    assert rank.fallback.queue.dropped == 200
    rank.fallback.turn()
    assert len(rank.link.records()) == 100


def test_an_activity_of_another_shape_costs_its_buffer_and_nothing_more(rank: Rank) -> None:
    """A later cupti-python may rename a field: nothing is raised into CUPTI."""
    rank.fallback.turn()

    class Strange:
        kind = ActivityKind.CONCURRENT_KERNEL

    rank.cupti.ran(Strange(), Strange())
    rank.fallback.turn()
    assert rank.fallback.queue.dropped == 2


def test_names_are_bounded(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that numbers its kernels: the rest is other."""
    monkeypatch.setattr(cupti_records, "_NAMES_LIMIT", 20)
    rank.fallback.turn()
    for index in range(50):
        rank.cupti.kernel(name=f"k{index}")
    rank.fallback.turn()
    assert len(rank.link.bound) <= 21
    assert rank.link.names().count("other") >= 30


def test_closing_leaves_cupti_without_our_kinds(rank: Rank) -> None:
    """A forced flush while the interpreter is still whole; a callback after it does nothing."""
    rank.fallback.turn()
    rank.cupti.kernel()
    rank.fallback.close()
    assert rank.cupti.enabled == set()
    assert rank.cupti.flushes[-1] == 1
    assert rank.cupti.callbacks is not None
    rank.cupti.callbacks[1]([object()])
    assert rank.fallback.queue.dropped == 0


def test_records_reach_the_exporter(tmp_path: Path) -> None:
    """Over the real wire, with names and the state of the channel."""
    cupti = Cupti()
    with exporter(config(tmp_path / "s")) as running:
        link = Link(running.socket, lambda: hello(Place("t", 0, 0, 1), "job", Layout()), patience_s=5)
        fallback = CuptiFallback(link, load=lambda: cupti, ready=lambda: True, steps=lambda: 0)
        fallback.turn()
        for _ in range(3000):
            cupti.kernel()
        fallback.turn()
        wait_for(
            lambda: (value(scrape(running.url), "argus_records_total", channel="kernels") or 0) >= 3000,
            "records",
        )
        assert value(scrape(running.url), "argus_channel_up", channel="kernels") == 1.0
        fallback.close()


@pytest.mark.parametrize(
    ("environ", "maps", "expected"),
    [
        ({}, "7f00 /usr/lib/libcupti.so.13\n", ""),
        ({}, "7f00 /opt/argus/libargus_cupti.so\n", None),
        ({"CUDA_INJECTION64_PATH": "/opt/argus/libargus_cupti.so"}, "", None),
        ({"CUDA_INJECTION64_PATH": "/opt/nsight/injection.so"}, "", "slot_taken"),
        ({"NSYS_PROFILING_SESSION_ID": "1", "CUDA_INJECTION64_PATH": "/opt/x.so"}, "", "nsight_systems"),
        ({}, "7f00 /opt/nvrx_cupti_module.cpython-311-x86_64-linux-gnu.so\n", "nvrx"),
    ],
)
def test_only_a_free_cupti_is_used(
    tmp_path: Path, environ: dict[str, str], maps: str, expected: str | None
) -> None:
    """Neither beside our own library nor beside somebody else's."""
    (tmp_path / "maps").write_text(maps)
    assert taken(environ, tmp_path / "maps") == expected


def test_who_else_has_cupti_is_known_as_in_the_library() -> None:
    """One table, in two languages."""
    source = (Path(__file__).parents[2] / "native/injector/other_users.cpp").read_text(encoding="utf-8")
    rows = re.findall(r'\{"(\w+)", (?:"(\w+)"|nullptr), "(/[^"]+)"\}', source)
    assert tuple(rows) == TOOLS


def test_where_cupti_is_anothers_the_channel_says_so(rank: Rank) -> None:
    """Nothing is loaded, nothing is touched."""
    rank.fallback.stand_aside("nsight_systems")
    rank.fallback.turn()
    rank.fallback.rearm()
    rank.fallback.turn()
    assert (rank.link.reason(), rank.link.states[-1].up) == ("nsight_systems", 0)
    assert (rank.cupti.callbacks, rank.cupti.flushes) == (None, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [("_Z4gemmPf", "gemm(float*)"), ("ncclDevKernel", "ncclDevKernel"), ("_Znonsense", "_Znonsense")],
)
def test_symbols_are_demangled(name: str, text: str) -> None:
    """With libstdc++, which torch has mapped anyway."""
    assert demangle(name) == text


def test_a_fork_leaves_the_parents_channel_alone(rank: Rank) -> None:
    """In the child every entry does nothing, even where the lock was held."""
    rank.fallback.turn()
    with rank.fallback._lock:
        child = os.fork()
        if child == 0:
            rank.fallback.forked()
            rank.fallback.pause()
            rank.fallback.rearm()
            rank.fallback.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    rank.cupti.kernel()
    rank.fallback.turn()
    assert len(rank.link.records()) == 1


def test_the_worker_ends_with_the_interpreter() -> None:
    """Status and stderr of a process that exits in the middle of everything."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "from argus_training import cupti_fallback\n"
        "profiler = SimpleNamespace(profile=type('profile', (), {'_prepare_trace': id, '__exit__': id}))\n"
        "torch = SimpleNamespace(\n"
        "    cuda=SimpleNamespace(is_initialized=lambda: False),\n"
        "    autograd=SimpleNamespace(profiler=profiler),\n"
        ")\n"
        "cupti_fallback.prepare(torch, True, Path('/nowhere'), lambda: None, lambda: 0, 30)()\n"
        "assert cupti_fallback.threading.active_count() == 2\n"
        "sys.exit(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (5, "")


def test_step_marks_are_told_from_other_sets() -> None:
    """As libargus_cupti does: by the value of a set of 4 bytes."""
    mark = wire.step_mark(70_001)
    now = time.time_ns()
    queue = cupti_records.RecordQueue((), clock=lambda: now)
    queue.kinds = int(ActivityKind.CONCURRENT_KERNEL), int(ActivityKind.MEMCPY), int(ActivityKind.MEMSET)
    own = wire.STEP_MARK_VALUE | mark
    for set_to, size in ((own, 4), (own, 8), (0, 4)):
        made = ActivityMemset4(now - 10, now, bytes=size)
        made.value = set_to  # type: ignore[attr-defined]
        queue.add([made])
    sets = [one for packed in queue.take() for one in wire.Kernel.unpack_all(packed)]
    assert [one.mark for one in sets] == [mark, 0, 0]
