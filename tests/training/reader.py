"""A bare exporter for producer tests: accepts producers on a socket and keeps what they say, by rank."""

from __future__ import annotations

import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from bench.seqpacket_server import SeqpacketServer

from argus_core import wire
from argus_core.shared_page import PageReader

PATIENCE_S = 60.0
"""Longest wait for a condition: a torch import on a busy core takes ten seconds."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, bounded."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.01)


class Said:
    """What one rank has said, over all its connections."""

    def __init__(self) -> None:
        self.hellos: list[wire.Hello] = []
        self.spans: list[tuple[str, str, wire.Span]] = []
        self.iterations: list[wire.Iteration] = []
        self.activities: list[wire.Activity] = []
        self.channels: list[tuple[wire.ChannelState, str]] = []
        self.work: dict[str, float] = {}
        self.collections: list[wire.GarbageCollection] = []
        self.compilations: list[tuple[str, wire.Compilation]] = []
        self.waits: dict[tuple[str, str], str] = {}
        """Whom a phase may wait for, by name and kind; the last that was said."""
        self.layers: list[tuple[str, wire.Layer]] = []
        self.page: PageReader | None = None
        self.exit_status: int | None = None
        self.ended = False
        """A connection of it has ended."""

    def count(self) -> Counter[str]:
        return Counter(phase for phase, _, _ in self.spans)

    def seconds(self, phase: str) -> list[float]:
        """Of each span, what is in no other span within it."""
        return [span.duration_ns / 1e9 - span.nested_seconds for name, _, span in self.spans if name == phase]


class Reader:
    """Listens until closed; records are in `ranks`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ranks: dict[int, Said] = defaultdict(Said)
        self._server = SeqpacketServer(path, self._read)

    def close(self) -> None:
        """Vanish as a killed exporter does: connections reset, socket gone."""
        self.path.unlink(missing_ok=True)
        self._server.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ended(self, rank: int = 0) -> Said:
        """What a rank has said, once it has said BYE."""
        said = self.ranks[rank]
        until(lambda: said.exit_status is not None, "BYE")
        return said

    def _read(self, peer: socket.socket) -> None:
        names = {0: ""}
        said = Said()
        while True:
            try:
                packet, fds, _, _ = socket.recv_fds(peer, wire.MAX_MESSAGE_BYTES + 1, 1)
            except OSError:
                packet = b""
            if not packet:
                said.ended = True
                return
            for header, payload in wire.messages(packet):
                for record in wire.RECORDS[header.type].unpack_all(payload):
                    said = self._take(record, said, names, fds)

    def _take(self, record: wire.Record, said: Said, names: dict[int, str], fds: list[int]) -> Said:
        match record:
            case wire.Hello():
                said = self.ranks[record.rank]
                said.hellos.append(record)
                if fds:
                    said.page = PageReader(fds[0])
            case wire.Name():
                names[record.name_id] = wire.decode_text(record.text)
            case wire.Span():
                said.spans.append((names[record.phase_id], names[record.group_id], record))
            case wire.Iteration():
                said.iterations.append(record)
            case wire.ActivityChange():
                said.activities.append(wire.Activity(record.activity))
            case wire.ChannelState():
                said.channels.append((record, names[record.reason_id]))
            case wire.Work():
                said.work[names[record.unit_id]] = record.total
            case wire.GarbageCollection():
                said.collections.append(record)
            case wire.PhaseInfo():
                key = names[record.phase_id], wire.Kind(record.kind).name.lower()
                said.waits[key] = wire.waits_text(record.waits)
            case wire.Layer():
                said.layers.append((names[record.layer_id], record))
            case wire.Compilation():
                said.compilations.append((names[record.compiler_id], record))
            case wire.Bye():
                said.exit_status = record.exit_status
        return said
