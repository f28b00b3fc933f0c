"""CUDA events from a bounded pool, on a fake GPU that runs behind the host."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_training import settings, spans
from argus_training.identity import Layout, Place, hello
from argus_training.recorder import Recorder
from argus_training.stopwatch import Stopwatch


class Gpu:
    """Work takes GPU time; the host is `lag` ms ahead."""

    def __init__(self, lag: float = 50.0) -> None:
        self.lag = lag
        self.host_ms = 0.0
        self.capturing = False
        self.synchronised = 0

    def event(self) -> Event:
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.passed_at = float("inf")

    def record(self) -> None:
        assert not self.gpu.capturing, "an event in a capture becomes a node of the graph"
        self.passed_at = self.gpu.host_ms + self.gpu.lag

    def query(self) -> bool:
        assert not self.gpu.capturing, "a query breaks the capture"
        return self.gpu.host_ms >= self.passed_at

    def elapsed_time(self, end_event: Event) -> float:
        assert end_event.query(), "elapsed_time of an event that has not passed would wait"
        return end_event.passed_at - self.passed_at

    def synchronize(self) -> None:
        self.gpu.synchronised += 1


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    link = Link(tmp_path / "nobody", lambda: hello(Place("test", 0, 0, 1), "test", Layout()))
    recorder = Recorder(link)
    recorder.outbox.silent_until = spans.now() + 10**15  # keep everything pending
    return recorder


def durations_ms(recorder: Recorder) -> dict[str, list[float]]:
    result: dict[str, list[float]] = {}
    for phase, _, _, duration_ns, _, _ in recorder.outbox.log.take(10_000):
        assert phase.source == wire.Source.EVENT
        result.setdefault(phase.name, []).append(duration_ns / 1e6)
    return result


def test_spans_are_gpu_time_and_none_is_lost(recorder: Recorder) -> None:
    """1,000 steps on a GPU 50 ms behind: durations exact, the pool reused, nothing ever waited for."""
    gpu = Gpu()
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 64, lambda: gpu.capturing)
    tasks = {name: stopwatch.task(name, wire.Kind.COMPUTE) for name in ("forward", "backward", "optimizer")}
    for _ in range(1000):
        for name, milliseconds in (("forward", 3.0), ("backward", 6.0), ("optimizer", 1.0)):
            begin = stopwatch.begin(tasks[name])
            gpu.host_ms += milliseconds
            stopwatch.span(tasks[name], begin)
        stopwatch.poll()
        if len(recorder.outbox.log) > 400:  # stands for a flush
            measured = durations_ms(recorder)
            assert measured["forward"] == pytest.approx([3.0] * len(measured["forward"]))
            assert measured["backward"] == pytest.approx([6.0] * len(measured["backward"]))
    assert recorder.outbox.dropped == 0
    assert gpu.synchronised == 0
    assert stopwatch._pool is not None
    assert stopwatch._pool.made <= 64


def test_exhausted_pool_drops_and_counts(recorder: Recorder) -> None:
    """A GPU that hangs: the pool stays at its size, spans are dropped and counted, training is not held."""
    gpu = Gpu(lag=float("inf"))
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 4, lambda: False)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    for _ in range(10):
        stopwatch.span(task, stopwatch.begin(task))
    assert stopwatch._pool is not None
    assert stopwatch._pool.made == 4
    assert recorder.outbox.dropped == 8  # two spans hold four events
    assert stopwatch.poll() == 0


def test_capture_is_left_alone(recorder: Recorder) -> None:
    """While a graph is captured no event is recorded or asked; a span that a capture cuts is discarded."""
    gpu = Gpu(lag=0.0)
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 4, lambda: gpu.capturing)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    begin = stopwatch.begin(task)
    gpu.capturing = True
    stopwatch.span(task, begin)
    stopwatch.span(task, stopwatch.begin(task))
    assert stopwatch.poll() == 0
    gpu.capturing = False
    for _ in range(4):  # the discarded event is back in the pool
        stopwatch.span(task, stopwatch.begin(task))
        stopwatch.poll()
    assert len(recorder.outbox.log) == 4


def test_span_keeps_the_step_it_began_in(recorder: Recorder) -> None:
    """Events are read an iteration later; the span belongs to its own."""
    gpu = Gpu(lag=5.0)
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 4, lambda: False)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    stopwatch.span(task, stopwatch.begin(task))
    recorder.step = 7
    gpu.host_ms += 10
    stopwatch.poll()
    assert [step for *_, step, _ in recorder.outbox.log.take(9)] == [1]


def test_span_begun_on_the_host_clock_ends_there(recorder: Recorder) -> None:
    """The model is found to be on a GPU in the middle of a span."""
    gpu = Gpu()
    stopwatch = Stopwatch(recorder)
    task = stopwatch.task("optimizer", wire.Kind.COMPUTE)
    begin = stopwatch.begin(task)
    stopwatch.use_events(gpu.event, 4, lambda: False)
    stopwatch.span(task, begin)
    ((phase, *_),) = recorder.outbox.log.take(9)
    assert phase.source == wire.Source.HOST


@pytest.mark.parametrize("behind_ms", [5.0, 2000.0], ids=["GPU keeps up", "host a step ahead"])
def test_many_micro_batches_drop_nothing(recorder: Recorder, behind_ms: float) -> None:
    """64 micro-batches of five spans a step, 640 events: each span arrives, and the pool ends growing."""
    gpu = Gpu(lag=behind_ms)
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, settings.read({})[0].event_pool, lambda: False)
    names = ("forward", "pp-recv", "backward", "pp-send", "dp-allreduce")
    tasks = [stopwatch.task(name, wire.Kind.COMPUTE) for name in names]
    made, spans_read = [], 0
    for _ in range(20):
        for _ in range(64):
            for task in tasks:
                begin = stopwatch.begin(task)
                gpu.host_ms += 5.0
                stopwatch.span(task, begin)
        stopwatch.poll()
        spans_read += len(recorder.outbox.log)
        recorder.outbox.log.clear()  # stands for a flush
        assert stopwatch._pool is not None
        made.append(stopwatch._pool.made)
    assert recorder.outbox.dropped == 0
    assert made[-1] == made[5]
    gpu.host_ms += behind_ms
    while stopwatch.poll():
        spans_read += len(recorder.outbox.log)
        recorder.outbox.log.clear()
    assert spans_read == 20 * 64 * 5


def test_events_are_asked_by_the_thread_that_trains_alone(recorder: Recorder) -> None:
    """Another that finds no free event makes one or drops its span: two readers would take a span twice."""
    gpu = Gpu(lag=1.0)
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 4, lambda: False)
    stopwatch.poll()  # the end of an iteration
    task = stopwatch.task("backward", wire.Kind.COMPUTE)
    for _ in range(2):
        stopwatch.span(task, stopwatch.begin(task))
    gpu.host_ms += 1.0
    begins: list[object] = []
    thread = threading.Thread(target=lambda: begins.append(stopwatch.begin(task)))
    thread.start()
    thread.join()
    assert (begins, recorder.outbox.dropped, len(recorder.outbox.log)) == ([None], 1, 0)
    assert stopwatch.begin(task) is not None
    assert len(recorder.outbox.log) == 2
