"""A small text file that readers find whole: as it was, or as it is.

Root may write where others may, as into a socket's folder: what they have put there is never followed.
"""

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
        new_text(temporary, text)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def new_text(path: Path, text: str) -> None:
    """Write a file that is new; what lies in its place is taken away, be it a link to a file of ours.

    Raises:
        OSError: it cannot be written, or somebody has just put something there again.
    """
    path.unlink(missing_ok=True)
    with open(path, "x", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)) as file:
        file.write(text)
