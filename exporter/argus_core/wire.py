"""The records that travel from a training process to the exporter of its host.

Transport is `AF_UNIX SOCK_SEQPACKET`: a packet arrives whole, so no torn write desynchronises the stream.
It holds one or more messages, since every packet costs the training thread a system call. A message is one
header and `count` records of one type, packed, little-endian, of fixed size.
This file is the single definition. It imports only the standard library, because the training process loads
it.

Times are Unix times in nanoseconds. Names are interned: a NAMES record binds an id to a text for the rest of
the connection, so a producer repeats its names after it reconnects.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, TypeVar

from argus_core.slotted import slotted

MAGIC: Final = 0x53475241  # "ARGS" on the wire
VERSION: Final = 2
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Largest packet: below the default socket buffer (208 KiB), so that a sender need not drop at once."""

NAME_BYTES: Final = 256

HEADER: Final = struct.Struct("<IHHIIQ")
"""magic, version, message type, record count, sequence number, records dropped by the sender so far."""


class MessageType(enum.IntEnum):
    HELLO = 1
    NAMES = 2
    SPANS = 3
    KERNELS = 4
    ITERATIONS = 5
    ACTIVITY = 6
    WORK = 7
    CHANNELS = 8
    BYE = 9
    GARBAGE_COLLECTIONS = 10
    COMPILATIONS = 11
    STACK_NODES = 12
    STACK_SAMPLES = 13
    JOB = 14
    PHASES = 15
    LAYERS = 16
    GPU_SPANS = 17
    NCCL_OPERATIONS = 18


class Kind(enum.IntEnum):
    """What a phase spends its time on."""

    COMPUTE = 0
    COMM = 1
    HOST = 2


class Source(enum.IntEnum):
    """Which clock measured a phase."""

    EVENT = 0
    HOST = 1
    KERNEL = 2


class Operation(enum.IntEnum):
    """What a GPU record is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


class Activity(enum.IntEnum):
    """What the rank does; rules abstain outside TRAIN."""

    TRAIN = 0
    WARMUP = 1
    CHECKPOINT = 2
    EVALUATION = 3
    COMPILE = 4
    ROLLOUT = 5
    """The trained model generates."""


class Channel(enum.IntEnum):
    """The three independent ways of observing."""

    PHASES = 0
    KERNELS = 1
    STACKS = 2


class WireError(Exception):
    """A packet is not one of ours. `reason` is a bounded set of words, fit for a label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


R = TypeVar("R", bound="Record")


@slotted(frozen=True)
class Record:
    """Base of the fixed-size records: field order and FORMAT agree."""

    TYPE: ClassVar[MessageType]
    FORMAT: ClassVar[struct.Struct]

    def pack(self) -> bytes:
        # astuple copies each field, and costs five times as much
        names: tuple[str, ...] = self.__slots__  # type: ignore[attr-defined]
        return self.FORMAT.pack(*[getattr(self, name) for name in names])

    @classmethod
    def unpack_all(cls: type[R], payload: bytes | memoryview) -> Iterator[R]:
        """Records of a checked payload (see `parse_header`)."""
        return (cls(*fields) for fields in cls.FORMAT.iter_unpack(payload))


INTERRUPTED: Final = 130
"""Exit status after Ctrl-C."""
SHARES_PAGE: Final = 1
SHARES_NCCL: Final = 2


@slotted(frozen=True)
class Hello(Record):
    """First message of a connection: who speaks, and of which channels.

    `channels` is a mask of `1 << Channel`. A rank may have several connections, such as one of the phases and
    one of `libargus_cupti`, which knows its rank from the environment but no topology: the identity that came
    with PHASES stands, any other is provisional. Of no channel: a process that was a rank and to which ARGUS
    was never attached says so as it ends, and hangs up. `shares_page` says which descriptors the packet
    carries (SCM_RIGHTS), in this order: SHARES_PAGE, a shared page (see `shared_page`); with it perhaps
    SHARES_NCCL, the memory of libargus_nccl (see `nccl_page`).

    Parallel coordinates and sizes are -1 where the dimension does not exist; of cp, the size is 0 then. Texts
    are UTF-8, zero-padded.
    `monotonic_ns` and `realtime_ns` were read together and tie the producer's clocks.
    """

    TYPE: ClassVar = MessageType.HELLO
    FORMAT: ClassVar = struct.Struct("<Ii ii iiii iiii QQ 64s64s48s32s BBHH2x")

    pid: int
    rank: int
    local_rank: int
    world_size: int
    dp: int
    tp: int
    pp: int
    ep: int
    dp_size: int
    tp_size: int
    pp_size: int
    ep_size: int
    monotonic_ns: int
    realtime_ns: int
    training_job: bytes
    node: bytes
    gpu_uuid: bytes
    role: bytes
    channels: int
    shares_page: int
    cp: int = 0
    cp_size: int = 0


@slotted(frozen=True)
class Name(Record):
    """Binds `name_id` to a text of at most 256 bytes of UTF-8 (see `encode_name`)."""

    TYPE: ClassVar = MessageType.NAMES
    FORMAT: ClassVar = struct.Struct(f"<I{NAME_BYTES}s")

    name_id: int
    text: bytes


@slotted(frozen=True)
class Span(Record):
    """One finished phase span. `group_id` names a dimension or a group; 0 lets the exporter route it.

    `nested_seconds`: of the duration, what lies in other spans of the same thread or stream; totals leave it
    out, traces show the span whole.
    """

    TYPE: ClassVar = MessageType.SPANS
    FORMAT: ClassVar = struct.Struct("<QQQIIBBHf")

    start_ns: int
    duration_ns: int
    step: int
    phase_id: int
    group_id: int
    kind: int
    source: int
    microbatch: int
    nested_seconds: float = 0.0


@slotted(frozen=True)
class Kernel(Record):
    """One kernel, copy or memory set. `issue_ns`: start minus launch, -1 when unknown.

    `kilobytes`: of a copy or memory set. A kernel has none: there it says which of NCCL's communicators
    launched the kernel, see `launched_by`; 0: none, or nobody knows.
    `mark`: of a memory set that the producer put on the stream at the end of a step, see `step_mark`; else 0.
    """

    TYPE: ClassVar = MessageType.KERNELS
    FORMAT: ClassVar = struct.Struct("<QQqIIIBBH")

    start_ns: int
    duration_ns: int
    issue_ns: int
    name_id: int
    stream: int
    kilobytes: int
    operation: int
    device: int
    mark: int = 0


STEP_MARKS: Final = 0x8000
"""Steps until marks repeat."""


def step_mark(step: int) -> int:
    """The number that marks the end of a step: 16 bits, never 0."""
    return STEP_MARKS | step % STEP_MARKS


def marked_step(mark: int, near: int) -> int:
    """The step of a mark; of those with that mark the one nearest to `near`."""
    half = STEP_MARKS // 2
    return near + (mark % STEP_MARKS - near + half) % STEP_MARKS - half


STEP_MARK_BYTES: Final = 4
STEP_MARK_VALUE: Final = 0x4152_0000
"""A step is marked by a memory set of 4 bytes to this value plus its mark. CUPTI tells the value, and so
where on the GPU's clock the step ended."""


def mark_of_set(value: int, size: int) -> int:
    """The mark that a memory set of `size` bytes is; 0: it is somebody else's."""
    own = size == STEP_MARK_BYTES and value >> 16 == STEP_MARK_VALUE >> 16
    return value & 0xFFFF if own and value & STEP_MARKS else 0


LAUNCHED_BY_NCCL: Final = 0x8000_0000
LAUNCHED_SLOT: Final = 25
"""Lowest bit of 6: the communicator's slot in NCCL's memory (`nccl_page`)."""
LAUNCHED_GENERATION: Final = 16
"""Lowest bit of 9: how often that slot had been given away, as far as 9 bits say it."""
LAUNCHED_ONE: Final = 0x8000
"""The kernel does one operation, and the 15 bits below are of its sequence number; else they are how many it
does, 0: nobody knows."""


def launched_by(slot: int, generation: int, *, sequence: int | None = None, operations: int = 0) -> int:
    """The word of a kernel that NCCL launched for a communicator."""
    low = operations % LAUNCHED_ONE if sequence is None else LAUNCHED_ONE | sequence % LAUNCHED_ONE
    return LAUNCHED_BY_NCCL | slot << LAUNCHED_SLOT | (generation & 0x1FF) << LAUNCHED_GENERATION | low


LISTED: Final = 16
"""Operations of a kernel that are told one by one."""


@slotted(frozen=True)
class NcclOperation(Record):
    """One operation of a kernel of NCCL's that does several, or that sends or receives.

    Those of one kernel come in NCCL's order, and beside its `Kernel`, which has the same start and the same
    word in `kilobytes`: that says how many there are, of which the first `LISTED` are told, `place` by
    `place`. A kernel of one collective has none: its word says all.
    `function`: index in `nccl_page.FUNCTIONS`. `sequence`: of a collective; NCCL does not number the others.
    `peer`: of a send or receive, a rank of the communicator; -1: a collective.
    """

    TYPE: ClassVar = MessageType.NCCL_OPERATIONS
    FORMAT: ClassVar = struct.Struct("<QIIiBB2x")

    start_ns: int
    launched_by: int
    sequence: int
    peer: int
    function: int
    place: int


@slotted(frozen=True)
class GpuSpan(Record):
    """Where a finished span lay on the GPU, on the stream of the step marks: as CUDA events measured it.

    It comes beside the `Span`, which has its time. Spans come in the order of their ends.
    `after_ns`: from the mark that ended the step before `step` to the begin of the span.
    """

    TYPE: ClassVar = MessageType.GPU_SPANS
    FORMAT: ClassVar = struct.Struct("<QqQIB3x")

    step: int
    after_ns: int
    duration_ns: int
    phase_id: int
    kind: int


@slotted(frozen=True)
class Iteration(Record):
    """One finished iteration with the producer's running totals, so that an exporter restart is no reset."""

    TYPE: ClassVar = MessageType.ITERATIONS
    FORMAT: ClassVar = struct.Struct("<QQQQdd")

    step: int
    end_ns: int
    duration_ns: int
    total_count: int
    total_seconds: float
    total_squared: float


@slotted(frozen=True)
class ActivityChange(Record):
    TYPE: ClassVar = MessageType.ACTIVITY
    FORMAT: ClassVar = struct.Struct("<QB7x")

    time_ns: int
    activity: int


@slotted(frozen=True)
class Work(Record):
    """Running total of work units (tokens, samples, pixels), named by `unit_id`."""

    TYPE: ClassVar = MessageType.WORK
    FORMAT: ClassVar = struct.Struct("<dI4x")

    total: float
    unit_id: int


@slotted(frozen=True)
class ChannelState(Record):
    """State and own cost of a channel inside the training process.

    `reason_id` says why it is down, or what limits it; 0: nothing.
    """

    TYPE: ClassVar = MessageType.CHANNELS
    FORMAT: ClassVar = struct.Struct("<QQIBB2x")

    cpu_ns: int
    dropped: int
    reason_id: int
    channel: int
    up: int


@slotted(frozen=True)
class GarbageCollection(Record):
    """The latest pause of Python's collector, with the producer's running totals of that generation."""

    TYPE: ClassVar = MessageType.GARBAGE_COLLECTIONS
    FORMAT: ClassVar = struct.Struct("<QQQdB7x")

    start_ns: int
    duration_ns: int
    total_count: int
    total_seconds: float
    generation: int


@slotted(frozen=True)
class Compilation(Record):
    """The latest JIT compilation on the host, with the producer's running totals of that compiler."""

    TYPE: ClassVar = MessageType.COMPILATIONS
    FORMAT: ClassVar = struct.Struct("<QQQdI4x")

    start_ns: int
    duration_ns: int
    total_count: int
    total_seconds: float
    compiler_id: int


@slotted(frozen=True)
class StackNode(Record):
    """A node of the tree of call stacks: a frame below a caller. `parent_id` 0: the outermost frame."""

    TYPE: ClassVar = MessageType.STACK_NODES
    FORMAT: ClassVar = struct.Struct("<III4x")

    node_id: int
    parent_id: int
    frame_id: int


@slotted(frozen=True)
class StackSample(Record):
    """`count` samples of a thread (a name) whose innermost frame is the stack node `node_id`."""

    TYPE: ClassVar = MessageType.STACK_SAMPLES
    FORMAT: ClassVar = struct.Struct("<QIII4x")

    time_ns: int
    thread_id: int
    node_id: int
    count: int


@slotted(frozen=True)
class JobFacts(Record):
    """What the job trains and with what, for comparison with its earlier runs. UTF-8, zero-padded."""

    TYPE: ClassVar = MessageType.JOB
    FORMAT: ClassVar = struct.Struct("<64s32s")

    model: bytes
    backend: bytes


WAITED_FOR: Final = ("cp", "dp", "edp", "ep", "pp", "tp")
"""Dimensions whose ranks a phase may wait for, from the lowest bit of a mask on."""
WAITS_UNKNOWN: Final = 0x80
"""The bit of a mask that says: nobody knows."""


def waits_mask(dimensions: Iterable[str]) -> int:
    """Mask of some of `WAITED_FOR`."""
    return sum(1 << WAITED_FOR.index(name) for name in set(dimensions))


def waits_text(mask: int) -> str:
    """`dp,tp`, sorted; `none`, or `unknown`."""
    if mask & WAITS_UNKNOWN or mask >> len(WAITED_FOR):
        return "unknown"
    return ",".join(name for bit, name in enumerate(WAITED_FOR) if mask >> bit & 1) or "none"


@slotted(frozen=True)
class PhaseInfo(Record):
    """Whom a phase may wait for in its exclusive time: a mask, see `waits_text`. Repeated with the state."""

    TYPE: ClassVar = MessageType.PHASES
    FORMAT: ClassVar = struct.Struct("<IBB2x")

    phase_id: int
    kind: int
    waits: int


@slotted(frozen=True)
class Layer(Record):
    """One sample of a layer's work: of `layer_id` (what kind), the `index`-th, in one micro-batch of a step.

    `nested_seconds`: of the duration, the waits and pauses within it that the producer has seen.
    """

    TYPE: ClassVar = MessageType.LAYERS
    FORMAT: ClassVar = struct.Struct("<QQQIfHHB3x")

    start_ns: int
    duration_ns: int
    step: int
    layer_id: int
    nested_seconds: float
    index: int
    microbatch: int
    source: int


@slotted(frozen=True)
class Bye(Record):
    """Last message: the process ends, with this exit status; a negative one is not known."""

    TYPE: ClassVar = MessageType.BYE
    FORMAT: ClassVar = struct.Struct("<i4x")

    exit_status: int

    @property
    def failed(self) -> bool:
        """An uncaught exception, or a status that says so: the other ranks may wait for this one for ever."""
        return self.exit_status > 0 and self.exit_status != INTERRUPTED


RECORDS: Final[dict[MessageType, type[Record]]] = {
    record.TYPE: record
    for record in (
        Hello,
        Name,
        Span,
        Kernel,
        Iteration,
        ActivityChange,
        Work,
        ChannelState,
        Bye,
        GarbageCollection,
        Compilation,
        StackNode,
        StackSample,
        JobFacts,
        PhaseInfo,
        Layer,
        GpuSpan,
        NcclOperation,
    )
}

_RECORD_BY_NUMBER: Final = {int(type_): record for type_, record in RECORDS.items()}


def records_per_message(record: type[Record]) -> int:
    """How many records of a type fit one packet."""
    return (MAX_MESSAGE_BYTES - HEADER.size) // record.FORMAT.size


def pack_message(type_: MessageType, payload: bytes, count: int, sequence: int, dropped: int) -> bytes:
    """One message: header and already packed records."""
    return HEADER.pack(MAGIC, VERSION, type_, count, sequence & 0xFFFFFFFF, dropped) + payload


@slotted(frozen=True)
class Header:
    type: MessageType
    count: int
    sequence: int
    dropped: int


def messages(packet: bytes | memoryview) -> Iterator[tuple[Header, memoryview]]:
    """Header and records of each message of a packet, in order.

    Raises:
        WireError: bad magic, version, type, or a length that the messages' records do not explain.
    """
    rest = memoryview(packet)
    while True:
        end = _message_bytes(rest)
        yield parse_header(rest[:end]), rest[HEADER.size : end]
        rest = rest[end:]
        if not len(rest):
            return


def _message_bytes(packet: memoryview) -> int:
    """Length of the first message, or of the whole packet where the header makes no sense of it."""
    if len(packet) < HEADER.size:
        return len(packet)
    _, _, type_, count, _, _ = HEADER.unpack_from(packet)
    record = _RECORD_BY_NUMBER.get(type_)
    expected = HEADER.size + count * record.FORMAT.size if record else len(packet)
    return min(expected, len(packet))


def parse_header(packet: bytes | memoryview) -> Header:
    """Check the header of one message against its length.

    Raises:
        WireError: bad magic, version, type, or a length that `count` records do not explain.
    """
    if len(packet) < HEADER.size:
        raise WireError("length", f"packet of {len(packet)} bytes is shorter than a header of {HEADER.size}")
    magic, version, type_, count, sequence, dropped = HEADER.unpack_from(packet)
    if magic != MAGIC:
        raise WireError("magic", f"magic 0x{magic:08x} is not 0x{MAGIC:08x}")
    if version != VERSION:
        raise WireError(
            "version", f"wire version {version} is not {VERSION}: update the producer or the exporter"
        )
    if type_ not in MessageType.__members__.values():
        raise WireError("type", f"message type {type_} is unknown")
    message_type = MessageType(type_)
    expected = HEADER.size + count * RECORDS[message_type].FORMAT.size
    if len(packet) != expected:
        raise WireError(
            "length", f"{message_type.name} with {count} records has {len(packet)} bytes, not {expected}"
        )
    return Header(message_type, count, sequence, dropped)


def encode_text(text: str, size: int) -> bytes:
    """UTF-8 cut to `size` bytes at a character boundary; struct pads it with zeros."""
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= size else raw[:size].decode("utf-8", "ignore").encode()


def encode_name(text: str) -> bytes:
    """Text of a NAMES record. What is too long is cut and marked by the CRC-32 of the whole.

    Demangled CUTLASS names run to thousands of characters and often differ only near their end.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= NAME_BYTES:
        return raw
    mark = b"~%08x" % zlib.crc32(raw)
    return encode_text(text, NAME_BYTES - len(mark)) + mark


def decode_text(raw: bytes) -> str:
    """Inverse of `encode_text`; bytes that are not UTF-8 become U+FFFD, control characters are dropped."""
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(character for character in text if character.isprintable())


def job_facts(model: str, backend: str) -> JobFacts:
    """A JOB record from plain texts."""
    return JobFacts(encode_text(model, 64), encode_text(backend, 32))


def hello(
    *,
    pid: int,
    rank: int,
    training_job: str,
    monotonic_ns: int,
    realtime_ns: int,
    local_rank: int = -1,
    world_size: int = -1,
    coordinates: dict[str, int] | None = None,
    sizes: dict[str, int] | None = None,
    node: str = "",
    gpu_uuid: str = "",
    role: str = "",
    channels: Iterable[Channel] = (Channel.PHASES,),
    shares_page: bool = False,
    shares_nccl: bool = False,
) -> Hello:
    """A HELLO from plain values; `coordinates` and `sizes` are keyed by `dp`, `tp`, `pp`, `cp`, `ep`."""
    at: dict[str, Any] = coordinates or {}
    of: dict[str, Any] = sizes or {}
    return Hello(
        pid=pid,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        dp=at.get("dp", -1),
        tp=at.get("tp", -1),
        pp=at.get("pp", -1),
        ep=at.get("ep", -1),
        dp_size=of.get("dp", -1),
        tp_size=of.get("tp", -1),
        pp_size=of.get("pp", -1),
        ep_size=of.get("ep", -1),
        monotonic_ns=monotonic_ns,
        realtime_ns=realtime_ns,
        training_job=encode_text(training_job, 64),
        node=encode_text(node, 64),
        gpu_uuid=encode_text(gpu_uuid, 48),
        role=encode_text(role, 32),
        channels=sum(1 << channel for channel in set(channels)),
        shares_page=SHARES_PAGE * shares_page + SHARES_NCCL * (shares_page and shares_nccl),
        cp=min(at.get("cp", 0), 0xFFFF),
        cp_size=min(of.get("cp", 0), 0xFFFF),
    )
