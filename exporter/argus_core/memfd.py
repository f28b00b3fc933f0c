"""Memory that one process hands to another as a descriptor."""

from __future__ import annotations

import fcntl
import os
import stat

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def unfit(descriptor: int, size: int) -> str:
    """Why this is no memory of so many bytes that stays as large as it is; empty: it is such memory."""
    try:
        status = os.fstat(descriptor)
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except (OSError, OverflowError) as error:
        return f"is no memfd: {error}"
    if not stat.S_ISREG(status.st_mode) or status.st_size != size or seals & SEALS != SEALS:
        return f"has {status.st_size} bytes and seals {seals:#x}"
    return ""
