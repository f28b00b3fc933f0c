"""Reads what the injector records with ARGUS_RECORD, in Python. Layout: native/injector/recorder.hpp."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("<8sIIQQ")
_BLOCK = struct.Struct("<II")
_NAME = struct.Struct("<QI")
_KERNEL_KINDS = (3, 10)
_NAMES, _BUFFER = 1, 2


@dataclass
class Recording:
    """Raw records as CUPTI wrote them; `names` are the linker names by recorded pointer."""

    cupti_version: int
    unix_ns: int
    ticks: int
    names: dict[int, str] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)

    def kernels(self) -> list[tuple[str, int]]:
        """Linker name and duration in ticks of every kernel, in order."""
        found = []
        for record in self.records:
            if int.from_bytes(record[:4], "little") in _KERNEL_KINDS:
                start, end = struct.unpack_from("<QQ", record, 16)
                (pointer,) = struct.unpack_from("<Q", record, 104)
                found.append((self.names[pointer], end - start))
        return found


def read(path: Path) -> Recording:
    """Raises ValueError where the file is no recording."""
    data = path.read_bytes()
    magic, layout, version, unix_ns, ticks = _HEAD.unpack_from(data)
    if magic != b"ARGUSREC" or layout != 1:
        raise ValueError(f"{path} is no recording of format 1")
    recording = Recording(version, unix_ns, ticks)
    at = _HEAD.size
    while at < len(data):
        type_, size = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        block = data[at : at + size]
        if len(block) != size:
            raise ValueError(f"{path} is cut in the block at byte {at}")
        at += size
        if type_ == _NAMES:
            _read_names(block, recording)
        elif type_ == _BUFFER:
            (count,) = struct.unpack_from("<I", block)
            offsets = struct.unpack_from(f"<{count}I", block, 4)
            raw = block[4 + 4 * count :]
            ends = (*offsets[1:], len(raw))
            recording.records += [raw[begin:end] for begin, end in zip(offsets, ends, strict=True)]
    return recording


def _read_names(block: bytes, recording: Recording) -> None:
    at = 0
    while at < len(block):
        pointer, length = _NAME.unpack_from(block, at)
        at += _NAME.size
        recording.names[pointer] = block[at : at + length].decode()
        at += length
