"""Whose socket and whose settings a training process may use. It imports nothing that costs time."""

# At the start of an interpreter pathlib and contextlib would cost more than what is asked here.
# ruff: noqa: PTH109, PTH116, PTH118, PTH120

from __future__ import annotations

import os
import stat


def trusted(uid: int, path: str) -> bool:
    """Whether what user `uid` put at `path` may be used by this process.

    Ourselves and root may. Another user, such as a service's, may where only trusted hands can have put
    something: those of the owner of a folder that nobody else may write to, and so upwards to one that is
    ours or root's (/tmp/argus-1000 may be made by who knows our uid).
    """
    ours = (0, os.getuid())
    if uid in ours:
        return True
    try:
        folder = os.path.dirname(os.path.join(os.getcwd(), path))
        while not os.stat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            if os.lstat(folder).st_uid in ours:  # who made a link, not who owns what it leads to
                return True
            above = os.path.dirname(folder)
            if above == folder:
                break
            folder = above
    except OSError:
        pass
    return False
