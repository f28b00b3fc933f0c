"""The injector stands aside for torch.profiler, and a watchdog takes CUPTI back from whoever has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.link import Link
from argus_training.hook import Observer
from argus_training.kernels_control import KernelsControl
from argus_training.recorder import Recorder
from argus_training.stopwatch import Stopwatch
from argus_training.torch_hooks import profiler as subject
from exporter.exporter_process import greeting

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Control(KernelsControl):
    """Notes what is asked of the library; `records` is what it would count."""

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[str] = []
        self.records = 100
        self.armed = True

    def pause(self) -> bool:
        self.asked.append("pause")
        return True

    def rearm(self, *, because_silent: bool = False) -> bool:
        self.asked.append("rearm silent" if because_silent else "rearm")
        return self.armed

    def statistics(self) -> dict[str, int | str]:
        return {
            "records": self.records,
            "collecting": int(self.armed or "rearm silent" not in self.asked),
        } | ({} if self.armed else {"reason": "nvrx"})


class Rig:
    def __init__(self, folder: Path) -> None:
        self.control = Control()
        recorder = Recorder(Link(folder / "none.sock", greeting(0)))
        self.observer = Observer(recorder, Stopwatch(recorder))
        self.hook = subject.ProfilerHook(self.observer, self.control)
        self.hook.attach(torch)
        self.clock_ns = 0

    def steps(self, count: int, seconds: float, records: int = 0) -> None:
        """Optimizer steps of so many seconds, with so many kernel records each."""
        for _ in range(count):
            self.clock_ns += int(seconds * 1e9)
            self.control.records += records
            for listener in self.observer.periodic:
                listener()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/argus/libargus_cupti.so")
    rig: Rig | None = None
    monkeypatch.setattr(subject, "now", lambda: rig.clock_ns if rig is not None else 0)
    rig = Rig(tmp_path)
    yield rig
    rig.hook.detach()


def test_a_window_of_the_profiler_gets_cupti(rig: Rig) -> None:
    """Pause before it, rearm after it, for each window of a schedule."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule
    ) as profile:
        for _ in range(8):
            profile.step()
    assert rig.control.asked == ["pause", "rearm"] * 2


def test_silence_while_steps_go_on_takes_cupti_back(rig: Rig) -> None:
    """After a whole period (30 s) without a record; then once a period, as long as it lasts."""
    rig.steps(29, 1.0, records=5)
    rig.steps(30, 1.0)
    assert rig.control.asked == []  # of the two periods' looks, the first saw records
    rig.steps(1, 1.0)
    assert rig.control.asked == ["rearm silent"]
    rig.steps(60, 1.0)
    assert rig.control.asked == ["rearm silent"] * 3


def test_records_keep_the_watchdog_quiet(rig: Rig) -> None:
    """However few, and however long a step takes."""
    rig.steps(100, 10.0, records=1)
    assert rig.control.asked == []


def test_a_process_without_a_record_is_left_alone(rig: Rig) -> None:
    """A rank that trains on the CPU has nothing to take back."""
    rig.control.records = 0
    rig.steps(200, 1.0)
    assert rig.control.asked == []


def test_a_process_on_a_gpu_without_a_record_is_silent(rig: Rig) -> None:
    """A CUPTI that never told anything is noticed too, where the model is known to be on a GPU."""
    rig.control.records = 0
    rig.observer.stopwatch.on_events = True
    rig.steps(60, 1.0)
    assert rig.control.asked == ["rearm silent"]


def test_who_has_cupti_for_good_is_named_once(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    """The library does not take it back from there, and is not asked again."""
    rig.control.armed = False
    rig.steps(29, 1.0, records=5)
    rig.steps(200, 1.0)
    assert rig.control.asked == ["rearm silent"]
    assert capfd.readouterr().err.count("no kernel records for 30 s of training: nvrx, given up") == 1


def test_one_long_step_is_no_silence(rig: Rig) -> None:
    """A checkpoint of minutes runs no kernel."""
    rig.steps(31, 1.0, records=5)
    rig.steps(1, 600.0)
    assert rig.control.asked == []


def test_a_window_that_was_left_without_its_end_is_noticed(rig: Rig) -> None:
    """The profiler is gone, the pause would last for ever."""
    rig.hook._window_begins()
    rig.steps(31, 1.0)
    assert rig.control.asked == ["pause", "rearm"]


def test_nothing_is_wrapped_where_nothing_was_injected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch stays as it is, a step costs nothing."""
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    before = torch.autograd.profiler.profile._prepare_trace
    rig = Rig(tmp_path)
    assert torch.autograd.profiler.profile._prepare_trace is before
    assert rig.observer.periodic == []


def test_detaching_restores_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/argus/libargus_cupti.so")
    before = torch.autograd.profiler.profile._prepare_trace
    rig = Rig(tmp_path)
    assert torch.autograd.profiler.profile._prepare_trace is not before
    rig.hook.detach()
    assert torch.autograd.profiler.profile._prepare_trace is before
    assert rig.observer.periodic == []
