"""The recorder: what reaches the wire, and what happens when nobody listens, after a fork, in a flood."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_training import spans
from argus_training.identity import Layout, Place, hello
from argus_training.recorder import Recorder
from argus_training.step_log import ITERATION, NO_CODE

from .reader import Reader, until


def link_to(path: Path, **options: Any) -> Link:
    place = Place("test", rank=3, local_rank=0, world_size=4)
    return Link(path, lambda: hello(place, "job", Layout()), **options)


def recorder_to(path: Path, **options: int) -> Recorder:
    return Recorder(link_to(path), **options)  # type: ignore[arg-type]


def test_records_arrive_with_names_steps_and_totals(reader: Reader) -> None:
    """Two iterations: spans carry phase, group and step; totals are running sums; BYE carries the status."""
    recorder = recorder_to(reader.path)
    forward = recorder.phase("forward", wire.Kind.COMPUTE)
    reduce = recorder.phase("all_reduce", wire.Kind.COMM, group="world")
    start = spans.now()
    for _ in range(2):
        recorder.span(forward, start, start + 1_000_000)
        recorder.span(reduce, start, start + 2_000_000)
        recorder.iteration(start, start + 500_000_000)
    recorder.work("tokens", 10)
    recorder.work("tokens", 5)
    recorder.iteration(start, start + 250_000_000)
    recorder.close(0)
    said = reader.ended(3)
    assert said.exit_status == 0
    assert [(phase, group, span.step) for phase, group, span in said.spans] == [
        ("forward", "", 1),
        ("all_reduce", "world", 1),
        ("forward", "", 2),
        ("all_reduce", "world", 2),
    ]
    last = said.iterations[-1]
    assert (last.step, last.total_count, last.total_seconds) == (3, 3, 1.25)
    assert last.total_squared == pytest.approx(0.25 + 0.25 + 0.0625)
    assert said.work == {"tokens": 15.0}
    assert said.hellos[0].training_job.startswith(b"job\0")


def test_activity_is_warmup_then_train(reader: Reader) -> None:
    """The first iterations are warm-up: no verdict from them."""
    recorder = recorder_to(reader.path, warmup_iterations=2)
    for _ in range(4):
        now = spans.now()
        recorder.iteration(now, now)
        recorder.outbox.flush()
    recorder.close(0)
    said = reader.ended(3)
    # The second iteration's end ends the warm-up, and its own flush says so; the last state comes with BYE.
    assert said.activities == [wire.Activity.WARMUP, wire.Activity.TRAIN, wire.Activity.TRAIN]


def test_flood_is_bounded_and_counted(tmp_path: Path) -> None:
    """Nobody listens and no iteration ends: memory stays bounded, the loss is counted."""
    recorder = recorder_to(tmp_path / "nobody")
    phase = recorder.phase("x", wire.Kind.HOST)
    for _ in range(20_000):
        recorder.ended(phase, spans.now())
    assert len(recorder.outbox.log) <= 16_384
    assert recorder.outbox.dropped + recorder.outbox._link.dropped + len(recorder.outbox.log) >= 20_000


def test_log_of_the_step_is_sent_with_its_steps(reader: Reader) -> None:
    """Entries up to an iteration belong to it; one whose begin failed, or that has no name, is dropped."""
    recorder = recorder_to(reader.path)
    phase = recorder.phase("forward", wire.Kind.COMPUTE)
    assert phase is not None
    recorder.iteration(1, 2)
    recorder.put((phase.code, 3, 5, ITERATION, 3, 5))
    recorder.put((phase.code, 0, 5, NO_CODE, 5, 6))
    recorder.put((phase.code, 6, 9))
    recorder.close(0)
    said = reader.ended(3)
    assert [(name, span.step, span.duration_ns) for name, _, span in said.spans] == [
        ("forward", 2, 2),
        ("forward", 3, 3),
    ]
    assert [one.step for one in said.iterations] == [1, 2]
    assert recorder.outbox.dropped == 2
    assert not recorder.keeps_up, "nobody sends beside the training thread"


def test_iterations_of_a_silent_process_do_not_pile_up(reader: Reader) -> None:
    """It may not speak for a rank (yet): memory stays bounded, and the numbers of steps go on."""
    recorder = recorder_to(reader.path, flush_ms=0)
    recorder.outbox.may_speak = lambda: False
    for _ in range(20_000):
        recorder.iteration(1, 2)
    assert len(recorder.outbox.log) < 4096
    recorder.outbox.may_speak = lambda: True
    recorder.iteration(1, 2)
    recorder.close(0)
    said = reader.ended(3)
    assert said.iterations[-1].step == 20_001


def test_phase_names_are_bounded(tmp_path: Path) -> None:
    """Names made from a counter do not become series without end; their spans are dropped and counted."""
    recorder = recorder_to(tmp_path / "nobody")
    for index in range(1000):
        recorder.ended(recorder.phase(f"step-{index}", wire.Kind.HOST), spans.now())
    assert len(recorder._table._phases) == 200
    assert recorder.outbox.dropped == 800


def test_hook_failure_makes_the_channel_down_with_its_reason(reader: Reader) -> None:
    """A visible state with a bounded reason."""
    recorder = recorder_to(reader.path)
    recorder.host.degraded("hook_forward")
    recorder.ended(recorder.phase("x", wire.Kind.HOST), spans.now())
    recorder.close(0)
    said = reader.ended(3)
    state, reason = said.channels[0]
    assert (state.channel, state.up, reason) == (wire.Channel.PHASES, 0, "hook_forward")


def test_a_process_without_descriptors_connects_later(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without an exporter: no error, and another try after a while."""
    clock = [0.0]
    link = link_to(reader.path, clock=lambda: clock[0])
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", _no_descriptor)
        link.flush()
    assert not link.connects
    clock[0] += 60
    link.flush()
    assert link.connects == 1
    link.close(0)


def _no_descriptor(*_: object) -> None:
    raise OSError(errno.EMFILE, "too many open files")


def test_fork_leaves_the_parent_alone(reader: Reader) -> None:
    """A forked child (a loader's worker) sends nothing, and does not hide the parent's end."""
    recorder = recorder_to(reader.path)
    phase = recorder.phase("x", wire.Kind.HOST)
    recorder.ended(phase, spans.now())
    ready, parent_end = os.pipe()
    child_ready, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        recorder.forked()
        recorder.ended(phase, spans.now())
        recorder.close(7)
        os.write(child_end, b".")
        os.read(ready, 1)
        os._exit(0)
    assert os.read(child_ready, 1) == b"."
    recorder.close(0)
    said = reader.ended(3)
    os.write(parent_end, b".")
    os.waitpid(child, 0)
    assert said.exit_status == 0
    assert len(said.spans) == 1


def test_silent_process_never_speaks(reader: Reader) -> None:
    """A process that records nothing (a script that only imports torch) never says HELLO for the rank."""
    recorder_to(reader.path).close(0)
    recorder = recorder_to(reader.path)
    recorder.ended(recorder.phase("x", wire.Kind.HOST), spans.now())
    recorder.close(0)
    until(lambda: reader.ranks[3].exit_status is not None, "BYE")
    assert len(reader.ranks[3].hellos) == 1
