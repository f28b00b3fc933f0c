"""CUDA events from a bounded pool, on a fake GPU that runs behind the host."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_training import attach, settings, spans
from argus_training.graph_captures import GraphCaptures
from argus_training.identity import Layout, Place, hello
from argus_training.recorder import Recorder
from argus_training.spans import LayerSample, Packer, PhaseTable
from argus_training.step_log import GPU_SPAN
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
    assert stopwatch._pools[0].made <= 64


def test_exhausted_pool_drops_and_counts(recorder: Recorder) -> None:
    """A GPU that hangs: the pool stays at its size, spans are dropped and counted, training is not held."""
    gpu = Gpu(lag=float("inf"))
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 4, lambda: False)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    for _ in range(10):
        stopwatch.span(task, stopwatch.begin(task))
    assert stopwatch._pools[0].made == 4
    assert recorder.outbox.dropped == 8  # two spans hold four events
    assert stopwatch.poll() == 0


def test_where_the_gpu_is_is_the_innermost_span_that_it_has_begun(recorder: Recorder) -> None:
    """A collective within a forward, and the GPU 50 ms behind; asked by a thread such as our sender's."""
    gpu = Gpu()
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(gpu.event, 64, lambda: gpu.capturing, may_ask=lambda _: True)
    forward = stopwatch.task("forward", wire.Kind.COMPUTE)
    reduce = stopwatch.task("all_reduce", wire.Kind.COMM)
    begins = [stopwatch.begin(forward)]
    gpu.host_ms += 2.0
    begins.append(stopwatch.begin(reduce))
    gpu.host_ms += 1.0
    stopwatch.span(reduce, begins[1])
    gpu.host_ms += 4.0
    stopwatch.span(forward, begins[0])
    stopwatch.poll()
    seen = []
    for gpu.host_ms in (49.0, 51.0, 52.5, 55.0, 58.0):
        with ThreadPoolExecutor(1) as another:
            seen.append(another.submit(stopwatch.gpu_is_in).result())
    named = [one and next(b for b in begins if b.host_ns == one[1]) for one in seen]  # type: ignore[union-attr]
    assert named == [None, begins[0], begins[1], begins[0], None]
    assert stopwatch.gpu_is_in() is None, "the thread that trains asks nobody"


def test_nobody_asks_during_a_capture_or_where_it_may_not(recorder: Recorder) -> None:
    gpu = Gpu()
    stopwatch = Stopwatch(recorder)
    allowed: list[int] = []
    stopwatch.use_events(
        gpu.event, 64, lambda: gpu.capturing, may_ask=lambda device: bool(allowed.append(device))
    )
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    stopwatch.span(task, stopwatch.begin(task))
    gpu.host_ms = 50.0
    assert stopwatch.gpu_is_in() is None
    assert allowed == [0]
    gpu.capturing = True
    assert stopwatch.gpu_is_in() is None
    assert allowed == [0]


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


class DeviceEvent(Event):
    """Belongs to the device on which it is recorded first, as CUDA's do."""

    def __init__(self, gpus: dict[int, Gpu], current: list[int]) -> None:
        super().__init__(gpus[0])
        self.gpus, self.current, self.device = gpus, current, -1

    def record(self) -> None:
        if self.device not in (-1, self.current[0]):
            raise RuntimeError(f"Event device {self.device} does not match stream's device {self.current[0]}")
        self.device = self.current[0]
        self.gpu = self.gpus[self.device]
        super().record()

    def elapsed_time(self, end_event: Event) -> float:
        assert isinstance(end_event, DeviceEvent) and end_event.device == self.device, "no clock spans both"
        return super().elapsed_time(end_event)


def test_several_gpus_have_events_of_their_own(recorder: Recorder) -> None:
    """One process drives three GPUs in turns; a span that goes over to another GPU is dropped and counted."""
    gpus, current = {device: Gpu(lag=1.0 + device) for device in range(3)}, [0]
    stopwatch = Stopwatch(recorder)
    stopwatch.use_events(
        lambda: DeviceEvent(gpus, current), 4, lambda: False, lambda _: 0, lambda: current[0]
    )
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    for step in range(30):
        current[0] = step % 3
        begin = stopwatch.begin(task)
        for device, gpu in gpus.items():
            gpu.host_ms += 2.0 + device
        stopwatch.span(task, begin)
        stopwatch.poll()
    for gpu in gpus.values():
        gpu.host_ms += 10
    stopwatch.poll()
    measured = list(recorder.outbox.log.take(99))
    assert sorted(duration for _, _, _, duration, _, _ in measured) == [
        *[2_000_000] * 10, *[3_000_000] * 10, *[4_000_000] * 10
    ]  # fmt: skip
    assert len({clock for *_, clock in measured}) == 3, "the default streams of three GPUs are three clocks"
    begin = stopwatch.begin(task)
    current[0] = (current[0] + 1) % 3
    stopwatch.span(task, begin)
    assert (stopwatch.poll(), recorder.outbox.dropped) == (0, 1)
    assert sum(len(pool.free) for pool in stopwatch._pools.values()) == sum(
        pool.made for pool in stopwatch._pools.values()
    ), "no event is lost"


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
    stopwatch.use_events(gpu.event, attach.EVENT_POOL, lambda: False)
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
        made.append(stopwatch._pools[0].made)
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


def test_a_capture_that_began_before_a_model_was_found_is_known(recorder: Recorder) -> None:
    """Captures are counted from the import of torch on: on another stream, only the count knows of them."""

    class CUDAGraph:
        def capture_begin(self) -> None: ...
        def capture_end(self) -> None: ...

    gpu = Gpu(lag=0.0)
    cuda = SimpleNamespace(
        CUDAGraph=CUDAGraph,
        Event=lambda **_: gpu.event(),
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
    )
    driver = SimpleNamespace(_cuda_getCurrentRawStream=lambda _: 0, _cuda_getDevice=lambda: 0)
    torch = SimpleNamespace(cuda=cuda, _C=driver)
    captures = GraphCaptures(CUDAGraph)
    graph = CUDAGraph()
    graph.capture_begin()
    stopwatch = Stopwatch(recorder)
    attach._use_events(torch, settings.read({})[0], captures, stopwatch)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    assert stopwatch.begin(task) is None
    assert stopwatch.poll() == 0
    graph.capture_end()
    stopwatch.span(task, stopwatch.begin(task))
    assert stopwatch.poll() == 1


def test_spans_tell_where_they_lie_after_the_mark_of_the_step_before(recorder: Recorder) -> None:
    """Each step is marked on its stream as it ends; what is measured from the mark is the GPU's time."""
    gpu = Gpu()
    stopwatch = Stopwatch(recorder)
    marked = []

    def put_mark(step: int, device: int, stream: int) -> bool:
        marked.append((step, device, stream))
        return True

    stopwatch.use_events(gpu.event, 64, lambda: gpu.capturing, put_mark=put_mark)
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    for _ in range(4):
        gpu.host_ms += 2.0
        begin = stopwatch.begin(task)
        gpu.host_ms += 3.0
        stopwatch.span(task, begin)
        gpu.host_ms += 60.0
        stopwatch.step_ended()
        recorder.iteration(0, 1)
    assert marked == [(step, 0, 0) for step in (1, 2, 3, 4)]
    told = [entry[1:] for entry in recorder.outbox.log.take(100) if entry[0] == GPU_SPAN]
    # The first step has no mark before it.
    assert [(phase.name, *numbers) for phase, *numbers in told] == [
        ("forward", step, 2_000_000, 3_000_000) for step in (2, 3, 4)
    ]


def test_without_kernels_nothing_is_marked(recorder: Recorder) -> None:
    """Nor where the driver refuses, more than once, nor while a graph is captured."""
    gpu = Gpu(lag=0.0)
    stopwatch = Stopwatch(recorder)
    asked = []

    def refuses(step: int, _device: int, _stream: int) -> bool:
        asked.append(step)
        return False

    stopwatch.use_events(gpu.event, 4, lambda: gpu.capturing, put_mark=refuses)
    gpu.capturing = True
    stopwatch.step_ended()
    assert asked == []
    gpu.capturing = False
    task = stopwatch.task("forward", wire.Kind.COMPUTE)
    for _ in range(3):
        stopwatch.span(task, stopwatch.begin(task))
        stopwatch.step_ended()
        recorder.iteration(0, 1)
    assert asked == [1]
    assert recorder.host.limit == "step_marks"
    assert not [entry for entry in recorder.outbox.log.take(100) if entry[0] == GPU_SPAN]


def test_a_located_span_goes_onto_the_wire(recorder: Recorder) -> None:
    """Beside the span itself, in a record of its own; a layer's sample is no span."""
    sent: list[tuple[int, bytes]] = []
    link = SimpleNamespace(name_id=lambda _: 5, add_packed=lambda type_, packed: sent.append((type_, packed)))
    phase = recorder.phase("forward", wire.Kind.COMPUTE, wire.Source.EVENT)
    assert phase is not None
    recorder.located(phase, 7, -1_000, 2_000)
    recorder.located(LayerSample("mlp", 1, 0), 7, 0, 1)
    packer = Packer(link, recorder.outbox.log, PhaseTable(None))  # type: ignore[arg-type]
    assert packer.take(10, 0) == ([], 0)
    record = wire.GpuSpan(7, -1_000, 2_000, 5, wire.Kind.COMPUTE)
    assert sent == [(wire.MessageType.GPU_SPANS, record.pack())]
