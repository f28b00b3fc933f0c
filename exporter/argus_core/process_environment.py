"""The environment of a process whose other threads may read it: setenv moves what their getenv returns.

The interpreter's start may load this module, so it imports nothing that costs time.
"""

# ruff: noqa: PTH208

from __future__ import annotations

import os

THREADS = "other threads run already, and setenv would move what they read"


def alone() -> bool:
    """Whether this thread is the only one of its process, so that the environment may be changed."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False
