"""What is asked of the CUDA driver at the end of a step; a stand-in for it, as there is no GPU here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from argus_core import wire
from argus_training.step_marks import StepMarks

Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
Set = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p)
REFUSED = 2


class Driver:
    """Hands out memory until it is refused, and keeps what was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.allocated: list[int] = []
        self.sets: list[tuple[int, int, int, int | None]] = []
        functions: SimpleNamespace = SimpleNamespace(
            cuMemAlloc_v2=Allocate(self._allocate), cuMemsetD32Async=Set(self._set)
        )
        monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": functions}[name])

    def _allocate(self, address: Callable[[], object], size: int) -> int:
        if self.full:
            return REFUSED
        self.allocated.append(size)
        address[0] = 0x7000 + len(self.allocated)  # type: ignore[index]
        return 0

    def _set(self, address: int, value: int, count: int, stream: int | None) -> int:
        self.sets.append((address, value, count, stream))
        return 0


def test_each_step_sets_four_bytes_of_its_device_to_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stream it is given; memory is asked for once a device. The value is the mark of that step."""
    driver = Driver(monkeypatch)
    marks = StepMarks()
    assert [marks.put(step, device, 77) for step, device in ((5, 0), (6, 0), (6, 1))] == [True] * 3
    assert driver.allocated == [4, 4]
    assert [(address, count, stream) for address, _, count, stream in driver.sets] == [
        (0x7001, 1, 77), (0x7001, 1, 77), (0x7002, 1, 77),
    ]  # fmt: skip
    told = [wire.mark_of_set(value, 4) for _, value, _, _ in driver.sets]
    assert told == [wire.step_mark(5), wire.step_mark(6), wire.step_mark(6)]


def test_a_full_gpu_has_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    driver.full = True
    assert not StepMarks().put(5, 0, 77)
    assert driver.sets == []
