"""Kernels of NCCL and the communicators that launched them: both libraries in one process.

The fake NCCL calls the driver as the real one does, the fake CUPTI writes records of calls and kernels. A
kernel's duration says what is true of it (native/nccl/testing/launch_app.cpp).
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.nccl_page import FUNCTIONS
from argus_exporter.kernels.communicator_streams import Members, stream_of
from argus_exporter.traces.nccl_lists import OPERATION_DTYPE, lists
from native.app import command_environment
from native.builds import Build
from native.listener import Connection, Listener
from native.nccl_host import NCCL, read_page

ONE, SEVERAL, NUMBERLESS, UNTOLD, NOBODYS = 1, 2, 3, 4, 9
TWO = ("cuda", "comm:0x10:0:2", "comm:0x20:1:4")


def launch(
    build: Build, socket: Path, *actions: str, version: int = 5, **variables: str | int
) -> dict[str, Any]:
    """Run to the end; its report."""
    environment = command_environment(
        build, socket, **({"ARGUS_NCCL": 1, "FAKE_NCCL_VERSION": NCCL[version]} | variables)
    )
    command = [str(build.launch_app), str(version), str(build.nccl), *actions]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def heard(listener: Listener) -> KernelArray:
    (connection,) = listener.wait_ended()
    return connection.kernels


def truth(kernels: KernelArray) -> Iterator[tuple[int, int, int, int]]:
    """Kind, communicator, sequence, and the word of each kernel."""
    for duration, word in zip(kernels["duration_ns"].tolist(), kernels["kilobytes"].tolist(), strict=True):
        yield duration // 10**8, duration // 10**6 % 100, duration % 10**6, word


def check(kernels: KernelArray) -> Counter[int]:
    """Each kernel says what is so, and no more; how many there are of each kind."""
    kinds: Counter[int] = Counter()
    for kind, communicator, sequence, word in truth(kernels):
        kinds[kind] += 1
        expected = {
            ONE: wire.launched_by(communicator, 1, sequence=sequence),
            SEVERAL: wire.launched_by(communicator, 1, operations=3),
            NUMBERLESS: wire.launched_by(communicator, 1, operations=sequence),
            UNTOLD: wire.launched_by(communicator, 1),
            NOBODYS: 0,
        }
        assert word == expected[kind], (kind, communicator, sequence, hex(word))
    return kinds


Told = list[tuple[str, int]]
"""Function, and sequence or peer, of the operations of a kernel."""


def operations(connection: Connection) -> Iterator[tuple[int, int, int, Told]]:
    """Kind, communicator, sequence and operations of each kernel."""
    told: dict[tuple[int, int], Told] = defaultdict(list)
    for one in connection.operations:
        of_kernel = told[one.start_ns, one.launched_by]
        assert one.place == len(of_kernel)
        of_kernel.append((FUNCTIONS[one.function], one.sequence if one.peer < 0 else one.peer))
    kernels = connection.kernels
    for start, (kind, communicator, sequence, word) in zip(
        kernels["start_ns"].tolist(), truth(kernels), strict=True
    ):
        yield kind, communicator, sequence, told.pop((start, word), [])
    assert not told


@pytest.mark.parametrize("version", [5, 6, 7])
@pytest.mark.parametrize("threads", ["pthread", "system"])
def test_a_kernel_carries_its_communicator_and_number(
    injector: Build, socket: Path, listener: Listener, version: int, threads: str
) -> None:
    """One collective: its number too; several, or sends: how many. A kernel of compiled code: nothing.

    All on one stream, as collectives that nobody overlaps; by either number of a thread that CUPTI has.
    """
    launch(
        injector,
        socket,
        *(*TWO, "ready", "shared", "train:20"),
        version=version,
        FAKE_CUPTI_THREADS=threads,
    )
    assert check(heard(listener)) == {ONE: 40, SEVERAL: 40, NUMBERLESS: 40, NOBODYS: 40}


@pytest.mark.parametrize("late", [(), ("late",)], ids=["in order", "call after kernel"])
def test_a_kernel_of_several_operations_lists_them(
    injector: Build, socket: Path, listener: Listener, late: tuple[str, ...]
) -> None:
    """Collectives with their numbers, sends and receives with their peers; of more than 16 the first 16.

    A kernel of one collective has no list, as its word says all.
    """
    launch(injector, socket, *TWO, "ready", *late, "train:20", "peers:3", "peers:8", "peers:9", "many:17")
    (connection,) = listener.wait_ended()
    exchanged = []
    for kind, _, sequence, told in operations(connection):
        if kind == SEVERAL and len(told) == 3:
            second = ("ReduceScatter", sequence // 2)
            assert told == [("AllGather", sequence), second, ("AllGather", sequence + 1)]
        elif kind == SEVERAL:
            assert told == [("AllGather", sequence + number) for number in range(16)]
        elif kind == NUMBERLESS and sequence == 1:
            assert told == [("Send", 1)]
        elif kind == NUMBERLESS:
            exchanged.append(sequence)
            both = [(function, peer) for peer in range(1, 10) for function in ("Send", "Recv")]
            assert told == both[: min(sequence, 16)]
        else:
            assert told == []
    assert exchanged == [6, 16, 18]
    words = {word & 0x7FFF for kind, _, _, word in truth(connection.kernels) if kind == SEVERAL}
    assert words == {3, 17}


def test_traces_say_what_a_kernel_does(plain: Build, socket: Path, listener: Listener) -> None:
    """From NCCL's calls to the text of the slice, with the job's rank of a peer on this host."""
    launch(plain, socket, *TWO, "ready", "train:1", "peers:2", "many:18")
    (connection,) = listener.wait_ended()
    told = np.frombuffer(b"".join(one.pack() for one in connection.operations), OPERATION_DTYPE)
    members = {stream_of(0, 1): Members({1: 6}, "pp")}
    texts = lists(connection.kernels, told, members).texts
    assert [text for text in texts if text] == [
        "AllGather 0, ReduceScatter 0, AllGather 1",
        "Send to 1 (rank 6)",
        "AllGather 0, ReduceScatter 0, AllGather 1",
        "Send to 1",
        "Send to 1 (rank 6), Recv from 1 (rank 6), Send to 2 (pp2), Recv from 2 (pp2)",
        ", ".join([*(f"AllGather {number}" for number in range(2, 18)), "2 more"]),
    ]


def test_lists_of_many_threads_are_not_mixed(injector: Build, socket: Path, listener: Listener) -> None:
    communicators = tuple(f"comm:{0x10 + number}:0:2" for number in range(8))
    launch(injector, socket, "cuda", *communicators, "ready", "threads:50")
    (connection,) = listener.wait_ended()
    of_several = [(first, told) for kind, _, first, told in operations(connection) if kind == SEVERAL]
    assert len(of_several) == 400
    for first, told in of_several:
        assert told == [("AllGather", first), ("ReduceScatter", first // 2), ("AllGather", first + 1)]


def test_launches_of_many_threads_at_once_are_told_apart(
    injector: Build, socket: Path, listener: Listener
) -> None:
    communicators = tuple(f"comm:{0x10 + number}:0:2" for number in range(8))
    launch(injector, socket, "cuda", *communicators, "ready", "threads:50")
    assert check(heard(listener)) == dict.fromkeys((ONE, SEVERAL, NUMBERLESS, NOBODYS), 400)


def test_a_call_that_is_recorded_after_its_kernel_is_waited_for(
    injector: Build, socket: Path, listener: Listener
) -> None:
    launch(injector, socket, *TWO, "ready", "late", "train:20")
    assert check(heard(listener)) == dict.fromkeys((ONE, SEVERAL, NUMBERLESS, NOBODYS), 40)


@pytest.mark.parametrize("late", [(), ("late",)], ids=["in order", "call after kernel"])
def test_what_a_kernel_does_is_known_though_its_record_is_read_sooner(
    injector: Build, socket: Path, listener: Listener, late: tuple[str, ...]
) -> None:
    """NCCL tells it after the launch; a buffer that is full at the launch may have been read by then."""
    actions = (*TWO, "ready", *late, "soon", "train:20")
    launch(injector, socket, *actions, ARGUS_FLUSH_MILLISECONDS=20_000)  # no flush but one a launch
    assert check(heard(listener)) == dict.fromkeys((ONE, SEVERAL, NUMBERLESS, NOBODYS), 40)


def test_what_nobody_tells_for_certain_is_left_out(injector: Build, socket: Path, listener: Listener) -> None:
    """Replays of graphs, kernels that NCCL does not tell of, contents told elsewhere or of another one."""
    launch(injector, socket, *TWO, "ready", "train:1", "graph", "stray", "elsewhere", "other", "train:1")
    kinds = check(heard(listener))
    assert kinds == {ONE: 4, SEVERAL: 4, NUMBERLESS: 4, UNTOLD: 2, NOBODYS: 4 + 3}


def test_the_memory_of_launches_may_be_gone_through(plain: Build, socket: Path, listener: Listener) -> None:
    """40,500 launches at once: the oldest may be overwritten by now, the last are known.

    A kernel that was read before NCCL told what it does may then have its communicator alone. So it is with
    lists, of which there is room for 8,192: what they say is right, or nothing is said.
    """
    launch(plain, socket, "cuda", "comm:0x10:0:2", "ready", "train:13500", ARGUS_CUPTI_BUFFERS=256)
    (connection,) = listener.wait_ended()
    words = {sequence: word for kind, _, sequence, word in truth(connection.kernels) if kind == ONE}
    assert len(words) == 13_500
    for sequence, word in words.items():
        known = wire.launched_by(0, 1, sequence=sequence)
        assert word == known or (word in (0, wire.launched_by(0, 1)) and sequence < 13_000)
    lists = {first // 2: told for kind, _, first, told in operations(connection) if kind == SEVERAL}
    assert len(lists) == 13_500
    for number, told in lists.items():
        known_list = [("AllGather", 2 * number), ("ReduceScatter", number), ("AllGather", 2 * number + 1)]
        assert told == known_list or (told == [] and number < 13_000)


@pytest.mark.parametrize(
    ("later", "told"),
    [(0, "2 2 0"), (8191, "2 2 0"), (8192, "2 0 1"), (32768, "2 0 1")],
    ids=["at once", "just there", "list overwritten", "launch overwritten"],
)
def test_what_was_overwritten_is_counted_and_not_told(plain: Build, later: int, told: str) -> None:
    """Of a kernel with two operations: how many it has is known, which is not; one kernel is counted."""
    command = [str(plain.unit), "lists", str(later)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told


@pytest.mark.usefixtures("listener")
def test_kernels_are_counted_where_the_exporter_reads_of_their_communicator(
    injector: Build, socket: Path, tmp_path: Path
) -> None:
    """By function, with the time of each; what several functions share is of none of them.

    Messages are of 4 KiB: an AllReduce among four passes 6 KiB on, an AllGather of four 12 KiB a message, a
    send 4 KiB, one to the rank itself nothing. 17 AllGathers of one kernel are 68 KiB, and another class.
    """
    dump = tmp_path / "page"
    actions = ("cuda", "comm:0x20:1:4", "comm:0x10:0:2", "ready", "train:20", "peers:3", "many:17", "read")
    launch(injector, socket, *actions, FAKE_PAGE_DUMP=str(dump))
    four, two = read_page(dump.read_bytes()).communicators
    kernels = {one.function: (one.kernels, one.kernel_ns) for one in four.operations if one.kernels}
    sequences = sum(range(20))
    assert kernels == {
        "AllReduce": (20, 20 * ONE * 10**8 + sequences),
        "AllGather": (1, SEVERAL * 10**8 + 40),
        "Send": (21, 21 * NUMBERLESS * 10**8 + 20 + 6),
        "other": (20, 20 * SEVERAL * 10**8 + 2 * sequences),
    }
    peers = 2  # of three, as the rank is one of them, and of twenty sends to it none leaves the GPU
    assert four.bus_bytes == (20 * 6144 + peers * 4096, 17 * 3 * 4096, 0, 0, 0)
    assert two.bus_bytes == (20 * 4096 + 20 * 4096, 0, 0, 0, 0)
    assert four.bus_ns[1] == SEVERAL * 10**8 + 40
    finished = {one.function: one.finished for one in four.operations if one.finished}
    assert finished == {
        "AllReduce": 20,
        "AllGather": 40 + 16,
        "ReduceScatter": 20,
    }  # of 17 the first 16 are listed


@pytest.mark.parametrize("sampling", ["sampled", "1"])
def test_launch_times_are_recorded_beside(
    plain: Build, socket: Path, listener: Listener, sampling: str
) -> None:
    """In a window all calls are recorded, NCCL's always; a kernel has its communicator either way."""
    launch(plain, socket, *TWO, "ready", "train:20", ARGUS_ISSUE_LATENCY=sampling)
    kernels = heard(listener)
    assert check(kernels) == dict.fromkeys((ONE, SEVERAL, NUMBERLESS, NOBODYS), 40)
    if sampling == "1":
        assert set(kernels["issue_ns"].tolist()) == {8000}


@pytest.mark.parametrize(
    ("variables", "version"),
    [({"ARGUS_NCCL": 0}, 5), ({"ARGUS_DISABLE_KERNELS": 1}, 5), ({"CUDA_INJECTION64_PATH": ""}, 5), ({}, 4)],
    ids=["no plugin", "no kernels", "no injector", "NCCL 2.27"],
)
def test_one_library_without_the_other_is_as_before(
    plain: Build, socket: Path, listener: Listener, variables: dict[str, str | int], version: int
) -> None:
    """Kernels without a communicator, and no records of calls; or none at all."""
    done = launch(plain, socket, *TWO, "train:20", version=version, **variables)
    assert done["kernels"] == 160
    if variables in ({"ARGUS_NCCL": 0}, {}):
        assert set(heard(listener)["kilobytes"].tolist()) == {0}


def test_a_forked_child_says_nothing(injector: Build, socket: Path, listener: Listener) -> None:
    done = launch(injector, socket, *TWO, "ready", "train:2", "fork", "train:2")
    assert done["child_status"] == 0
    assert check(heard(listener)) == dict.fromkeys((ONE, SEVERAL, NUMBERLESS, NOBODYS), 8)


def test_calls_are_recorded_while_the_plugin_watches(plain: Build, socket: Path, listener: Listener) -> None:
    """So the plugin's switch, by which its cost is measured, has what CUPTI does for it too."""
    actions = ("ready", "train:5", "watch:0", "quiet", "graph", "stray", "watch:1", "ready", "train:5")
    launch(plain, socket, *TWO, *actions)
    kinds = check(heard(listener))
    assert kinds == {ONE: 20, SEVERAL: 20, NUMBERLESS: 20, NOBODYS: 23}
