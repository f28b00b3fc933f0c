"""libargus_nccl against a host that calls it as NCCL of each interface version does."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from argus_core import nccl_page
from argus_core.injection import needs_glibc
from long_forms import LONG
from native.builds import Build
from native.nccl_host import NCCL, VERSIONS, call, environment, operation, peer, read_page
from native.test_portable import WHEEL_POLICY

NETWORK = {1: 0x6, 2: 0x16, 3: 0x16, 4: 0x16, 5: 0x816, 6: 0x816, 7: 0x816}
"""Types that are asked for, by version of the interface: NCCL 2.23, alone with version 1, has no network."""
SOAK_MS = 100_000 if LONG else 500
"""In the long form ten minutes over both versions and three builds."""
STATES = {8: 0, 20: 1, 9: 2, 10: 3, 11: 4, 12: 5}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_collective_is_counted_by_communicator(injector: Build, tmp_path: Path, version: int) -> None:
    """Two communicators, 3 rounds of three collectives and two point-to-point calls of 4 KiB."""
    seen = call(injector, tmp_path, version, "init:2", "train:3:0")
    assert seen.report["mask"] == NETWORK[version]
    assert (seen.page.state, seen.page.table, seen.page.nccl_version) == ("watching", version, NCCL[version])
    for number in range(2):
        one = seen.communicator(0x1000 + number)
        counts = {each.function: (each.count, each.bytes, each.sequence) for each in one.operations}
        assert counts == dict.fromkeys(
            ("AllReduce", "AllGather", "ReduceScatter", "Send", "Recv"), (3, 3 * 4096, 3)
        )
        assert all(each.by_size == (3, 0, 0, 0, 0) for each in one.operations)
        assert one.rank == 2
        assert one.ranks == (8 if version >= 4 else 0)
        assert one.launches == (9 if version >= 5 else 0)
        assert operation(one, "AllReduce").called == (3 if version >= 5 else 0)
    assert not seen.page.dropped_events + seen.page.stale_events + seen.page.unknown_events


@pytest.mark.parametrize("version", [4, 7])
def test_the_name_of_a_communicator_outlives_its_owner(injector: Build, tmp_path: Path, version: int) -> None:
    """NCCL hands on the caller's pointer, which is overwritten and freed after init; the second has none."""
    seen = call(injector, tmp_path, version, "init:2")
    assert [one.name for one in seen.page.communicators] == ["comm 0", ""]


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_network_steps_are_counted_by_peer_and_state(plain: Build, tmp_path: Path, version: int) -> None:
    """2 rounds x 3 collectives x 2 channels x 4 steps each way, starts and states repeated thrice.

    And a step of each transfer, of which that to 3 goes where collectives go too.
    """
    seen = call(plain, tmp_path, version, "init:1", "train:2:2")
    one = seen.communicator()
    to, from_ = peer(one, 3), peer(one, 9)
    waited = 50 if version >= 4 else 14  # before, the receiver's credit is a state of the operation
    assert to.steps == (50, waited, 50, 0, 0, 0)
    assert from_.steps == (0, 0, 0, 48, 48, 48)
    assert peer(one, 1).steps == (0, 0, 0, 2, 2, 2)
    assert to.open == from_.open == to.oldest == from_.oldest == (0,) * 6
    if version >= 4:
        assert (to.sent_bytes, from_.received_bytes) == (50 * 4096, 48 * 4096)
    for function in ("AllReduce", "AllGather", "ReduceScatter"):
        done = operation(one, function)
        assert (done.finished, done.network_count) == (2, 2)
        assert done.network_ns > 0


@pytest.mark.parametrize("state", STATES)
def test_time_goes_to_the_state_in_which_a_step_waits(plain: Build, tmp_path: Path, state: int) -> None:
    """2 ms a step in one state: 24 steps a peer, and no other state has a tenth of it."""
    seen = call(plain, tmp_path, 7, "init:1", f"slow:{state}:2000", "train:1:2")
    ns = [sum(each.ns[at] for each in seen.communicator().peers) for at in range(6)]
    assert ns[STATES[state]] >= 24 * 2_000_000
    assert max(ns[: STATES[state]] + ns[STATES[state] + 1 :]) < ns[STATES[state]] / 10


def test_steps_that_wait_together_wait_once(plain: Build, tmp_path: Path) -> None:
    """Eight are posted ahead and go on after 50 ms: 50 ms of waiting, not 400."""
    seen = call(plain, tmp_path, 7, "init:1", "pipeline:50000")
    to = peer(seen.communicator(), 3)
    assert to.steps[0] == 8
    assert 50_000_000 <= to.ns[0] < 150_000_000


@pytest.mark.parametrize("moves", [3, 17, 60, 500, 5001, 5002, 5003])
def test_of_each_channel_the_oldest_step_says_what_it_waits_for(
    injector: Build, tmp_path: Path, moves: int
) -> None:
    """Steps are posted ahead, tried again and go on in any order; the program looks at all of them."""
    seen = call(injector, tmp_path, 7, "init:1", "train:1:1", f"ahead:{moves}")
    one = seen.communicator()
    to, from_ = peer(one, 3), peer(one, 9)
    assert [*to.oldest[:3], *from_.oldest[3:]] == seen.report["oldest"]
    assert not any((*to.oldest[3:], *from_.oldest[:3]))
    for of, way in ((to, 0), (from_, 1)):
        if any(of.oldest):
            entered = operation(one, "AllReduce").entered_ns
            assert (of.oldest_function[way], of.oldest_entered_ns[way]) == ("AllReduce", entered)
            assert of.oldest_moved_ns[way] > entered


@pytest.mark.parametrize("channels", [2, 300])
def test_a_hang_can_be_read_while_the_process_hangs(plain: Build, tmp_path: Path, channels: int) -> None:
    """The memory outlives the process too: its descriptor is the exporter's."""
    command = [str(plain.nccl_app), "7", str(plain.nccl), "init:1", "train:1:1", f"hang:{channels}"]
    with subprocess.Popen(
        command, env=environment(plain, tmp_path, 7), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            descriptor = process.stdout.readline().split()[1]
            held = os.open(f"/proc/{process.pid}/fd/{descriptor}", os.O_RDONLY)
        finally:
            process.kill()
    raw = os.pread(held, nccl_page.SIZE, 0)
    os.close(held)
    (one,) = read_page(raw).communicators
    assert (operation(one, "AllReduce").sequence, operation(one, "AllReduce").finished) == (2, 1)
    assert peer(one, 3).open == (0, channels, 0, 0, 0, 0)
    assert peer(one, 9).open == (0, 0, 0, channels, 0, 0)
    assert (peer(one, 3).oldest, peer(one, 9).oldest) == (peer(one, 3).open, peer(one, 9).open)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("actions", "counted"),
    [
        (("garbage:3000",), "foreign_events"),
        (("foreign",), "foreign_events"),
        (("late",), "foreign_events"),
        (("fork",), ""),
        (("reload",), ""),
        (("finalize",), ""),
        (("unstopped:9000",), "dropped_events"),
    ],
    ids=lambda value: value[0].partition(":")[0] if isinstance(value, tuple) else "",
)
def test_nothing_that_a_host_does_harms_the_training(
    injector: Build, tmp_path: Path, version: int, actions: tuple[str, ...], counted: str
) -> None:
    """Exit status 0 with and without sanitizers, and the communicator beside it is counted right."""
    seen = call(injector, tmp_path, version, "init:2", "train:2:1", *actions)
    assert operation(seen.communicator(0x1001), "AllReduce").count == 2
    if counted and not (version == 1 and counted == "dropped_events"):
        assert getattr(seen.page, counted) > 0


def test_events_of_a_type_that_nobody_knows_are_counted(plain: Build, tmp_path: Path) -> None:
    assert call(plain, tmp_path, 7, "init:1", "garbage:2000").page.unknown_events > 0


@pytest.mark.parametrize("version", [3, 7])
def test_threads_call_at_once_while_communicators_come_and_go(
    injector: Build, tmp_path: Path, version: int
) -> None:
    seen = call(injector, tmp_path, version, "init:1", f"threads:{SOAK_MS}", "train:1:1")
    assert seen.report["rounds"] > 10
    assert seen.page.dropped_communicators == 0


def test_a_process_ends_while_threads_still_call(injector: Build, tmp_path: Path) -> None:
    threads_may_stay = "exitcode=66 halt_on_error=0 report_thread_leaks=0"
    call(injector, tmp_path, 7, "init:1", "train:1:1", "exit_alive", TSAN_OPTIONS=threads_may_stay)


def test_more_communicators_than_there_is_room_for_are_counted(plain: Build, tmp_path: Path) -> None:
    seen = call(plain, tmp_path, 7, "init:70", "train:1:0")
    assert (len(seen.page.communicators), seen.page.dropped_communicators) == (64, 6)
    assert seen.report["mask"] == 0x816  # 0 of one communicator would be 0 for all


def test_a_slot_is_given_on_when_its_communicator_is_gone(plain: Build, tmp_path: Path) -> None:
    seen = call(plain, tmp_path, 7, "init:64", "train:1:0", "finalize", "init:1", "train:1:0")
    assert [one.hash for one in seen.page.communicators if one.live] == [0x1000 + 64]
    assert seen.page.dropped_communicators == 0


def test_the_communicator_that_is_gone_the_longest_makes_room(plain: Build, tmp_path: Path) -> None:
    """What was finalized last is shown as long as there is another: 40 ended before 3."""
    actions = ("init:64", "end:40", "end:3", "init:1", "end:64", "init:1")
    seen = call(plain, tmp_path, 7, *actions)
    by_slot = {one.slot: one.hash - 0x1000 for one in seen.page.communicators}
    assert (by_slot[40], by_slot[3]) == (64, 65)


def test_an_aborted_communicator_writes_nothing_into_its_successor(injector: Build, tmp_path: Path) -> None:
    """The steps of its progress thread end after its place was given away."""
    seen = call(injector, tmp_path, 7, "init:64", "abort")
    from_ = peer(seen.communicator(0x1000 + 64), 9)
    assert (from_.open, from_.oldest) == ((0, 0, 0, 1, 0, 0),) * 2
    assert (from_.steps, from_.ns, from_.received_bytes) == ((0,) * 6, (0,) * 6, 0)


@pytest.mark.parametrize(
    ("version", "variables", "state", "reason", "mask"),
    [
        (7, {"ARGUS_NCCL": "0"}, "declined", "not_asked_for", 0),
        (7, {"ARGUS_DISABLE": "1"}, "declined", "disabled", 0),
        (2, {"FAKE_NCCL_VERSION": "22304"}, "watching", "nccl_2_23_network", 0x6),
        (1, {"FAKE_NCCL_VERSION": "0"}, "watching", "nccl_2_23_network", 0x6),
        (7, {"ARGUS_NCCL_EVENTS": "calls"}, "watching", "", 0x806),
        (7, {"FAKE_PAGE": "none"}, "not_loaded", "", 0),
        (7, {"FAKE_PAGE": "unsealed"}, "not_loaded", "", 0),
        (7, {"FAKE_PAGE": "foreign"}, "not_loaded", "", 0),
    ],
)
def test_what_it_declines_it_declines_by_name(
    plain: Build,
    tmp_path: Path,
    version: int,
    variables: dict[str, str],
    state: str,
    reason: str,
    mask: int,
) -> None:
    """Without memory there is nobody to tell, and a mask of 0 all the same."""
    seen = call(plain, tmp_path, version, "init:2", "train:2:1", **variables)
    assert (seen.page.state, seen.page.reason, seen.report["mask"]) == (state, reason, mask)


def test_amds_library_is_declined(plain: Build, tmp_path: Path) -> None:
    library = plain.nccl_app.with_name("librccl.so.1")
    seen = call(plain, tmp_path, 6, "init:1", "train:1:1", FAKE_NCCL_LIBRARY=str(library))
    assert (seen.page.state, seen.page.reason, seen.report["mask"]) == ("declined", "rccl", 0)


def test_it_asks_for_no_glibc_newer_than_the_wheels_policy(plain: Build) -> None:
    assert needs_glibc(str(plain.nccl)) <= WHEEL_POLICY


def test_nothing_is_asked_for_while_it_is_told_not_to_watch(injector: Build, tmp_path: Path) -> None:
    """Rounds of 3, 2 unwatched, and 1: what is counted stays, and goes on."""
    seen = call(injector, tmp_path, 7, "init:1", "train:3:1", "watch:0", "train:2:1")
    assert (operation(seen.communicator(), "AllReduce").count, seen.report["mask"]) == (3, 0)
    seen = call(injector, tmp_path, 7, "init:1", "train:3:1", "watch:0", "train:2:1", "watch:1", "train:1:1")
    assert (operation(seen.communicator(), "AllReduce").count, seen.report["mask"]) == (4, NETWORK[7])


def test_it_exports_the_tables_and_its_one_switch(plain: Build) -> None:
    said = subprocess.run(
        ["nm", "-D", "--defined-only", str(plain.nccl)], capture_output=True, text=True, check=True
    ).stdout
    names = sorted(line.split()[-1] for line in said.splitlines())
    assert names == ["argus_nccl_watch", *(f"ncclProfiler_v{version}" for version in VERSIONS)]


def test_callbacks_allocate_nothing_and_lock_nothing(plain: Build, tmp_path: Path) -> None:
    """`python -m bench.nccl` measures their time."""
    report = call(plain, tmp_path, 7, "init:1", "bench:50").report
    assert (report["callbacks"], report["allocations"], report["locks"]) == (50 * 80, 0, 0)


def test_counts_of_a_page_only_grow(plain: Build, tmp_path: Path) -> None:
    """The longer the run, the larger every sum."""
    sums = [
        operation(call(plain, tmp_path, 7, "init:1", f"train:{rounds}:1").communicator(), "AllReduce").bytes
        for rounds in (1, 2, 5)
    ]
    assert all(one < other for one, other in itertools.pairwise(sums))
