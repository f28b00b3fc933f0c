"""Hostile producers against the whole intake path, over real sockets, beside a healthy rank.

The input is a script: which of three connections does what next. It may say HELLO with and without a shared
page, send records of every type with arbitrary or plausible fields, several messages in a packet, raw bytes,
descriptors of every kind (SCM_RIGHTS), write into its page, vanish. Between its moves the healthy rank sends
a span and an iteration, and at the end its counts must be exact and a scrape must work.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from argus_core import wire
from argus_core.shared_page import PAGE, PageWriter
from argus_exporter.config import ExporterConfig
from argus_exporter.intake.connection import Connection
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.ranks.peers import peer_of
from argus_exporter.ranks.rank_registry import RankRegistry
from bench.fuzz.script import Script

_CONNECTIONS: Final = 3
_MOVES: Final = 40
_TYPES: Final = tuple(wire.RECORDS.values())
_HEALTHY_JOB: Final = "healthy"
_DESCRIPTORS: Final = 8
_WRITTEN: Final = PAGE // 8 + 16
"""Words of shared memory: the page, and what says how much lies behind it."""


class Broken(AssertionError):
    """What must hold whatever arrives did not hold."""


@dataclass
class Peer:
    """One connection: the producer's end, and the exporter's."""

    theirs: socket.socket
    connection: Connection
    page: PageWriter | None = None
    alive: bool = True

    def send(self, packet: bytes, descriptors: list[int] | None = None) -> None:
        """Send if there is room, and let the exporter read."""
        if not (self.alive and packet):
            return
        with contextlib.suppress(OSError):
            socket.send_fds(self.theirs, [packet], descriptors or [])
        self.read()

    def read(self) -> None:
        try:
            self.alive = self.connection.read()
        except wire.WireError as error:
            if not error.reason.isidentifier():
                raise Broken(f"reason {error.reason!r} is no word") from error
            self.alive = False
        if not self.alive:
            self.connection.close()

    def vanish(self) -> None:
        self.theirs.close()
        if self.alive:
            self.read()
        if self.alive:
            raise Broken("a connection whose peer has gone is still alive")
        if self.page is not None:
            self.page.close()


@dataclass
class Exporter:
    """The state behind the socket, without an event loop."""

    ranks: RankRegistry = field(default_factory=lambda: RankRegistry(ExporterConfig()))

    def connect(self) -> Peer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        return Peer(theirs, Connection(ours, self.ranks, peer_of(ours), self.ranks.clock()))

    def scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Close windows, collect everything; no collector may fail."""
        for state in self.ranks:
            state.kernels.close_windows()
            if state.page is not None:
                state.page.new_dump()
        samples = {}
        for family in CollectorRunner(ALL_COLLECTORS, self.ranks, own=lambda: iter(())).collect():
            for sample in family.samples:
                samples[sample.name, frozenset(sample.labels.items())] = sample.value
                if sample.labels.get("state") == "error" and sample.value:
                    raise Broken(f"collector {sample.labels['collector']} failed")
        return samples


def run(data: bytes) -> bool:
    """One input; whether a greeting of a hostile connection was accepted.

    Raises:
        Broken: the exporter harmed the healthy rank, failed a scrape, or kept a descriptor.
    """
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    exporter = Exporter()
    healthy = exporter.connect()
    healthy.send(_hello(_HEALTHY_JOB, 0))
    healthy.send(_message(wire.Name(1, b"forward")))
    hostile: list[Peer] = []
    script = Script(data)
    steps, accepted = 0, False
    for _ in range(_MOVES):
        if not script:
            break
        if len(hostile) < _CONNECTIONS and (not hostile or script.below(4) == 0):
            hostile.append(exporter.connect())
            _OPENINGS[script.below(len(_OPENINGS))](hostile[-1], script)
        peer = hostile[script.below(len(hostile))]
        _PEER_MOVES[script.below(len(_PEER_MOVES))](peer, script)
        accepted = accepted or peer.connection.state is not None
        if not peer.alive:
            peer.vanish()
            hostile.remove(peer)
        if script.below(8) == 0:
            exporter.scrape()
        steps += 1
        _healthy_step(healthy, steps)
    samples = exporter.scrape()
    _check_healthy(samples, steps)
    for peer in [*hostile, healthy]:
        peer.vanish()
    exporter.scrape()
    for state in list(exporter.ranks):
        state.close()
    after = sum(1 for _ in Path("/proc/self/fd").iterdir())
    if after != before:
        raise Broken(f"{after - before} file descriptors are left open")
    return accepted


def _hello(job: str, rank: int, *, shares_page: bool = False, channels: int = 1) -> bytes:
    said = wire.hello(
        pid=os.getpid(),
        rank=rank,
        training_job=job,
        monotonic_ns=1,
        realtime_ns=1,
        channels=[channel for channel in wire.Channel if channels >> channel & 1],
        shares_page=shares_page,
    )
    return _message(said)


def _message(*records: wire.Record, dropped: int = 0) -> bytes:
    payload = b"".join(record.pack() for record in records)
    return wire.pack_message(records[0].TYPE, payload, len(records), 1, dropped)


def _healthy_step(healthy: Peer, step: int) -> None:
    healthy.send(_message(wire.Span(step * 10**9, 2 * 10**8, step, 1, 0, 0, 1, 0)))
    healthy.send(_message(wire.Iteration(step, step * 10**9, 5 * 10**8, step, step * 0.5, step * 0.25)))


def _check_healthy(samples: dict[tuple[str, frozenset[tuple[str, str]]], float], steps: int) -> None:
    expected = {
        "argus_rank_up": 1.0,
        "argus_iteration_duration_seconds_count": float(steps),
        "argus_phase_duration_seconds_count": float(steps),
    }
    for name, value in expected.items():
        if not steps and name != "argus_rank_up":
            continue
        found = [
            sample
            for (sample_name, labels), sample in samples.items()
            if sample_name == name and ("training_job", _HEALTHY_JOB) in labels
        ]
        if found != [value]:
            raise Broken(f"the healthy rank has {name} {found}, not {value}")


def _greets(peer: Peer, script: Script) -> None:
    peer.send(_hello(f"job{script.below(3)}", script.below(4), channels=script.byte()))


def _greets_and_names(peer: Peer, script: Script) -> None:
    """As an honest producer begins: what follows gets past the greeting and the names."""
    _greets(peer, script)
    peer.send(_message(*(wire.Name(number, b"name%d" % number) for number in range(1, 5))))


def _says_nothing(_peer: Peer, _script: Script) -> None:
    pass


def _greets_with_page(peer: Peer, script: Script) -> None:
    peer.page = peer.page or PageWriter()
    sent = [peer.page.fd] * (script.below(3) if script.below(4) == 0 else 1)
    peer.send(_hello("job", script.below(4), shares_page=script.below(4) != 0, channels=script.byte()), sent)


def _writes_page(peer: Peer, script: Script) -> None:
    """Anything may stand in a page at any time, and in what lies behind it: a dump of the flight recorder."""
    if peer.page is not None and peer.alive:
        at = int.from_bytes(script.take(2)) % _WRITTEN
        for word in range(at, min(at + script.below(16), _WRITTEN)):
            os.pwrite(peer.page.fd, script.take(8), word * 8)


def _sends_arbitrary_fields(peer: Peer, script: Script) -> None:
    record = _TYPES[script.below(len(_TYPES))]
    count = script.below(4)
    payload = script.take(record.FORMAT.size * count)
    dropped = script.byte() if script.below(2) else int.from_bytes(script.take(8))
    peer.send(wire.pack_message(record.TYPE, payload, count, script.byte(), dropped))


def _sends_plausible(peer: Peer, script: Script) -> None:
    peer.send(b"".join(_plausible(script) for _ in range(1 + script.below(4))))


def _plausible(script: Script) -> bytes:
    """Records whose small fields make sense, so that they get past the first checks."""
    choice = script.byte()
    small, time_ns = script.below(5), int.from_bytes(script.take(3)) * 10**6
    number = _NUMBERS[script.below(len(_NUMBERS))]
    records: tuple[wire.Record, ...] = (
        wire.Name(small, script.take(script.below(40))),
        wire.Span(
            time_ns, number, script.byte(), small, script.below(3), script.below(4), script.below(4), 0
        ),
        wire.Kernel(time_ns, number, -1, small, script.below(4), script.byte(), script.below(4), 0),
        wire.Iteration(
            script.byte(), time_ns, number, script.byte(), float(number), _FLOATS[script.below(5)]
        ),
        wire.ActivityChange(time_ns, script.below(6)),
        wire.Work(_FLOATS[script.below(5)], small),
        wire.ChannelState(number, number, small, script.below(4), script.below(2)),
        wire.GarbageCollection(time_ns, number, script.byte(), _FLOATS[script.below(5)], script.below(4)),
        wire.Compilation(time_ns, number, script.byte(), _FLOATS[script.below(5)], small),
        wire.StackNode(script.below(6), script.below(6), small),
        wire.StackSample(time_ns, small, script.below(6), script.byte()),
        wire.Bye(script.byte()),
    )
    chosen = records[choice % len(records)]
    return _message(*[chosen] * (1 + script.below(2)), dropped=script.below(3))


def _sends_raw(peer: Peer, script: Script) -> None:
    peer.send(script.take(script.byte()))


def _sends_damaged(peer: Peer, script: Script) -> None:
    """A message with bytes changed, cut or added."""
    message = bytearray(_plausible(script))
    for _ in range(script.below(4)):
        message[script.byte() % min(len(message), 64)] = script.byte()
    peer.send(bytes(message[: len(message) - script.below(8)]) + script.take(script.below(8)))


def _sends_descriptors(peer: Peer, script: Script) -> None:
    """With a HELLO or anything else: devices, pipes, sockets, memfds unsealed or of the wrong size."""
    with _descriptors(script) as descriptors:
        packet = _hello("job", 1, shares_page=True) if script.below(2) else _plausible(script)
        peer.send(packet, descriptors)


@contextlib.contextmanager
def _descriptors(script: Script) -> Iterator[list[int]]:
    made: list[int] = []
    for _ in range(script.below(_DESCRIPTORS)):
        match script.below(5):
            case 0:
                made.append(os.open("/dev/zero", os.O_RDONLY))
            case 1:
                made += os.pipe()
            case 2:
                made.append(os.memfd_create("hostile", os.MFD_CLOEXEC))
            case 3:
                made.append(os.memfd_create("hostile", os.MFD_ALLOW_SEALING))
                os.ftruncate(made[-1], script.byte() * 64)
            case _:
                made.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach())
    try:
        yield made
    finally:
        for descriptor in made:
            os.close(descriptor)


def _hangs_up(peer: Peer, script: Script) -> None:
    if script.below(2):
        peer.theirs.shutdown(socket.SHUT_WR)
        peer.read()


_NUMBERS: Final = (0, 1, 1000, 10**6, 10**9, 2**31, 2**62, 2**63, 2**64 - 1)
_FLOATS: Final = (0.0, 1.5, float("nan"), float("inf"), struct.unpack("<d", b"\xff" * 6 + b"\xef\x7f")[0])
_OPENINGS: Final = (*[_greets_and_names] * 6, _greets, _says_nothing)
_PEER_MOVES: Final[tuple[Callable[[Peer, Script], None], ...]] = (
    _greets,
    _greets_with_page,
    _writes_page,
    _sends_arbitrary_fields,
    _sends_plausible,
    _sends_plausible,
    _sends_plausible,
    _sends_raw,
    _sends_damaged,
    _sends_descriptors,
    _hangs_up,
)


def seeds() -> list[bytes]:
    """Scripts at random, of some ten to forty moves."""
    random = Random(0)
    return [random.randbytes(random.randrange(50, 600)) for _ in range(64)]
