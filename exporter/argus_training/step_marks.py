"""Marks the ends of steps on a stream, where CUPTI sees them: memory sets of 4 bytes whose value is the step.

CUPTI and CUDA events have clocks of their own. Right behind the mark an event is recorded: where the mark
lies on the one clock, the event lies on the other, and all spans of the next step are measured from it.

The 4 bytes are the driver's, not torch's: what a program reads of its allocator is as without us, and an
allocator that is full gives nothing back for our sake.
"""

from __future__ import annotations

import ctypes
from typing import Final

from argus_core import wire

_OK: Final = 0


class StepMarks:
    """Memory sets by the CUDA driver, which the process has loaded.

    Raises:
        OSError, AttributeError: there is no CUDA driver.
    """

    def __init__(self) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        self._allocate, self._set = driver.cuMemAlloc_v2, driver.cuMemsetD32Async
        self._allocate.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
        self._set.argtypes = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p)
        self._memory: dict[int, int] = {}

    def put(self, step: int, device: int, stream: int) -> bool:
        """Mark the end of a step on a stream (a handle of the driver's). False: the driver refused.

        Args:
            device: this thread's current one.
        """
        address = self._memory.get(device)
        if address is None:
            new = ctypes.c_uint64()
            if self._allocate(ctypes.byref(new), wire.STEP_MARK_BYTES) != _OK:
                return False
            address = self._memory[device] = new.value
        value = wire.STEP_MARK_VALUE | wire.step_mark(step)
        return int(self._set(address, value, 1, stream)) == _OK
