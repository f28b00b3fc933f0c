"""Writes what `nsys export --type sqlite` writes, as the schema reference documents two generations of it.

Recent (2021.5 to 2025): columns may be NULL, names are ids of `StringIds`, processes are told by `globalPid`,
devices by `TARGET_INFO_CUDA_DEVICE`. Old (2019): every column NOT NULL with 0 where there is nothing, NVTX
texts inline, no `globalPid`, no start time of the session.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

SESSION_NS = 1_700_000_000_000_000_000

RECENT = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER,
  value TEXT);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT,
  numMultiprocessors INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
  mangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, jsonText TEXT);
"""

OLD = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL,
  contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT NOT NULL, demangledName INT NOT NULL,
  shortName INT NOT NULL, gridX INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL,
  correlationId INT NOT NULL, nameId INT NOT NULL, returnValue INT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT NOT NULL, eventType INT NOT NULL, rangeId INT NOT NULL,
  category INT NOT NULL, color INT NOT NULL, text TEXT NOT NULL, globalTid INT NOT NULL,
  endGlobalTid INT NOT NULL);
"""

PUSH_POP = 59
MARK = 34


def global_pid(pid: int) -> int:
    """An instance and a host in the high bits, then 24 bits of pid, then 24 of thread."""
    return 0x0101 << 48 | pid << 24


class Export:
    """Rows of one export; `write` makes the file."""

    def __init__(self, schema: str = RECENT) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.executescript(schema)
        self._strings: dict[str, int] = {}

    def string(self, text: str) -> int:
        known = self._strings.get(text)
        if known is None:
            known = self._strings[text] = len(self._strings) + 1
            self.row("StringIds", id=known, value=text)
        return known

    def row(self, table: str, **values: Any) -> None:
        """Insert; columns of another generation and absent tables are passed over, as an exporter does."""
        columns = {row[1]: row[3] for row in self.connection.execute(f"PRAGMA table_info({table})")}
        if not columns:
            return
        given = {name: value for name, value in values.items() if name in columns}
        given |= {name: 0 for name, needed in columns.items() if needed and name not in given}
        marks = ", ".join("?" * len(given))
        names = ", ".join(given)
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(given.values()))

    def session(self, start_ns: int = SESSION_NS, host: str = "gpu-01") -> None:
        self.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=start_ns)
        self.row("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=host)

    def kernel(
        self,
        name: str = "gemm<float>(int)",
        *,
        start: int,
        duration: int,
        pid: int = 100,
        device: int = 0,
        stream: int = 7,
        correlation: int = 0,
        launched: int | None = None,
    ) -> None:
        if launched is not None:
            self.row(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=launched,
                end=launched + 3000,
                globalTid=global_pid(pid) | 5,
                correlationId=correlation,
                nameId=self.string("cudaLaunchKernel_v7000"),
            )
        self.row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=start + duration,
            deviceId=device,
            contextId=1,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_pid(pid),
            demangledName=self.string(name),
            shortName=self.string(name.split("<")[0]),
        )

    def copy(
        self, *, start: int, duration: int, kind: int = 1, size: int = 4096, pid: int = 100, device: int = 0
    ) -> None:
        self.row(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start,
            end=start + duration,
            deviceId=device,
            streamId=9,
            globalPid=global_pid(pid),
            bytes=size,
            copyKind=kind,
        )

    def memset(self, *, start: int, duration: int, size: int = 1 << 20, pid: int = 100) -> None:
        self.row(
            "CUPTI_ACTIVITY_KIND_MEMSET",
            start=start,
            end=start + duration,
            streamId=7,
            globalPid=global_pid(pid),
            bytes=size,
        )

    def range(self, text: str, start: int, duration: int, *, pid: int = 100, by_id: bool = False) -> None:
        self.row(
            "NVTX_EVENTS",
            start=start,
            end=start + duration,
            eventType=PUSH_POP,
            globalTid=global_pid(pid) | 5,
            **({"textId": self.string(text)} if by_id else {"text": text}),
        )

    def write(self, path: Path) -> Path:
        self.connection.commit()
        with sqlite3.connect(path) as file:
            self.connection.backup(file)
        file.close()
        return path


def training_export(schema: str = RECENT, steps: int = 4, pid: int = 100, device: int = 0) -> Export:
    """Steps of 1 ms from step 5 on: forward of 400 us, an all-reduce of 100 us, a copy.

    In forward run four gemms of 10, 11, ... us, launched 20 us before they start.
    """
    export = Export(schema)
    export.session()
    fill(export, steps, pid, device)
    return export


def fill(export: Export, steps: int, pid: int, device: int) -> None:
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=device + 2, cudaId=device, pid=pid, uuid=f"uuid-{pid}")
    for step in range(steps):
        begin = 1_000_000 + step * 1_000_000
        export.range(f"step {5 + step}", begin, 990_000, pid=pid)
        export.range("forward", begin + 10_000, 400_000, pid=pid, by_id="textId" in _columns(export))
        for index in range(4):
            launched = begin + 20_000 + 40_000 * index
            export.kernel(
                start=launched + 20_000,
                duration=10_000 + 1000 * index,
                pid=pid,
                device=device,
                correlation=step * 10 + index + 1,
                launched=launched,
            )
        nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
        export.kernel(nccl, start=begin + 500_000, duration=100_000, pid=pid, device=device, stream=20)
        export.copy(start=begin + 700_000, duration=20_000, pid=pid, device=device)


def _columns(export: Export) -> set[str]:
    return {row[1] for row in export.connection.execute("PRAGMA table_info(NVTX_EVENTS)")}
