"""The anatomy of phases from packets on the exporter's socket to its page."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from bench.anatomy import divide_json

from argus_core import wire
from argus_core.link import Link
from argus_exporter.replay.player import Player
from argus_exporter.replay.reader import read_files
from exporter.exporter_process import Samples, config, exporter, greeting, scrape, value, wait_for

MS = 1_000_000
STEPS = 4
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PARTS = ("compute", "exposed", "copy", "idle")


def parts(samples: Samples, name: str, **labels: str) -> list[float | None]:
    return [value(samples, f"argus_{name}_gpu_seconds_total", part=part, **labels) for part in PARTS]


def say_phases(link: Link, began_ns: int) -> None:
    """Four steps of 100 ms: a forward of 60 ms with a wait of 10 ms inside it."""
    forward, wait = link.name_id("forward"), link.name_id("tp-wait")
    for step in range(1, STEPS + 1):
        end_ns = began_ns + step * 100 * MS
        link.add(wire.GpuSpan(step, 40 * MS, 10 * MS, wait, wire.Kind.COMM))
        link.add(wire.GpuSpan(step, 5 * MS, 60 * MS, forward, wire.Kind.COMPUTE))
        link.add(wire.Iteration(step, end_ns, 100 * MS, step, step / 10, step / 100))
    link.flush()


def say_kernels(link: Link, began_ns: int) -> None:
    """In each step 20 ms of compute, 25 of communication half behind it, a copy; a mark after each."""
    gemm, nccl, copy = (link.name_id(name) for name in ("gemm", NCCL, "Memcpy HtoD (Pinned -> Device)"))
    memset = link.name_id("Memset (Device)")

    def ran(at: int, for_ns: int, name: int, stream: int, operation: wire.Operation, mark: int = 0) -> None:
        link.add(wire.Kernel(began_ns + at, for_ns, -1, name, stream, 0, operation, 0, mark))

    for step in range(STEPS + 1):
        at = step * 100 * MS
        ran(at - 1000, 1000, memset, 7, wire.Operation.MEMSET, wire.step_mark(step))
        if step < STEPS:
            ran(at + 10 * MS, 20 * MS, gemm, 7, wire.Operation.KERNEL)
            ran(at + 25 * MS, 25 * MS, nccl, 20, wire.Operation.KERNEL)
            ran(at + 55 * MS, 5 * MS, copy, 31, wire.Operation.MEMCPY)
    link.flush()


def test_spans_and_late_kernels_become_parts(tmp_path: Path):
    """Kernels come after the spans, on another connection; exposed time has its group after a window."""
    socket, began_ns = tmp_path / "exporter.sock", time.time_ns() - 5_000 * MS
    with exporter(config(socket, steps=1)) as running:
        spans = Link(socket, greeting(0), patience_s=5.0)
        late = Link(socket, greeting(0, channels=(wire.Channel.KERNELS,)), patience_s=5.0)
        spans.flush()
        late.flush()
        wait_for(lambda: value(scrape(running.url), "argus_exporter_connections") == 2, "both connections")
        say_phases(spans, began_ns)
        wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step") == STEPS, "the steps")
        assert not [name for name, _ in scrape(running.url) if "_gpu_" in name or "exposed" in name]
        say_kernels(late, began_ns)
        wait_for(
            lambda: value(scrape(running.url), "argus_phase_gpu_spans_total", phase="forward") == STEPS,
            "all steps divided",
        )
        samples = scrape(running.url)
        # Of 60 ms: the wait's 10 are its own, and 10 of the collective lie behind compute.
        assert parts(samples, "phase", phase="forward") == pytest.approx([0.08, 0.04, 0.02, 0.06])
        assert parts(samples, "iteration") == pytest.approx([0.08, 0.08, 0.02, 0.22])
        exposed = [v for (n, _), v in samples.items() if n == "argus_phase_exposed_seconds_total"]
        assert sum(exposed) == pytest.approx(0.04)
        assert value(samples, "argus_phase_gpu_spans_total", phase="tp-wait") is None
        launches = {dict(have)["kernel"] for (n, have) in samples if n == "argus_kernel_launches_total"}
        assert not any("Memset" in kernel for kernel in launches), "a mark is no kernel of the job"
        spans.close(0)
        late.close(0)


@pytest.mark.traces
@pytest.mark.slow
def test_a_real_trace_replayed_has_its_anatomy(tmp_path: Path, traces: Path):
    """As a sweep over the events of the file says."""
    (path,) = (traces / "misc").glob("negative_queue_rank0*")
    recordings = read_files([path], job="trace")
    of_phases, of_steps = divide_json(path)
    socket = tmp_path / "exporter.sock"
    with exporter(config(socket, steps=1)) as running:
        player = Player([recordings], socket, speed=0, stay=True)
        thread = threading.Thread(target=player.run)
        thread.start()
        try:
            wait_for(
                lambda: value(scrape(running.url), "argus_phase_gpu_spans_total", phase="forward") == 5,
                "the anatomy of five steps",
            )
            samples = scrape(running.url)
        finally:
            player.stop()
            thread.join(timeout=10)
    for phase, expected in of_phases.items():
        shares = pytest.approx([ns / 1e9 for ns in expected], rel=0.01, abs=1e-6)
        assert parts(samples, "phase", phase=phase) == shares, phase
    assert parts(samples, "iteration") == pytest.approx([ns / 1e9 for ns in of_steps], rel=0.01)
