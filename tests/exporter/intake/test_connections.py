"""What producers say beside spans and kernels: pages, pauses, several connections, descriptors."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import socket
import time
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.shared_page import SIZE, PageWriter, pack_recorded, recorded_word
from argus_exporter.kernels.pipeline import KernelPipeline
from argus_exporter.server import RunningExporter
from exporter.exporter_process import Rank, config, exporter, greeting, scrape, value, wait_for

KERNELS, STACKS = wire.Channel.KERNELS, wire.Channel.STACKS
OPEN = "argus_phase_open_timestamp_seconds"
SEQUENCE = "argus_collective_sequence"


def message(record: wire.Record) -> bytes:
    return wire.pack_message(record.TYPE, record.pack(), 1, 1, 0)


def descriptors() -> int:
    """Open descriptors of this process, in which the exporter runs."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    ("status", "up"), [(0, None), (wire.INTERRUPTED, None), (-1, None), (1, 0), (137, 0)]
)
def test_a_rank_that_ends_in_failure_is_lost(running: RunningExporter, status: int, up: float | None):
    """The others may wait for it. After Ctrl-C, or with a status that Python does not tell, it has left."""
    rank = Rank(running.socket, 0)
    rank.iterate()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "the rank")
    rank.link.close(status)
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == up, "its end")


# The shared page


def test_the_open_span_is_read_at_the_scrape(running: RunningExporter):
    """The producer only stores; nothing is sent. When the span ends, its series does."""
    page = PageWriter()
    rank = Rank(running.socket, 0, page=page)
    slot = page.phase("dp-allreduce", wire.Kind.COMM)
    assert slot is not None
    page.words[slot] = time.monotonic_ns() - 5 * 10**9
    rank.iterate()
    labels = {"rank": "0", "phase": "dp-allreduce", "kind": "comm"}
    wait_for(lambda: value(scrape(running.url), OPEN, **labels) is not None, "the open span")
    began = value(scrape(running.url), OPEN, **labels)
    assert began == pytest.approx(time.time() - 5, abs=2)
    page.words[slot] = 0
    assert value(scrape(running.url), OPEN, **labels) is None
    page.close()


def test_collectives_are_numbered_by_their_comparison_group(running: RunningExporter):
    """A dimension that the producer names is resolved as the group of its phases; other names stay."""
    page = PageWriter()
    place = {"coordinates": {"dp": 1, "tp": 0}, "sizes": {"dp": 2, "tp": 2}, "world_size": 4}
    rank = Rank(running.socket, 1, page=page, **place)
    for _ in range(3):
        page.enter_collective("dp")
    page.enter_collective("my-group")
    page.group("tp")
    rank.link.flush()
    wait_for(lambda: value(scrape(running.url), SEQUENCE, group="dp:tp0") == 3, "three collectives")
    assert value(scrape(running.url), SEQUENCE, group="my-group") == 1
    assert value(scrape(running.url), SEQUENCE, group="tp:dp1") == 0, "others may wait in its first one"
    page.close()


def test_of_an_overdue_iteration_the_last_collective_has_an_operation(running: RunningExporter):
    """What the producer took from torch's flight recorder; a recorder of gloo's knows of no starts."""
    page = PageWriter()
    rank = Rank(running.socket, 0, page=page)
    for _ in range(3):
        page.enter_collective("my-group")
    slot = page.group("my-group")
    assert slot is not None
    page.words[recorded_word(slot)] = pack_recorded(3, "all_reduce", None, 1)
    rank.link.flush()
    named = "argus_collective_operation_sequence"
    wait_for(lambda: value(scrape(running.url), named, rank="0") == 3, "the operation")
    samples = scrape(running.url)
    assert value(samples, named, group="my-group", operation="all_reduce") == 3
    assert value(samples, "argus_collective_completed_sequence", group="my-group") == 2
    assert value(samples, "argus_collective_started_sequence") is None
    page.enter_collective("my-group")
    assert value(scrape(running.url), named) is None, "it went on"
    page.close()


def in_a_collective(running: RunningExporter) -> tuple[Rank, PageWriter]:
    """A rank that has entered its first collective, which its exporter shows."""
    page = PageWriter()
    rank = Rank(running.socket, 0, page=page)
    page.enter_collective("world")
    rank.link.flush()
    wait_for(lambda: value(scrape(running.url), SEQUENCE, rank="0") == 1, "the page")
    return rank, page


def test_a_page_that_stops_being_one_is_given_up_and_counted(running: RunningExporter):
    """Other ranks and other families go on."""
    _, page = in_a_collective(running)
    page.words[0] = 0
    dropped = {"rank": "0", "reason": "page"}
    wait_for(lambda: value(scrape(running.url), "argus_records_dropped_total", **dropped) == 1, "the loss")
    state = "argus_exporter_collector_state"
    assert value(scrape(running.url), state, collector="live", state="no_data") == 1
    page.close()


def test_a_page_with_ever_new_names_makes_no_ever_new_series(
    running: RunningExporter, monkeypatch: pytest.MonkeyPatch
):
    """Its names count as those of records do; what is beyond the limit is called other, and counted."""
    monkeypatch.setattr("argus_exporter.names._LIMIT", 20)
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for turn in range(10):
        page = PageWriter()
        rank = Rank(running.socket, 0, page=page)
        rank.link.flush()
        for slot in range(5):
            words = page.phase(f"phase{turn}.{slot}", wire.Kind.COMPUTE)
            assert words is not None
            page.words[words] = time.monotonic_ns()
            page.enter_collective(f"group{turn}.{slot}")
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")
        wait_for(lambda: any(name == SEQUENCE for name, _ in scrape(running.url)), "the page")
        seen |= {key for key in scrape(running.url) if key[0] in (OPEN, SEQUENCE)}
        rank.link.close()
        page.close()
    assert len(seen) <= 22  # and `other` of each family
    labels = {"phase": "other", "kind": "compute"}
    assert any(labels.items() <= dict(have).items() for _, have in seen)
    dropped = {"rank": "0", "channel": "phases", "reason": "names_limit"}
    assert (value(scrape(running.url), "argus_records_dropped_total", **dropped) or 0) > 0


def test_the_page_of_a_lost_rank_tells_where_it_was(running: RunningExporter):
    """The memory outlives the process; with BYE it goes."""
    page = PageWriter()
    rank = Rank(running.socket, 0, page=page)
    page.enter_collective("world")
    rank.iterate()
    rank.link.close()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 0, "rank 0 lost")
    wait_for(lambda: value(scrape(running.url), SEQUENCE, rank="0") == 1, "its iteration overdue")
    page.close()


def test_of_an_iteration_that_is_not_overdue_no_collective_is_told(running: RunningExporter):
    """It would be another number at each scrape of each rank and group, and nobody asks for it."""
    rank, page = in_a_collective(running)
    rank.iterate()
    wait_for(lambda: value(scrape(running.url), SEQUENCE, rank="0") is None, "none while it goes on")
    wait_for(lambda: value(scrape(running.url), SEQUENCE, rank="0") == 1, "it again")
    page.close()


def test_descriptors_do_not_pile_up(running: RunningExporter):
    """Each reconnect brings the page again; the one before is closed, and with BYE the last."""
    page = PageWriter()
    before = descriptors()
    for _ in range(20):
        rank = Rank(running.socket, 0, page=page)
        rank.iterate()
        rank.link.close()
    rank = Rank(running.socket, 0, page=page)
    rank.link.close(0)
    wait_for(lambda: len(running.ranks) == 0, "rank 0 left")
    wait_for(lambda: descriptors() <= before, "every descriptor closed")
    page.close()


def no_memfd() -> int:
    return os.open("/dev/null", os.O_RDONLY)


def unsealed() -> int:
    descriptor = os.memfd_create("x")
    os.ftruncate(descriptor, SIZE)
    return descriptor


@pytest.mark.parametrize(
    ("opener", "count", "announced"),
    [(no_memfd, 1, True), (unsealed, 1, True), (no_memfd, 1, False), (no_memfd, 200, True)],
)
def test_hostile_descriptors_end_the_connection_and_are_closed(
    running: RunningExporter, opener: object, count: int, announced: bool
):
    """No page, an unsealed one that could shrink under us, one that nobody announced, or a flood of them."""
    assert callable(opener)
    before = descriptors()
    hello = greeting(0, shares_page=announced)()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
        hostile.connect(str(running.socket))
        opened = [opener() for _ in range(count)]
        socket.send_fds(hostile, [message(hello)], opened)
        for descriptor in opened:
            os.close(descriptor)
        hostile.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(1) == b""
    rejected = "argus_exporter_rejected_connections_total"
    wait_for(lambda: value(scrape(running.url), rejected, reason="page") == 1, "the refusal")
    wait_for(lambda: descriptors() <= before, "every descriptor closed")


def test_descriptors_after_hello_and_with_garbage_are_closed(running: RunningExporter):
    """They are never even taken over, or closed with the refusal."""
    before = descriptors()
    for packets in ([message(greeting(0)()), message(wire.ActivityChange(1, 0))], [b"garbage"]):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
            hostile.connect(str(running.socket))
            descriptor = no_memfd()
            for number, packet in enumerate(packets, start=1):
                socket.send_fds(hostile, [packet], [descriptor] if number == len(packets) else [])
            os.close(descriptor)
            if len(packets) > 1:
                wait_for(lambda: value(scrape(running.url), "argus_activity", rank="0") == 1, "the packet")
    wait_for(lambda: descriptors() <= before, "every descriptor closed")


# Pauses of the host


def test_garbage_collections_and_compilations_are_the_producers_totals(running: RunningExporter):
    """The latest record wins: what an exporter missed is in it."""
    rank = Rank(running.socket, 0)
    rank.link.add(wire.GarbageCollection(time.time_ns(), 10**6, 3, 0.25, 2))
    rank.link.add(wire.GarbageCollection(time.time_ns(), 10**6, 40, 1.5, 2))
    rank.link.add(wire.Compilation(time.time_ns(), 10**9, 2, 7.5, rank.link.name_id("triton")))
    rank.iterate()
    pauses = "argus_gc_pause_seconds"
    wait_for(lambda: value(scrape(running.url), f"{pauses}_count", generation="2") == 40, "pauses")
    samples = scrape(running.url)
    assert value(samples, f"{pauses}_sum", generation="2", rank="0") == 1.5
    assert value(samples, "argus_compile_seconds_count", compiler="triton", rank="0") == 2
    assert value(samples, "argus_compile_seconds_sum", compiler="triton", rank="0") == 7.5


def test_a_new_exporter_shows_the_same_totals(tmp_path: Path):
    """A restart is no reset: iterations, collections and compilations are prefix sums of the producer."""
    path = tmp_path / "exporter.sock"
    rank = Rank(path, 0)
    names = (
        "argus_iteration_duration_seconds_count",
        "argus_iteration_duration_seconds_sum",
        "argus_iteration_duration_seconds_squared_total",
        "argus_gc_pause_seconds_count",
        "argus_compile_seconds_sum",
    )

    def step() -> None:
        rank.link.add(wire.GarbageCollection(time.time_ns(), 10, rank.step + 1, rank.step + 1.0, 0))
        rank.link.add(
            wire.Compilation(time.time_ns(), 10, rank.step + 1, rank.step + 1.0, rank.link.name_id("cute"))
        )
        rank.iterate()

    seen: list[list[float | None]] = []
    for _ in range(2):
        with exporter(config(path)) as running:

            def reported(running: RunningExporter = running) -> bool:
                step()
                return value(scrape(running.url), "argus_iteration_last_step", rank="0") == rank.step

            wait_for(reported, "the last step of rank 0")
            samples = scrape(running.url)
            seen.append([value(samples, name, rank="0") for name in names])
            assert seen[-1][0] == rank.step
    assert all(
        after is not None and before is not None and after > before
        for before, after in zip(*seen, strict=True)
    )


# Several connections


def test_a_kernels_connection_adds_its_channel_and_takes_only_it_down(running: RunningExporter):
    """The rank keeps the topology that came with its phases and stays up."""
    place = {"coordinates": {"dp": 0, "tp": 1}, "sizes": {"dp": 1, "tp": 2}}
    phases = Rank(running.socket, 1, **place)
    kernels = Rank(running.socket, 1, channels=(KERNELS,))
    phases.iterate()
    kernels.link.add(wire.Kernel(time.time_ns(), 1000, -1, kernels.link.name_id("gemm"), 7, 0, 0, 0))
    kernels.link.flush()
    up, info = "argus_channel_up", "argus_channel_info"
    wait_for(lambda: value(scrape(running.url), up, channel="kernels") == 1, "the kernels channel")
    assert value(scrape(running.url), "argus_rank_info", tp="1", rank="1") == 1
    kernels.link.close()
    wait_for(lambda: value(scrape(running.url), up, channel="kernels") == 0, "the channel down")
    samples = scrape(running.url)
    assert value(samples, info, channel="kernels", reason="disconnected") == 1
    assert value(samples, "argus_rank_up", rank="1") == 1
    assert value(samples, up, channel="phases") == 1
    phases.link.close(0)
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="1") is None, "rank 1 left")


def test_stack_samples_from_inside_are_counted(running: RunningExporter):
    """Nodes and samples reach the stack state of their rank."""
    rank = Rank(running.socket, 0, channels=(wire.Channel.PHASES, STACKS))
    name = rank.link.name_id
    rank.link.add(wire.StackNode(1, 0, name("main (train.py:1)")))
    rank.link.add(wire.StackNode(2, 1, name("read (data.py:9)")))
    rank.link.add(wire.StackSample(time.time_ns(), name("MainThread"), 2, 30))
    rank.iterate()
    wait_for(lambda: any(state.stacks.tree.take()[2] for state in running.ranks), "the samples")


def test_an_error_with_one_rank_stops_nobody_elses_windows(
    running: RunningExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A defect of ours costs the rank it strikes, said once a minute; all others go on."""
    good, bad = Rank(running.socket, 0), Rank(running.socket, 1)
    for rank in (good, bad):
        rank.iterate()
    wait_for(lambda: len(list(running.ranks)) == 2, "both ranks")
    asked = []
    healthy = KernelPipeline.take_complete

    def strike(pipeline: KernelPipeline):
        number = next(state.identity.rank for state in running.ranks if state.kernels is pipeline)
        asked.append(number)
        if number == 1:
            raise RuntimeError("struck")
        return healthy(pipeline)

    monkeypatch.setattr(KernelPipeline, "take_complete", strike)
    wait_for(lambda: asked.count(0) >= 3 and asked.count(1) >= 3, "several rounds of both")
    said = [record.getMessage() for record in caplog.records if "struck" in record.getMessage()]
    assert len(said) == 1
    assert re.match(r'msg="windows not closed" training_job=\w+ rank=1 error="Traceback', said[0])
    counted = scrape(running.url)
    assert (value(counted, "argus_exporter_failures_total", loop="windows") or 0) >= 3
    assert value(counted, "argus_exporter_failures_total", loop="connections") == 0


# Limits


def test_a_connection_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It would hold its place for nothing."""
    monkeypatch.setattr("argus_exporter.intake.intake._HELLO_LIMIT_S", 0.0)
    with (
        exporter(config(tmp_path / "exporter.sock")) as running,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent,
    ):
        silent.connect(str(running.socket))
        silent.settimeout(10)
        assert silent.recv(1) == b""


def test_a_user_has_so_many_connections(tmp_path: Path):
    """One more is refused with what to raise; when one ends, there is room again."""
    configuration = config(tmp_path / "exporter.sock", connections_per_user=2)
    with exporter(configuration) as running:
        first, second = Rank(running.socket, 0), Rank(running.socket, 1)
        for rank in (first, second):
            rank.iterate()
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="1") == 1, "both connected")
        third = Rank(running.socket, 2)
        third.iterate()
        rejected = "argus_exporter_rejected_connections_total"
        wait_for(
            lambda: (value(scrape(running.url), rejected, reason="connections_limit") or 0) >= 1, "refusal"
        )
        first.link.close(0)

        def third_is_in() -> bool:
            third.iterate()
            return value(scrape(running.url), "argus_rank_up", rank="2") == 1

        wait_for(third_is_in, "room for the third", timeout_s=30)
