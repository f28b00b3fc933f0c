"""What a played job puts on the wire."""

from __future__ import annotations

import itertools
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_simulator.job import Job, JobShape
from argus_simulator.kernels import all_names
from argus_simulator.noise import NoiseLevels
from argus_simulator.player import ExporterUnreachable, Player
from argus_simulator.scenario import load_scenario
from argus_simulator.topology import Topology

SHAPE = JobShape(Topology(dp=2), 0.25, NoiseLevels())
EPOCH_NS = 1_800_000_000_000_000_000


class Receiver:
    """Takes every packet of every connection, as the exporter's socket would."""

    def __init__(self, path: Path) -> None:
        self.connections: list[list[bytes]] = []
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
            reader = threading.Thread(target=self._read, args=(peer, packets), daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, peer: socket.socket, packets: list[bytes]) -> None:
        with peer:
            while packet := peer.recv(wire.MAX_MESSAGE_BYTES):
                packets.append(packet)

    def finish(self) -> list[list[bytes]]:
        """All packets, once every connection has ended."""
        for reader in self._readers:
            reader.join(10)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return self.connections


def played(folder: Path, seed: int = 1, duration_s: float = 2.0) -> list[list[bytes]]:
    """Packets of both ranks; the clock stands still, so nothing waits."""
    path = folder / f"s{next(_numbers)}"
    receiver = Receiver(path)
    player = Player(Job(SHAPE, [], seed), "job", path, clock=lambda: EPOCH_NS, wait=lambda _: False)
    player.play(duration_s)
    assert player.progress.dropped == 0
    return receiver.finish()


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
    assert phases == {"data", "forward", "backward", "dp-all-reduce", "optimizer"}
    assert kernels <= set(all_names())
    assert len(kernels) == len(all_names()) - 1  # no tensor parallelism here


def test_times_are_the_epochs(tmp_path: Path):
    """What the job did at 0 s happened when it was started."""
    packets = played(tmp_path)[0]
    first = records(packets, wire.Span)[0]
    assert isinstance(first, wire.Span)
    assert first.start_ns == EPOCH_NS
    kernels = records(packets, wire.Kernel)
    assert all(0 <= kernel.start_ns - EPOCH_NS < 2_000_000_000 for kernel in kernels)  # type: ignore[attr-defined]


def test_same_seed_sends_identical_bytes(tmp_path: Path):
    """All but HELLO, which tells process and clocks."""
    first, second = played(tmp_path, seed=4), played(tmp_path, seed=4)
    other = played(tmp_path, seed=5)
    assert [packets[1:] for packets in first] == [packets[1:] for packets in second]
    assert [packets[1:] for packets in first] != [packets[1:] for packets in other]


def test_nothing_that_is_sent_tells_the_fault(tmp_path: Path):
    """A healthy and a faulty job use the same texts."""
    texts = []
    for name in ("healthy", "slow-forward"):
        path = tmp_path / name
        receiver = Receiver(path)
        scenario = load_scenario(name)
        player = Player(
            scenario.job(), scenario.training_job, path, clock=lambda: EPOCH_NS, wait=lambda _: False
        )
        player.play(40.0)
        texts.append(
            [
                {bytes(record.pack()) for record in records(packets, wire.Name)}
                for packets in receiver.finish()
            ]
        )
    assert texts[0] == texts[1]


def test_without_an_exporter_the_player_says_what_to_do(tmp_path: Path):
    """Nobody listens: an error that names the socket, not a silent loss."""
    player = Player(Job(SHAPE, [], 0), "job", tmp_path / "absent.sock")
    with pytest.raises(ExporterUnreachable, match=r"absent\.sock: no exporter listens there"):
        player.play(1.0)
