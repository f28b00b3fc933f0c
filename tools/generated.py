"""Committed generated files: write them, or say which have drifted from their sources."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], *, check: bool) -> int:
    """Write each text to its file, or with `check` compare only. 1 when a check finds a difference."""
    drifted = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in drifted:
        if check:
            print(f"{path} is out of date: run `make generate` and commit it", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
            print(f"wrote {path}")
    return 1 if check and drifted else 0
