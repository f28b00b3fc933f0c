"""Ranks as processes of their own, for tests of what looks at them from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VICTIM = Path(__file__).with_name("victim.py")


@contextlib.contextmanager
def victim(socket: Path, rank: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A busy rank that has said HELLO; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, str(VICTIM), str(socket), str(rank), *more],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def children(name: str = "") -> set[int]:
    """Our children, zombies included; with a name, those of that name."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                head, _, tail = (entry / "stat").read_text().rpartition(")")
                if name in ("", head.partition("(")[2]) and int(tail.split()[1]) == os.getpid():
                    found.add(int(entry.name))
    return found
