"""The environment of a process whose other threads may read it: setenv moves what their getenv returns.

So it is changed while one thread runs, which is at the interpreter's start: when torch has been imported
there are others (numpy's OpenBLAS starts some). The start loads this module: it imports nothing that costs
time.
"""

# ruff: noqa: PTH208

from __future__ import annotations

import os

THREADS = "other threads run already, and setenv would move what they read"
PRODUCER = "ARGUS_PRODUCER_PID"
"""Whose value is the process that reports for the rank that children inherit."""
_NOBODY = "0" * 10
"""As long as any process's number: what replaces it needs no other place."""


def alone() -> bool:
    """Whether this thread is the only one of its process, so that the environment may be changed."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def reserve_producer() -> None:
    """While alone: make room for `name_producer`. What is there already is of the parent, and means it."""
    if len(os.environ.get(PRODUCER, "")) != len(_NOBODY):
        os.environ[PRODUCER] = _NOBODY


def name_producer() -> bool:
    """Have children inherit that this process reports for its rank; False where it cannot be told them.

    With other threads it is written over what `reserve_producer` left: nothing moves, and nobody else in
    this process reads it.
    """
    text = str(os.getpid()).zfill(len(_NOBODY))
    if alone():
        os.environ[PRODUCER] = text
        return True
    try:
        return _overwrite(text)
    except Exception:  # no C library to ask, or an os.environ that is somebody's own
        return False


def _overwrite(text: str) -> bool:
    import ctypes

    getenv = ctypes.PyDLL(
        None
    ).getenv  # with the GIL held: no Python thread changes the environment meanwhile
    getenv.restype = ctypes.c_void_p
    at = getenv(PRODUCER.encode())
    if not at or len(ctypes.string_at(at)) != len(text):
        return False
    ctypes.memmove(at, text.encode(), len(text))
    # Python's own copy, which children get that are started with `env=os.environ`; by `os.environ` it would
    # be setenv again.
    os.environ._data[os.environ.encodekey(PRODUCER)] = os.environ.encodevalue(text)  # type: ignore[attr-defined]
    return True
