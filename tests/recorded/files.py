"""Files that ARGUS recorded itself on a GPU: what they are of is in the README.md beside them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

_H100 = Path(__file__).parent / "h100"


def recorded(name: str) -> bytes:
    """What a file was before it was compressed."""
    path = _H100 / name
    return path.read_bytes() if path.exists() else lzma.decompress(path.with_name(f"{name}.xz").read_bytes())


def nccl_events(rank: int) -> list[dict[str, Any]]:
    """What NCCL called, in order, as native/nccl/testing/event_recorder.cpp writes it."""
    return [json.loads(line) for line in recorded(f"nccl-events.{rank}.jsonl").splitlines()]
