"""What a played job puts on the wire."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.shared_page import PageReader
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.settings import ClockSettings, HostSettings, ModelSettings
from argus_simulator.lab import load_scenario
from argus_simulator.player import ExporterUnreachable, Player
from argus_simulator.topology import Topology

TRUE_CLOCKS = ClockSettings(offset_seconds=0, drift_ppm=0, quantum_ns=1)
SHAPE = JobShape(Topology(dp=2), 0.25, clocks=TRUE_CLOCKS)
EPOCH_NS = 1_800_000_000_000_000_000


class Receiver:
    """Takes every packet of every connection, as the exporter's socket would."""

    def __init__(self, path: Path) -> None:
        self.connections: list[list[bytes]] = []
        self.pages: list[PageReader] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._readers: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            packets: list[bytes] = []
            self.connections.append(packets)
            first, descriptors, _, _ = socket.recv_fds(peer, wire.MAX_MESSAGE_BYTES, 1)
            packets.append(first)
            self.pages.extend(PageReader(descriptor) for descriptor in descriptors)
            reader = threading.Thread(target=self._read, args=(peer, packets), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, peer: socket.socket, packets: list[bytes]) -> None:
        with peer:
            while packet := peer.recv(wire.MAX_MESSAGE_BYTES):
                packets.append(packet)

    def finish(self) -> list[list[bytes]]:
        """All packets, once every connection has ended; first those in the listener's queue are taken."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        for reader in self._readers:
            reader.join(10)
        self._listener.close()
        return self.connections


def played(
    folder: Path, *faults: Fault, seed: int = 1, duration_s: float = 2.0, shape: JobShape = SHAPE
) -> list[list[bytes]]:
    """Packets of every connection; the clock stands still, so nothing waits."""
    receiver, player = receive(folder, *faults, seed=seed, shape=shape)
    player.play(duration_s)
    assert player.progress.dropped == 0
    return receiver.finish()


def receive(folder: Path, *faults: Fault, seed: int = 1, shape: JobShape = SHAPE) -> tuple[Receiver, Player]:
    path = folder / f"s{next(_numbers)}"
    job = Job(shape, faults, seed)
    return Receiver(path), Player(job, "job", path, clock=lambda: EPOCH_NS, wait=lambda _: False)


_numbers = itertools.count()


def records(packets: list[bytes], type_: type[wire.Record]) -> list[wire.Record]:
    return [
        record
        for packet in packets
        for header, payload in wire.messages(packet)
        if header.type is type_.TYPE
        for record in type_.unpack_all(payload)
    ]


def test_the_kernel_dtype_is_the_wire_record():
    """Field for field and byte for byte."""
    assert KERNEL_DTYPE.names == wire.Kernel.__match_args__
    record = wire.Kernel(1, 2, -3, 4, 5, 6, 1, 7)
    assert np.frombuffer(record.pack(), KERNEL_DTYPE)[0].tolist() == (1, 2, -3, 4, 5, 6, 1, 7, 0)


def test_a_rank_says_hello_and_bye(tmp_path: Path):
    """Coordinates first; at the end the exit status, so that the rank leaves instead of being lost."""
    for rank, packets in enumerate(played(tmp_path)):
        (hello,) = records(packets, wire.Hello)
        assert isinstance(hello, wire.Hello)
        assert (hello.rank, hello.world_size, hello.dp, hello.dp_size) == (rank, 2, rank, 2)
        assert wire.parse_header(packets[0]).type is wire.MessageType.HELLO
        assert wire.parse_header(packets[-1]).type is wire.MessageType.BYE
        assert records(packets, wire.Bye) == [wire.Bye(0)]


def test_iterations_carry_running_totals(tmp_path: Path):
    """Prefix sums of durations and of their squares, kept by the producer."""
    iterations = records(played(tmp_path)[0], wire.Iteration)
    seconds = np.array([iteration.duration_ns / 1e9 for iteration in iterations])  # type: ignore[attr-defined]
    last = iterations[-1]
    assert isinstance(last, wire.Iteration)
    assert [iteration.step for iteration in iterations] == list(range(len(iterations)))  # type: ignore[attr-defined]
    assert last.total_count == len(iterations) >= 7
    assert last.total_seconds == pytest.approx(seconds.sum())
    assert last.total_squared == pytest.approx((seconds**2).sum())


def test_names_of_phases_and_kernels_are_bound(tmp_path: Path):
    """Every id on the wire has a text."""
    packets = played(tmp_path)[1]
    texts = {name.name_id: wire.decode_text(name.text) for name in records(packets, wire.Name)}  # type: ignore[attr-defined]
    phases = {texts[span.phase_id] for span in records(packets, wire.Span)}  # type: ignore[attr-defined]
    kernels = {texts[kernel.name_id] for kernel in records(packets, wire.Kernel)}  # type: ignore[attr-defined]
    assert phases == {"data", "forward", "backward", "dp-allreduce", "optimizer"}
    assert kernels == set(Job(SHAPE, [], 0).next_step().plan.names)


@pytest.mark.parametrize("signals", ["hooks", "kernels"])
def test_real_signals_have_the_waits_of_each_phase_and_kernels_where_asked(tmp_path: Path, signals: str):
    """As a producer says them; a channel that is not there is not spoken of."""
    shape = dataclasses.replace(SHAPE, model=ModelSettings(signals=signals))
    packets = played(tmp_path, shape=shape)[0]
    texts = {name.name_id: wire.decode_text(name.text) for name in records(packets, wire.Name)}  # type: ignore[attr-defined]
    told = {
        texts[one.phase_id]: wire.waits_text(one.waits)  # type: ignore[attr-defined]
        for one in records(packets, wire.PhaseInfo)
    }
    assert told == dict.fromkeys(("data", "forward", "backward", "optimizer"), "none") | {
        "dp-allreduce": "dp"
    }
    channels = {state.channel for state in records(packets, wire.ChannelState)}  # type: ignore[attr-defined]
    assert (wire.Channel.KERNELS in channels) == bool(records(packets, wire.Kernel)) == (signals == "kernels")


def test_times_are_the_epochs(tmp_path: Path):
    """What the job did at 0 s happened when it was started."""
    packets = played(tmp_path)[0]
    first = records(packets, wire.Span)[0]
    assert isinstance(first, wire.Span)
    assert 0 <= first.start_ns - EPOCH_NS < 0.01 * 0.25e9
    kernels = records(packets, wire.Kernel)
    assert all(0 <= kernel.start_ns - EPOCH_NS < 2_000_000_000 for kernel in kernels)  # type: ignore[attr-defined]


def test_same_seed_sends_identical_bytes(tmp_path: Path):
    """All but HELLO, which tells process and clocks."""
    first, second = played(tmp_path, seed=4), played(tmp_path, seed=4)
    other = played(tmp_path, seed=5)
    assert [packets[1:] for packets in first] == [packets[1:] for packets in second]
    assert [packets[1:] for packets in first] != [packets[1:] for packets in other]


def test_nothing_that_is_sent_tells_the_fault(tmp_path: Path):
    """A healthy and a faulty job use the same texts, but for the chance of what stack is sampled when."""
    texts = []
    for name in ("healthy", "slow-forward"):
        path = tmp_path / name
        receiver = Receiver(path)
        scenario = load_scenario(name)
        player = Player(
            scenario.job(), scenario.training_job, path, clock=lambda: EPOCH_NS, wait=lambda _: False
        )
        player.play(30.0)
        texts.append(
            {
                text
                for packets in receiver.finish()
                for record in records(packets, wire.Name)
                if "(" not in (text := wire.decode_text(record.text)) or "Params)" in text  # type: ignore[attr-defined]
            }
        )
    assert texts[0] == texts[1]


def test_without_an_exporter_the_player_says_what_to_do(tmp_path: Path):
    """Nobody listens: an error that names the socket, not a silent loss."""
    player = Player(Job(SHAPE, [], 0), "job", tmp_path / "absent.sock")
    with pytest.raises(ExporterUnreachable, match=r"absent\.sock: no exporter listens there"):
        player.play(1.0)


def of_rank(connections: list[list[bytes]], rank: int) -> list[list[bytes]]:
    """Connections of one rank, in order."""
    of_all = [(records(packets, wire.Hello)[0], packets) for packets in connections]
    return [packets for hello, packets in of_all if hello.rank == rank]  # type: ignore[attr-defined]


def test_clocks_of_hosts_change_no_duration(tmp_path: Path):
    """Invariant (9): an offset moves all, a drift of 20 ppm and a tick of 1 us change a duration."""
    true = JobShape(Topology(dp=2, ranks_per_host=1), 0.25, clocks=TRUE_CLOCKS)
    off = JobShape(true.topology, 0.25, clocks=ClockSettings(0.01, 20.0, 1000))
    plain, skewed = played(tmp_path, shape=true), played(tmp_path, shape=off)
    moved = set()
    for rank in range(2):
        for type_ in (wire.Kernel, wire.Span):
            before = records(of_rank(plain, rank)[0], type_)
            after = records(of_rank(skewed, rank)[0], type_)
            assert len(before) == len(after)
            for one, other in zip(before, after, strict=True):
                assert abs(one.duration_ns - other.duration_ns) <= 1000 + one.duration_ns * 3e-5  # type: ignore[attr-defined]
        moved.add((after[0].start_ns - before[0].start_ns) // 100_000)  # type: ignore[attr-defined]
    assert len(moved) == 2


def test_iterations_count_no_clock(tmp_path: Path):
    """Their durations are the host's own."""
    totals = []
    for clocks in (TRUE_CLOCKS, ClockSettings(0.01, 20.0, 1000)):
        connections = played(tmp_path, shape=JobShape(Topology(dp=2), 0.25, clocks=clocks))
        iterations = records(of_rank(connections, 0)[0], wire.Iteration)
        totals.append([one.duration_ns for one in iterations])  # type: ignore[attr-defined]
    assert totals[0] == totals[1]


def test_collections_and_compilations_are_told_with_their_totals(tmp_path: Path):
    """A pause of kind gc or compile leaves its record; a silent one none."""
    shape = JobShape(Topology(dp=2), 0.25, host=HostSettings(gc_chance=0.0), clocks=TRUE_CLOCKS)
    pauses = [Fault("pause", (0,), seconds=0.02, kind=kind) for kind in ("gc", "compile", "silent")]
    own = of_rank(played(tmp_path, *pauses, shape=shape), 0)[0]
    collections, compilations = records(own, wire.GarbageCollection), records(own, wire.Compilation)
    steps = len(records(own, wire.Iteration))
    assert [one.total_count for one in collections] == list(range(1, steps + 1))  # type: ignore[attr-defined]
    assert [one.total_count for one in compilations] == list(range(1, steps + 1))  # type: ignore[attr-defined]
    assert collections[-1].total_seconds == pytest.approx(0.02 * steps)  # type: ignore[attr-defined]


def test_activities_are_told_when_they_begin(tmp_path: Path):
    """A checkpoint comes after its step, a warm-up lasts as long as its steps; untagged ones are not told."""
    connections = played(
        tmp_path,
        Fault("activity", (0, 1), activity="warmup", factor=2.0, end_step=2),
        Fault("activity", (0, 1), activity="checkpoint", seconds=0.5, onset_step=3, end_step=4),
        duration_s=4,
    )
    told = [one.activity for one in records(connections[0], wire.ActivityChange)]  # type: ignore[attr-defined]
    assert [one for index, one in enumerate(told) if index == 0 or told[index - 1] != one] == [
        wire.Activity.WARMUP, wire.Activity.TRAIN, wire.Activity.CHECKPOINT, wire.Activity.TRAIN,
    ]  # fmt: skip


def test_a_rank_that_falls_silent_says_no_bye_and_comes_back(tmp_path: Path):
    """As an exporter that dies would make it: the training goes on, at the same speed."""
    connections = played(tmp_path, Fault("leave", (1,), onset_step=2, end_step=5))
    assert len(of_rank(connections, 0)) == 1
    gone, back = of_rank(connections, 1)
    assert [one.step for one in records(gone, wire.Iteration)] == [0, 1]  # type: ignore[attr-defined]
    assert not records(gone, wire.Bye)
    assert records(back, wire.Iteration)[0].step == 5  # type: ignore[attr-defined]
    assert records(back, wire.Bye)


def test_a_rank_may_join_late(tmp_path: Path):
    """Its producer is there some seconds after the others'."""
    connections = played(tmp_path, Fault("join", (1,), seconds=1.0))
    first = records(of_rank(connections, 1)[0], wire.Iteration)[0]
    assert first.step == 4  # type: ignore[attr-defined]
    assert first.total_count == 1  # type: ignore[attr-defined]


def test_a_restart_begins_counters_anew_with_other_ranks(tmp_path: Path):
    """All say BYE; the job comes back half as large, and its steps go on where they were."""
    connections = played(tmp_path, Fault("restart", (0, 1), onset_step=3, dp=1))
    before, after = of_rank(connections, 0)
    assert records(before, wire.Bye) == [wire.Bye(143)]
    assert records(after, wire.Hello)[0].world_size == 1  # type: ignore[attr-defined]
    first = records(after, wire.Iteration)[0]
    assert (first.step, first.total_count) == (3, 1)  # type: ignore[attr-defined]
    assert len(of_rank(connections, 1)) == 1


def test_a_lost_channel_is_told_with_its_reason(tmp_path: Path):
    """Another profiler has the kernels: the phases go on."""
    fault = Fault("channel", (0,), channel="kernels", reason="profiler_conflict", onset_step=3)
    own = of_rank(played(tmp_path, fault), 0)[0]
    texts = {name.name_id: wire.decode_text(name.text) for name in records(own, wire.Name)}  # type: ignore[attr-defined]
    last = [one for one in records(own, wire.ChannelState) if one.channel == wire.Channel.KERNELS][-1]  # type: ignore[attr-defined]
    assert (last.up, texts[last.reason_id]) == (0, "profiler_conflict")  # type: ignore[attr-defined]
    steps = len(records(own, wire.Iteration))
    kernels = len(Job(SHAPE, [], 0).next_step().kernels_of(0))
    assert len(records(own, wire.Kernel)) == 3 * (kernels + 1)  # and the mark of each step
    assert len({span.step for span in records(own, wire.Span)}) == steps  # type: ignore[attr-defined]


def test_stacks_tell_where_the_main_thread_is(tmp_path: Path):
    """Ten a second; a loader that blocks is seen in its own frames, and only while it does."""
    frames = "next (dataloader.py:630);recv_into (socket.py:706)"
    connections = played(tmp_path, Fault("data", (1,), seconds=0.15, frames=frames), duration_s=10)
    shares = []
    for rank in range(2):
        own = of_rank(connections, rank)[0]
        texts = {name.name_id: wire.decode_text(name.text) for name in records(own, wire.Name)}  # type: ignore[attr-defined]
        nodes = {node.node_id: texts[node.frame_id] for node in records(own, wire.StackNode)}  # type: ignore[attr-defined]
        samples = records(own, wire.StackSample)
        total = sum(one.count for one in samples)  # type: ignore[attr-defined]
        assert total == pytest.approx(100, abs=8)
        blocked = sum(one.count for one in samples if nodes[one.node_id].startswith("recv_into"))  # type: ignore[attr-defined]
        shares.append(blocked / total)
    assert shares[0] == 0
    assert shares[1] == pytest.approx(0.15 / 0.4, abs=0.08)


@pytest.mark.parametrize(
    ("phases", "open_on_culprit"),
    [("data", "data"), ("mlp-backward", "backward"), ("optimizer", "optimizer")],
)
def test_the_shared_page_tells_who_hangs_where(tmp_path: Path, phases: str, open_on_culprit: str):
    """Its host is in a phase; the others have launched all that they can, and are in none."""
    shape = JobShape(Topology(dp=4), 0.25, clocks=TRUE_CLOCKS)
    fault = Fault("hang", (2,), phases=phases, onset_step=4)
    receiver, player = receive(tmp_path, fault, shape=shape)
    now_s = [0.0]

    def wait(seconds: float) -> bool:
        now_s[0] += seconds
        return now_s[0] > 10

    player._wait, player._clock = wait, lambda: EPOCH_NS + round(now_s[0] * 1e9)
    player.play(1e6)
    assert player.progress.hung
    assert player.progress.steps == 4
    connections = receiver.finish()
    order = [records(packets, wire.Hello)[0].rank for packets in connections]  # type: ignore[attr-defined]
    pages = dict(zip(order, (page.read() for page in receiver.pages), strict=True))
    assert all(page.step == 4 for page in pages.values())
    assert [span.phase for span in pages[2].open_spans] == [open_on_culprit]
    if phases != "optimizer":
        entered = {rank: page.collectives[0].number for rank, page in pages.items()}
        assert pages[0].open_spans == ()
        assert entered[2] < entered[0] == entered[1] == entered[3]
        waiting = [page.collectives[0] for rank, page in pages.items() if rank != 2]
        assert {(last.operation, last.completed) for last in waiting} == {("all_reduce", entered[2])}
        assert pages[2].collectives[0].operation == ""  # it is in none


def test_speed_changes_durations_and_nothing_else(tmp_path: Path):
    """Compressed time: as many kernels, spans and iterations a step."""
    counts = []
    for speed in (1.0, 4.0):
        scenario = load_scenario("slow-forward").compressed(speed)
        path = tmp_path / f"{speed}"
        receiver = Receiver(path)
        player = Player(scenario.job(), "job", path, clock=lambda: EPOCH_NS, wait=lambda _: False)
        player.play(4.0 / speed)
        (first, *_) = receiver.finish()
        steps = len(records(first, wire.Iteration))
        counts.append(
            (steps, len(records(first, wire.Kernel)) / steps, len(records(first, wire.Span)) // steps)
        )
    assert counts[0] == counts[1]
