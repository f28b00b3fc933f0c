"""Hostile bytes: whatever arrives on a connection, only that connection ends, and always with a reason.

The short form of `python -m bench.fuzz`, with hypothesis, which makes what it finds small.
"""

from __future__ import annotations

import socket

from bench.fuzz import wire_target
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from argus_core import wire
from argus_exporter.config import ExporterConfig
from argus_exporter.intake.connection import Connection
from argus_exporter.publish.collectors import ALL_COLLECTORS, CollectorRunner
from argus_exporter.ranks.peers import peer_of
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.server import RunningExporter
from exporter.exporter_process import Rank, scrape, value, wait_for

PATIENCE_S = 30.0

U64 = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 5)


@st.composite
def records(draw: DrawFn) -> bytes:
    """One message of a valid type whose fields are arbitrary bits."""
    record = draw(st.sampled_from(list(wire.RECORDS.values())))
    count = draw(st.integers(0, 3))
    payload = draw(st.binary(min_size=record.FORMAT.size * count, max_size=record.FORMAT.size * count))
    return wire.pack_message(record.TYPE, payload, count, draw(SMALL), draw(U64))


@st.composite
def plausible(draw: DrawFn) -> bytes:
    """A message that a confused but honest producer might send."""
    record: wire.Record = draw(
        st.one_of(
            st.builds(wire.Name, st.integers(0, 3), st.binary(max_size=256)),
            st.builds(wire.Span, U64, U64, U64, SMALL, SMALL, SMALL, SMALL, st.integers(0, 9)),
            st.builds(wire.Kernel, U64, U64, st.just(-1), SMALL, SMALL, SMALL, SMALL, SMALL),
            st.builds(wire.Iteration, U64, U64, U64, U64, st.floats(), st.floats()),
            st.builds(wire.Work, st.floats(), SMALL),
            st.builds(wire.ChannelState, U64, U64, SMALL, SMALL, SMALL),
            st.builds(wire.ActivityChange, U64, st.integers(0, 255)),
            st.builds(wire.GarbageCollection, U64, U64, U64, st.floats(), SMALL),
            st.builds(wire.Compilation, U64, U64, U64, st.floats(), SMALL),
            st.builds(wire.StackNode, SMALL, SMALL, SMALL),
            st.builds(wire.StackSample, U64, SMALL, SMALL, SMALL),
            st.builds(wire.Bye, st.integers(-(2**31), 2**31 - 1)),
        )
    )
    return wire.pack_message(record.TYPE, record.pack(), 1, 1, 0)


@st.composite
def mutated(draw: DrawFn) -> bytes:
    """A plausible message with some bytes changed, cut or added."""
    message = bytearray(draw(plausible()))
    for _ in range(draw(st.integers(1, 4))):
        message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message[: draw(st.integers(1, len(message)))]) + draw(st.binary(max_size=8))


HELLO = wire.hello(pid=1, rank=0, training_job="job", monotonic_ns=1, realtime_ns=1)


@given(
    st.lists(st.one_of(st.binary(max_size=400), records(), plausible(), mutated()), max_size=12),
    st.booleans(),
)
def test_any_packets_end_in_a_reason_and_leave_a_scrape_that_works(packets: list[bytes], greets: bool):
    """No exception but WireError escapes, and what was taken in can be published."""
    ranks = RankRegistry(ExporterConfig())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    connection = Connection(ours, ranks, peer_of(ours), 0.0)
    opening = [wire.pack_message(wire.MessageType.HELLO, HELLO.pack(), 1, 1, 0)] if greets else []
    with theirs:
        for packet in opening + [packet for packet in packets if packet]:
            theirs.send(packet)
            try:
                alive = connection.read()
            except wire.WireError as error:
                assert error.reason in {
                    "length",
                    "magic",
                    "version",
                    "type",
                    "hello",
                    "name_id",
                    "names",
                    "value",
                }
                break
            if not alive:
                break
        for state in ranks:
            state.kernels.close_windows()
        families = list(CollectorRunner(ALL_COLLECTORS, ranks, own=lambda: iter(())).collect())
        failed = [
            sample.labels["collector"]
            for family in families
            for sample in family.samples
            if sample.labels.get("state") == "error" and sample.value
        ]
        assert failed == []
        connection.close()


def test_a_flood_takes_its_turn_by_time():
    """A packet may hold a thousand records: not 64 of them at once, but all of them in the end."""
    each, packets = 200, 8
    ranks = RankRegistry(ExporterConfig())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    connection = Connection(ours, ranks, peer_of(ours), 0.0)
    with theirs:
        theirs.send(wire.pack_message(wire.MessageType.HELLO, HELLO.pack(), 1, 1, 0))
        for packet in range(packets):
            steps = range(packet * each + 1, packet * each + each + 1)
            payload = b"".join(wire.Iteration(n, n, 1, n, 1.0, 1.0).pack() for n in steps)
            theirs.send(wire.pack_message(wire.MessageType.ITERATIONS, payload, each, 1, 0))
        assert connection.read()
        (state,) = ranks
        assert state.iterations is None or state.iterations.last.step < packets * each
        while state.iterations is None or state.iterations.last.step < packets * each:
            assert connection.read()
    connection.close()


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_script_of_hostile_producers_leaves_the_rank_beside_them_exact(script: bytes):
    """Greetings, pages, descriptors, records of every type and raw bytes, interleaved with a healthy rank."""
    wire_target.run(script)


def test_seeds_of_the_fuzzer_get_past_the_greeting():
    """Else it would test the header alone."""
    assert sum(map(wire_target.run, wire_target.seeds())) > len(wire_target.seeds()) / 2


def test_hostile_connections_leave_a_healthy_rank_its_exact_counts(running: RunningExporter):
    """Through a running exporter: every packet of the healthy rank counts, every hostile one is rejected."""
    greeting = wire.pack_message(wire.MessageType.HELLO, HELLO.pack(), 1, 1, 0)
    header = wire.HEADER.size
    hostile = [
        b"GET / HTTP/1.1\r\n\r\n",
        greeting[:-1],
        greeting + greeting,
        greeting + wire.pack_message(wire.MessageType.SPANS, b"\xff" * wire.Span.FORMAT.size, 1, 1, 0),
        greeting + wire.HEADER.pack(wire.MAGIC, wire.VERSION + 1, 3, 0, 0, 0),
        greeting[:header] + b"\xff" * (len(greeting) - header),
        b"\0" * wire.MAX_MESSAGE_BYTES,
    ]
    healthy = Rank(running.socket, 7)
    for step in range(1, 1 + 5 * len(hostile)):
        healthy.iterate(0.25)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(running.socket))
            peer.send(hostile[step % len(hostile)])
            peer.settimeout(PATIENCE_S)
            assert peer.recv(1) == b"", "the exporter hangs up"
    labels = {"training_job": "job", "rank": "7"}

    def count() -> float | None:
        return value(scrape(running.url), "argus_iteration_duration_seconds_count", **labels)

    wait_for(lambda: count() == healthy.step, "all iterations of the healthy rank", PATIENCE_S)
    samples = scrape(running.url)
    assert value(samples, "argus_rank_up", **labels) == 1
    assert value(samples, "argus_phase_duration_seconds_count", **labels) == healthy.step
    assert value(samples, "argus_iteration_duration_seconds_sum", **labels) == 0.25 * healthy.step
    healthy.link.close(exit_status=0)
