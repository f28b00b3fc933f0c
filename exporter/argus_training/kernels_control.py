"""Controls of libargus_cupti in this process, by ctypes. Interface: native/injector/control.h.

Nothing here raises, and nothing here loads the library: it is there if CUDA has injected it, or not at all.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

from argus_core.injection import SLOT

_INTERFACE: Final = 1
_OK: Final = 0
_COUNTERS: Final = (
    "records",
    "sent",
    "dropped_socket",
    "dropped_cupti",
    "dropped_buffers",
    "dropped_invalid",
    "foreign_buffers",
    "replaced_buffers",
    "pauses",
    "rearms",
    "silent_rearms",
    "clock_changes",
    "connects",
    "names",
    "cpu_ns",
    "free_buffers",
)


class _Statistics(ctypes.Structure):
    """`ArgusCuptiStatistics`."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _COUNTERS),
        ("cupti_version", ctypes.c_uint32),
        ("collecting", ctypes.c_uint32),
        ("up", ctypes.c_uint32),
        ("unlisted", ctypes.c_uint32),
        ("reason", ctypes.c_char * 32),
    )


class KernelsControl:
    """The loaded library.

    Args:
        path: of the library; default: what CUDA_INJECTION64_PATH names.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path if path is not None else os.environ.get(SLOT, "")
        self._library: ctypes.CDLL | None = None

    def loaded(self) -> bool:
        """Whether CUDA has loaded the library. Cheap once it has."""
        return self._loaded() is not None

    def adopt(self, rank: int, local_rank: int, world_size: int, job: str) -> bool:
        """Say who this process is, where its environment does not. -1: unknown. False: nobody waits for it.

        CUPTI comes up in this call, in some ms or more; where the environment has the rank, in cuInit.
        """
        return self._call("argus_cupti_adopt", rank, local_rank, world_size, os.fsencode(job))

    def pause(self) -> bool:
        """Stand aside for another user of CUPTI. False: there was nothing to pause."""
        return self._call("argus_cupti_pause")

    def rearm(self, *, because_silent: bool = False) -> bool:
        """Take CUPTI's callbacks back. `because_silent`: the watchdog asks."""
        return self._call("argus_cupti_rearm", int(because_silent))

    def flush(self) -> bool:
        """Have complete records fetched and sent soon."""
        return self._call("argus_cupti_flush")

    def statistics(self) -> dict[str, int | str]:
        """Counters of control.h by name; empty where this process is not observed."""
        filled = _Statistics()
        if not self._call("argus_cupti_statistics", ctypes.byref(filled), ctypes.sizeof(filled)):
            return {}
        values: dict[str, int | str] = {
            name: getattr(filled, name)
            for name in (*_COUNTERS, "cupti_version", "collecting", "up", "unlisted")
        }
        values["reason"] = filled.reason.decode("ascii", "replace")
        return values

    def _loaded(self) -> ctypes.CDLL | None:
        if self._library is None and self._path:
            try:
                # RTLD_NOLOAD: only what is there already.
                library = ctypes.CDLL(self._path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
                if library.argus_cupti_interface() == _INTERFACE:
                    library.argus_cupti_statistics.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
                    self._library = library
                else:
                    self._path = ""
            except (OSError, AttributeError):
                return None
        return self._library

    def _call(self, name: str, *arguments: Any) -> bool:
        library = self._loaded()
        if library is None:
            return False
        try:
            function: Callable[..., int] = getattr(library, name)
            return function(*arguments) == _OK
        except Exception:
            return False
