"""Nsight Systems reports, exported to SQLite (`nsys export --type sqlite`): one rank a process.

Tables and columns come and go with releases and with what was recorded ("tables are created lazily", says
the reference), so each one is looked for, and only start and end of the GPU work are required.

Source: SQLite Export Schema Reference of Nsight Systems 2019 to 2025,
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#exporter-sqlite-schema
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.replay import nvtx
from argus_exporter.replay.assemble import Collected, assemble
from argus_exporter.replay.nvtx import Ranges
from argus_exporter.replay.rank_names import RANK_HINT, rank_from_name
from argus_exporter.replay.recording import (
    TIME_LIMIT_NS,
    RankRecording,
    RecordingError,
    clean_text,
    kilobytes,
)
from argus_exporter.replay.source import Advance
from argus_exporter.replay.sqlite_file import MAGIC, SqliteFile, opened

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_NVTX: Final = "NVTX_EVENTS"
_STRINGS: Final = "StringIds"
_GPU_TABLES: Final = (_KERNELS, _COPIES, _SETS)
_READ: Final = (*_GPU_TABLES, _RUNTIME, _NVTX)
_KNOWN: Final = frozenset({*_READ, _GRAPHS, "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_SESSION_START_TIME"})

_KERNEL_NAMES: Final = ("demangledName", "shortName", "mangledName", "name")
"""Demangled first: PyTorch's traces have it too, so that both give a kernel one id."""
_THREAD_BITS: Final = 0xFFFFFF
"""A globalTid without its thread (24 bits) is the globalPid of its process."""
_COPY_KINDS: Final = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""CUpti_ActivityMemcpyKind; Kineto writes the same words."""
_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
_EXPORT_AGAIN: Final = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_PROCESSES_SHOWN: Final = 8


def is_sqlite(head: bytes) -> bool:
    return head.startswith(MAGIC)


def is_report(path: Path, head: bytes) -> bool:
    """Whether this is a report of nsys itself: so it is called, and it is no text."""
    return path.name.lower().endswith(_SUFFIXES) and not head.lstrip().startswith((b"{", b"["))


def how_to_export(path: Path) -> str:
    export = path.with_suffix(".sqlite").name
    return (
        "is an Nsight Systems report, which only nsys can read; export it first: "
        f"nsys export --type sqlite --output {export} {path.name}"
    )


class _Row(NamedTuple):
    """One row of GPU work, as the file has it: any field may hold anything."""

    start: Any
    end: Any
    device: Any
    stream: Any
    correlation: Any
    pid: Any
    name: Any
    """Of a kernel its name or the id of it; of a copy its kind."""
    bytes: Any


@dataclass
class _Process:
    found: Collected = field(default_factory=Collected)
    ranges: Ranges = field(default_factory=Ranges)
    devices: set[int] = field(default_factory=set)


def read_nsys(path: Path, *, job: str, first_rank: int | None, advance: Advance) -> list[RankRecording]:
    """Recordings of all processes of an export that used a GPU.

    Args:
        path: the SQLite file.
        job: training job of the identities.
        first_rank: numbers the processes from here on, by their lowest device; None: by the file's name.
        advance: told of progress in bytes of the file.

    Raises:
        RecordingError: no export, no GPU work, damaged, or of unknown ranks.
    """
    with opened(path, _EXPORT_AGAIN) as file:
        if not _KNOWN & file.tables.keys():
            raise RecordingError(
                f"{path}: is a SQLite file, but has none of the tables of an Nsight Systems export "
                f"({_KERNELS}, ...); allowed: what `nsys export --type sqlite` writes"
            )
        processes = _Reader(file, path, advance).processes()
        base_ns, notes = _base_time(file)
        pids = [pid for pid, process in processes.items() if len(process.found.kernels)]
        pids.sort(key=lambda pid: (min(processes[pid].devices, default=0), pid))
        if not pids:
            raise RecordingError(f"{path}: {_why_no_gpu_work(file, processes)}")
        node = _host_name(file)
        recordings = []
        for pid, rank in zip(pids, _ranks(path, pids, first_rank), strict=True):
            process = processes[pid]
            process.found.steps, process.found.marks = process.ranges.steps, process.ranges.marks
            identity = Identity(
                training_job=job,
                rank=rank,
                pid=_system_pid(pid),
                node=node,
                gpu_uuid=_gpu_uuid(file, _system_pid(pid), process.devices),
            )
            recording = assemble(
                process.found,
                base_ns=base_ns,
                source=path,
                identity=identity,
                phases=nvtx.PHASES,
                notes=notes,
            )
            if recording is None:
                raise RecordingError(f"{path}: {_why_no_gpu_work(file, processes)}")
            recordings.append(recording)
    return recordings


class _Reader:
    """One pass over the tables of an export."""

    def __init__(self, file: SqliteFile, path: Path, advance: Advance) -> None:
        self._file = file
        self._texts: dict[int, str] = {}
        self._has_texts = file.has(_STRINGS, "id", "value")
        self._processes: dict[int, _Process] = defaultdict(_Process)
        present = [table for table in _READ if table in file.tables]
        self._rows_left = max(sum(file.count(table) for table in present), 1)
        self._bytes_left = path.stat().st_size
        self._advance = advance

    def processes(self) -> dict[int, _Process]:
        """Everything, by globalPid. Exports of 2018 have none of GPU work: then all is one process, 0."""
        for table, operation in zip(_GPU_TABLES, wire.Operation, strict=True):
            self._gpu_work(table, operation)
        self._launches()
        self._ranges()
        return self._processes

    def _gpu_work(self, table: str, operation: wire.Operation) -> None:
        file = self._file
        if not file.has(table, "start", "end"):
            return
        names = {wire.Operation.KERNEL: _KERNEL_NAMES, wire.Operation.MEMCPY: ("copyKind",)}.get(
            operation, ()
        )
        columns = ["start", "end"]
        optional = ("deviceId",), ("streamId",), ("correlationId",), ("globalPid",), names, ("bytes",)
        for batch in file.rows(table, [*columns, *(file.first_of(table, names) for names in optional)]):
            for raw in batch:
                self._gpu_row(_Row(*raw), operation)
            self._told(len(batch))

    def _gpu_row(self, row: _Row, operation: wire.Operation) -> None:
        process = self._processes[_whole(row.pid, 0)]
        found = process.found
        found.events += 1
        start, end = row.start, row.end
        if not isinstance(start, int) or not -TIME_LIMIT_NS < start < TIME_LIMIT_NS:
            found.unusable["a usable start"] += 1
            return
        if not isinstance(end, int) or not start <= end < TIME_LIMIT_NS:
            found.unusable["a usable end"] += 1
            return
        device = _whole(row.device, 0)
        process.devices.add(min(max(device, 0), 255))
        found.kernel(
            start,
            end - start,
            self._name(row, operation),
            _whole(row.stream, 0),
            kilobytes(_whole(row.bytes, 0)),
            operation,
            device,
            _whole(row.correlation, -1),
        )

    def _name(self, row: _Row, operation: wire.Operation) -> str:
        if operation is wire.Operation.KERNEL:
            return self._text(row.name) or "unnamed"
        if operation is wire.Operation.MEMSET:
            return "Memset"
        kind = _whole(row.name, 0)
        known = _COPY_KINDS[kind] if 0 <= kind < len(_COPY_KINDS) else ""
        return f"Memcpy {known}" if known else "Memcpy"

    def _launches(self) -> None:
        file = self._file
        if not file.has(_RUNTIME, "start", "correlationId"):
            return
        columns = ["start", "correlationId", file.first_of(_RUNTIME, ("globalTid",))]
        for batch in file.rows(_RUNTIME, columns):
            for start, correlation, thread in batch:
                if isinstance(start, int) and isinstance(correlation, int):
                    process = self._process_of(thread)
                    if process is not None and -TIME_LIMIT_NS < start < TIME_LIMIT_NS:
                        process.found.launches.add(correlation, start)
            self._told(len(batch))

    def _ranges(self) -> None:
        file = self._file
        text, text_id = file.first_of(_NVTX, ("text",)), file.first_of(_NVTX, ("textId",))
        if not file.has(_NVTX, "start", "end") or (text is None and text_id is None):
            return
        for batch in file.rows(_NVTX, ["start", "end", text, text_id, file.first_of(_NVTX, ("globalTid",))]):
            for start, end, given, id_, thread in batch:
                # Marks have no end; exports that know no NULL put 0 or -1 there.
                if not isinstance(start, int) or not isinstance(end, int) or end <= start:
                    continue
                process = self._process_of(thread)
                name = given if isinstance(given, str) and given else self._text(id_)
                if process is not None and name and start > -TIME_LIMIT_NS and end < TIME_LIMIT_NS:
                    process.ranges.add(name, start, end - start)
            self._told(len(batch))

    def _process_of(self, thread: object) -> _Process | None:
        """The process of a thread, of those that used a GPU; the one there is where the file tells none."""
        if isinstance(thread, int) and (known := self._processes.get(thread & ~_THREAD_BITS)):
            return known
        untold = not isinstance(thread, int) or 0 in self._processes
        return next(iter(self._processes.values())) if untold and len(self._processes) == 1 else None

    def _text(self, value: object) -> str:
        """A text, or the one that an id stands for."""
        if isinstance(value, str):
            return value
        if not isinstance(value, int) or not self._has_texts:
            return ""
        known = self._texts.get(value)
        if known is None:
            known = self._texts[value] = self._file.value_by_id(_STRINGS, value) or ""
        return known

    def _told(self, rows: int) -> None:
        """Spread the file's bytes over its rows: what lies where in a SQLite file is not known."""
        share = min(self._bytes_left, self._bytes_left * rows // max(self._rows_left, 1))
        self._rows_left, self._bytes_left = self._rows_left - rows, self._bytes_left - share
        self._advance(share)


def _ranks(path: Path, pids: list[int], first_rank: int | None) -> list[int]:
    if first_rank is not None:
        return list(range(first_rank, first_rank + len(pids)))
    if len(pids) > 1:
        shown = ", ".join(str(_system_pid(pid)) for pid in pids[:_PROCESSES_SHOWN])
        more = ", ..." if len(pids) > _PROCESSES_SHOWN else ""
        raise RecordingError(
            f"{path}: holds {len(pids)} processes that used a GPU (pid {shown}{more}); "
            "pass --assume-ranks to number them by device"
        )
    rank = rank_from_name(path.name)
    if rank is None:
        raise RecordingError(f"{path}: the rank is unknown; {RANK_HINT}")
    return [rank]


def _base_time(file: SqliteFile) -> tuple[int, list[str]]:
    """Unix time of the start of the session, from which all times count."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if file.has(table, "utcEpochNs"):
        for batch in file.rows(table, ["utcEpochNs"]):
            for (base,) in batch:
                if isinstance(base, int) and 0 <= base < TIME_LIMIT_NS:
                    return base, []
    return 0, ["times count from the start of the session: the export does not tell when it was"]


def _host_name(file: SqliteFile) -> str:
    table = "TARGET_INFO_SYSTEM_ENV"
    if file.has(table, "name", "value"):
        for batch in file.rows(table, ["name", "value"]):
            for name, value in batch:
                if name == "Hostname" and isinstance(value, str):
                    return clean_text(value, 64)
    return ""


def _gpu_uuid(file: SqliteFile, pid: int, devices: set[int]) -> str:
    """The GPU behind the one CUDA device of a process; CUDA_VISIBLE_DEVICES makes the two numbers differ."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if len(devices) == 1 and file.has(table, "cudaId", "pid", "uuid"):
        for batch in file.rows(table, ["cudaId", "pid", "uuid"]):
            for device, owner, uuid in batch:
                if device in devices and owner == pid and isinstance(uuid, str):
                    return clean_text(uuid, 48)
    return ""


def _why_no_gpu_work(file: SqliteFile, processes: dict[int, _Process]) -> str:
    unusable = {what for process in processes.values() for what in process.found.unusable}
    if unusable:
        count = sum(process.found.unusable.total() for process in processes.values())
        return f"all {count} GPU events are without {' or '.join(sorted(unusable))}; {_EXPORT_AGAIN}"
    if _GRAPHS in file.tables:
        return "CUDA graphs were recorded as wholes; record with nsys profile --cuda-graph-trace=node"
    return "no GPU work; record with nsys profile --trace=cuda,nvtx"


def _system_pid(global_pid: int) -> int:
    """The operating system's number of a process: bits 24 to 47 of its globalPid."""
    return global_pid >> 24 & _THREAD_BITS


def _whole(value: object, default: int) -> int:
    """A whole number of at most 63 bits with sign, or the default."""
    return value if isinstance(value, int) and -(1 << 62) < value < 1 << 62 else default
