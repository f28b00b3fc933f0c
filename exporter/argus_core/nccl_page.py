"""What libargus_nccl counts, as it lies in memory that the training process shares with its exporter.

NCCL calls the library on the training's own threads and on its progress threads. There it only adds to words
of this memory, so that nothing waits and nothing is lost with a process that hangs: the exporter reads the
memory whenever it is scraped. `make generate` writes the C++ side, native/nccl/page.hpp, from this file.
Standard library only: the training process loads it.

Layout, little-endian: a header of one memory page, then each communicator: what it is, its operations by
function, its kernels, and the peers that its network steps go to. Words of 8 bytes are stored whole. A
communicator's words are those of one thread that calls and one that moves data, so sums of one moment may be
some nanoseconds apart; those of its kernels come seconds later, from libargus_cupti, which learns how long a
kernel took.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from argus_core import memfd, wire

NAME: Final = "argus-nccl-page"
MAGIC: Final = 0x4C43434E  # "NCCL"
VERSION: Final = 4
COMMUNICATORS: Final = 64
"""A rank of Megatron-LM with all its dimensions has about 30 (docs/nccl.md)."""
PEERS: Final = 16
"""Of a communicator; what goes to more of them is counted in the last, together."""
OTHER_PEERS: Final = 0xFFFFFFFF
HEADER_BYTES: Final = 4096

FUNCTIONS: Final = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "Send",
    "Recv",
    "other",
)
"""NCCL's names. The memory holds the index."""
SIZE_LIMITS: Final = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
"""Bytes of a call up to which it belongs to a class; the last class has no limit."""
SIZE_NAMES: Final = ("64KiB", "1MiB", "16MiB", "256MiB", "+Inf")
STEP_STATES: Final = (
    "send_gpu_wait",
    "send_peer_wait",
    "send_wait",
    "receive_wait",
    "receive_flush_wait",
    "receive_gpu_wait",
)
"""What a step over the network waits for, in the order of its life: NCCL's states 8, 20, 9, 10, 11, 12."""
STATES: Final = ("not_loaded", "watching", "declined")
"""Of the library."""
REASONS: Final = (
    "",
    "disabled",
    "not_asked_for",
    "rccl",
    "nccl_2_23_network",
    "no_memory",
)
"""Why it declines, or what of NCCL's events it leaves out."""
FORMER: Final = ("none", "chained", "failed", "newer", "missing")
"""What became of the plugin that was configured before."""
LIVE: Final = 1
FINALIZED: Final = 2
"""State of a communicator; 0: the slot is free."""

# A count before a letter is an array of the C structure.
HEADER: Final = struct.Struct("<IIIIIIIIIIQQQQQQQ")
HEADER_FIELDS: Final = (
    "magic",
    "version",
    "pid",
    "state",
    "reason",
    "nccl_version",
    "table",
    "mask",
    "former",
    "communicators",
    "started_ns",
    "dropped_events",
    "foreign_events",
    "unknown_events",
    "stale_events",
    "dropped_communicators",
    "former_dropped_events",
)
COMMUNICATOR: Final = struct.Struct("<QiiiII4x48sQQQ24x")
COMMUNICATOR_FIELDS: Final = (
    "hash",
    "rank",
    "ranks",
    "nodes",
    "state",
    "generation",
    "name",
    "launches",
    "launch_ns",
    "progress_ns",
)
OPERATION: Final = struct.Struct("<QQQQQQQQQ5Q")
OPERATION_FIELDS: Final = (
    "called",
    "count",
    "bytes",
    "sequence",
    "entered_ns",
    "finished",
    "finished_ns",
    "network_ns",
    "network_count",
    "by_size",
)
KERNELS: Final = struct.Struct("<8Q8Q8Q5Q5Q48x")
KERNELS_FIELDS: Final = (
    "count",
    "ns",
    "finished",
    "bus_ns",
    "bus_bytes",
)
PEER: Final = struct.Struct("<I4xQQQ6Q6Q6I6H2B2x2Q2Q")
PEER_FIELDS: Final = (
    "key",
    "last_ns",
    "sent_bytes",
    "received_bytes",
    "ns",
    "steps",
    "open",
    "oldest",
    "oldest_function",
    "oldest_entered_ns",
    "oldest_moved_ns",
)
_OPERATIONS_AT: Final = COMMUNICATOR.size
KERNELS_AT: Final = _OPERATIONS_AT + len(FUNCTIONS) * OPERATION.size
PEERS_AT: Final = KERNELS_AT + KERNELS.size
COMMUNICATOR_BYTES: Final = PEERS_AT + PEERS * PEER.size
"""Several threads write, each words of its own: none shares a cache line with another's kernels or peers."""
SIZE: Final = HEADER_BYTES + COMMUNICATORS * COMMUNICATOR_BYTES

assert KERNELS_AT % 64 == PEERS_AT % 64 == COMMUNICATOR_BYTES % 64 == 0
assert HEADER.size <= HEADER_BYTES


def place_of(slot: int) -> int:
    """Where a communicator begins in the memory."""
    return HEADER_BYTES + slot * COMMUNICATOR_BYTES


class NcclPageError(Exception):
    """What a producer handed over is no memory of libargus_nccl."""


def is_memory(descriptor: int) -> bool:
    """Whether this descriptor is of such memory: after an exec it may be closed, or of another file."""
    return not memfd.unfit(descriptor, SIZE)


def make() -> int:
    """Descriptor of new, empty memory of this layout, for the library in this process.

    Raises:
        OSError: no memfd can be made.
    """
    fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, SIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, memfd.SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


@dataclass(frozen=True)
class Operation:
    """Calls of one function on one communicator.

    Attributes:
        called: calls of the API, captured ones too; 0 where NCCL does not say (before 2.28).
        count: operations that were handed to the GPU.
        bytes: of their messages, as the caller has them.
        sequence: of the last one, NCCL's sequence number plus one: how many were entered. Of Send and Recv,
            which have no number, the count.
        entered_ns, finished_ns: CLOCK_MONOTONIC of the last one.
        finished: the last one whose kernel or network steps had all ended, plus one; 0 where nobody tells.
        network_ns, network_count: from the hand-over to the end of the last network step, summed.
        by_size: operations by class of size, see SIZE_NAMES.
        kernels, kernel_ns: kernels that do this alone, one or several, and their time on the GPU. One that
            sends and receives is of Send; one of several functions, of `other`.
    """

    function: str
    called: int
    count: int
    bytes: int
    sequence: int
    entered_ns: int
    finished: int
    finished_ns: int
    network_ns: int
    network_count: int
    by_size: tuple[int, ...]
    kernels: int = 0
    kernel_ns: int = 0


@dataclass(frozen=True)
class Peer:
    """Network steps to and from one member of a communicator; rank -1: of all others together.

    Attributes:
        ns: time by STEP_STATES, in which the oldest step of a channel was in that state.
        steps: those that left the state.
        open: those that are in it now.
        oldest: channels whose oldest step that is not done is in it now.
        oldest_function, oldest_entered_ns, oldest_moved_ns: of these channels, sent on and received on: what
            operation the last of them that moved belongs to, when that was entered, and when it moved, all
            CLOCK_MONOTONIC.
    """

    rank: int
    last_ns: int
    sent_bytes: int
    received_bytes: int
    ns: tuple[int, ...]
    steps: tuple[int, ...]
    open: tuple[int, ...]
    oldest: tuple[int, ...]
    oldest_function: tuple[str, str]
    oldest_entered_ns: tuple[int, int]
    oldest_moved_ns: tuple[int, int]


@dataclass(frozen=True)
class Communicator:
    """`hash` is the same on all members; `rank` and those of the peers count within the communicator.

    Attributes:
        slot, generation: its place in the memory, and how often that was given away: no other has both.
        ranks: 0 where NCCL does not say (before 2.27).
        bus_ns, bus_bytes: time of kernels that move data, by the class of what one of them takes, and the
            bytes that each member has to pass on for that, as NCCL's tests count them.
    """

    slot: int
    generation: int
    hash: int
    rank: int
    ranks: int
    nodes: int
    live: bool
    name: str
    launches: int
    launch_ns: int
    progress_ns: int
    operations: tuple[Operation, ...]
    peers: tuple[Peer, ...]
    bus_ns: tuple[int, ...] = (0,) * len(SIZE_NAMES)
    bus_bytes: tuple[int, ...] = (0,) * len(SIZE_NAMES)


@dataclass(frozen=True)
class NcclPage:
    """What the memory said at one moment."""

    state: str
    reason: str
    nccl_version: int
    """As ncclGetVersion answers, 23007 for 2.30.7; 0: it could not be asked."""
    table: int
    """Version of the profiler interface that NCCL chose; 0: none yet."""
    mask: int
    former: str
    dropped_events: int
    foreign_events: int
    unknown_events: int
    stale_events: int
    dropped_communicators: int
    former_dropped_events: int
    communicators: tuple[Communicator, ...]


class NcclPageReader:
    """The exporter's side. Owns the descriptor, and reads with pread: see `shared_page.PageReader`.

    Raises:
        NcclPageError: the descriptor is no sealed memfd of the right size; it has been closed.
    """

    def __init__(self, fd: int) -> None:
        if why := memfd.unfit(fd, SIZE):
            os.close(fd)
            raise NcclPageError(f"NCCL's memory {why}")
        self._fd = fd

    def read(self) -> NcclPage:
        """The memory as it is now.

        Raises:
            NcclPageError: it was written by another version of the library.
        """
        header = dict(zip(HEADER_FIELDS, HEADER.unpack(os.pread(self._fd, HEADER.size, 0)), strict=True))
        magic, version = header["magic"], header["version"]
        if not magic:  # NCCL has not come up, or has not loaded the library
            header |= dict.fromkeys(HEADER_FIELDS, 0)
        elif (magic, version) != (MAGIC, VERSION):
            raise NcclPageError(f"magic {magic:#x} version {version}, not {MAGIC:#x} version {VERSION}")
        communicators = []
        for slot in range(min(header["communicators"], COMMUNICATORS)):
            at = place_of(slot)
            raw = os.pread(self._fd, COMMUNICATOR_BYTES, at)
            # A slot that was given to another communicator meanwhile is half of each.
            again = os.pread(self._fd, COMMUNICATOR.size, at)
            if COMMUNICATOR.unpack_from(raw)[:6] == COMMUNICATOR.unpack_from(again)[:6]:
                communicators += _communicator(slot, raw)
        words = {field: header[field] for field in HEADER_FIELDS[6:8] + HEADER_FIELDS[11:]}
        return NcclPage(
            state=_word(STATES, header["state"]),
            reason=_word(REASONS, header["reason"]),
            former=_word(FORMER, header["former"]),
            nccl_version=header["nccl_version"],
            communicators=tuple(communicators),
            **words,
        )

    def close(self) -> None:
        os.close(self._fd)


def _communicator(slot: int, raw: bytes) -> list[Communicator]:
    """One of a page; none where the slot is free."""
    fields: dict[str, Any] = dict(zip(COMMUNICATOR_FIELDS, COMMUNICATOR.unpack_from(raw), strict=True))
    state = fields.pop("state")
    if state not in (LIVE, FINALIZED):
        return []
    operations = []
    kernels, kernel_ns, ended, bus_ns, bus_bytes = _parts(
        KERNELS.unpack_from(raw, KERNELS_AT), *(len(FUNCTIONS),) * 3, *(len(SIZE_NAMES),) * 2
    )
    for number, function in enumerate(FUNCTIONS):
        words = OPERATION.unpack_from(raw, _OPERATIONS_AT + number * OPERATION.size)
        if any(words) or kernels[number]:
            singles = len(OPERATION_FIELDS) - 1
            named = dict(zip(OPERATION_FIELDS[:singles], words[:singles], strict=True))
            named["finished"] = max(named["finished"], ended[number])
            named |= {"kernels": kernels[number], "kernel_ns": kernel_ns[number]}
            operations.append(Operation(function, by_size=words[singles:], **named))
    peers = []
    states = len(STEP_STATES)
    for number in range(PEERS):
        key, last_ns, sent, received, *rest = PEER.unpack_from(raw, PEERS_AT + number * PEER.size)
        if key:
            rank = -1 if key == OTHER_PEERS else key - 1
            ns, steps, open_, oldest = (tuple(rest[at : at + states]) for at in range(0, 4 * states, states))
            first, second, entered, entered_too, moved, moved_too = rest[4 * states :]
            functions = _word(FUNCTIONS, first), _word(FUNCTIONS, second)
            times = (entered, entered_too), (moved, moved_too)
            peers.append(Peer(rank, last_ns, sent, received, ns, steps, open_, oldest, functions, *times))
    fields["name"] = wire.decode_text(fields["name"])
    fields |= {"operations": tuple(operations), "peers": tuple(peers)}
    return [Communicator(slot, live=state == LIVE, bus_ns=bus_ns, bus_bytes=bus_bytes, **fields)]


def _parts(words: tuple[int, ...], *lengths: int) -> Iterator[tuple[int, ...]]:
    """One after the other."""
    rest = iter(words)
    return (tuple(islice(rest, length)) for length in lengths)


def _word(words: tuple[str, ...], number: int) -> str:
    """A peer may write any number: what is none of ours is the last word of the list but no error."""
    return words[number] if number < len(words) else "unknown"
