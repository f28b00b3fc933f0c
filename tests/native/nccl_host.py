"""Runs the program of native/nccl/testing, which calls libargus_nccl as NCCL does; reads what it counts."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argus_core import nccl_page
from argus_core.nccl_page import Communicator, NcclPage, NcclPageReader, Operation, Peer
from native.builds import Build

VERSIONS = range(1, 8)
NCCL = {1: 22304, 2: 22501, 3: 22602, 4: 22707, 5: 22809, 6: 23007, 7: 23203}
"""An NCCL that asks for each version of the interface."""


@dataclass(frozen=True)
class Counted:
    """One finished run: the program's report, the memory at its end, its stderr."""

    report: dict[str, Any]
    page: NcclPage
    said: str

    def communicator(self, hash_: int = 0x1000) -> Communicator:
        (one,) = [one for one in self.page.communicators if one.hash == hash_]
        return one


def operation(communicator: Communicator, function: str) -> Operation:
    (one,) = [one for one in communicator.operations if one.function == function]
    return one


def peer(communicator: Communicator, rank: int) -> Peer:
    (one,) = [one for one in communicator.peers if one.rank == rank]
    return one


def environment(build: Build, folder: Path, version: int, **variables: str | int) -> dict[str, str]:
    defaults = {
        "ARGUS_NCCL": "1",
        "FAKE_NCCL_VERSION": str(NCCL[version]),
        "FAKE_PAGE_DUMP": str(folder / "page"),
    }
    chosen = {name: str(value) for name, value in variables.items()}
    return build.environment() | defaults | chosen


def read_page(raw: bytes) -> NcclPage:
    descriptor = nccl_page.make()
    os.pwrite(descriptor, raw, 0)
    reader = NcclPageReader(descriptor)
    try:
        return reader.read()
    finally:
        reader.close()


def call(
    build: Build,
    folder: Path,
    version: int,
    *actions: str,
    library: Path | None = None,
    **variables: str | int,
) -> Counted:
    """Run to the end. `library`: the plugin, ours by default."""
    dump = folder / "page"
    dump.unlink(missing_ok=True)
    done = subprocess.run(
        [str(build.nccl_app), str(version), str(library or build.nccl), *actions],
        env=environment(build, folder, version, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr}"
    raw = dump.read_bytes() if dump.exists() else bytes(nccl_page.SIZE)
    return Counted(json.loads(done.stdout.strip().splitlines()[-1]), read_page(raw), done.stderr)
