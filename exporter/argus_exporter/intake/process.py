"""What the exporter sets of its own process, once: open files, turns of its threads, memory."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
from typing import Final

_TURN_S: Final = 0.0005
"""Of Python's 5 ms a scrape that meets the worker thread, which clusters a window, waits several."""

_KEPT_BACK: Final = 256
"""Open files that no rank may take: 64 connections of scrapers and as many that just come, log, store."""


def prepare() -> None:
    """Before anything is started. What the system refuses or lacks is left as it is."""
    _take_all_files()
    sys.setswitchinterval(_TURN_S)


def settle() -> None:
    """When all is started: full collections, which took 18 ms of some scrape, pass over what is there."""
    gc.collect()
    gc.freeze()


def files_for_ranks() -> int:
    """How many files their connections, pages and segments may have open together."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - min(_KEPT_BACK, limit // 2)


def _take_all_files() -> None:
    """Raise the limit of open files as far as we may: a rank takes up to four of the usual 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
