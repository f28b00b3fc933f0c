"""A small text file that readers find whole: as it was, or as it is."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file beside `path` and put it in its place.

    Args:
        mode: permissions; None: as the process makes files.

    Raises:
        OSError: nothing was changed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
