"""The sampler inside a rank: what it sends, when it runs, and that it harms nothing."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.stack_refusals import refusal_path
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.stacks.folded import frame_label
from argus_training import ptracer, stack_sampler
from argus_training.identity import Layout, Place, hello
from argus_training.ptracer import PR_SET_PTRACER, PR_SET_PTRACER_ANY, Ptracer
from argus_training.stack_sampler import StackSampler, short_file
from exporter.exporter_process import Rank, config, exporter, scrape, wait_for

from .reader import Reader, until

PATIENCE_S = 60.0


def sampler_to(path: Path, mode: str = "inprocess") -> StackSampler:
    place = Place("test", rank=0, local_rank=0, world_size=2)
    return StackSampler(path, lambda: hello(place, "job", Layout()), mode=mode, ptracer=Ptracer("off", path))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and samples often, so that tests need not wait for seconds."""
    monkeypatch.setattr(stack_sampler, "_LOOK_S", 0.05)
    monkeypatch.setattr(stack_sampler, "_SHORTEST_INTERVAL_S", 0.02)
    monkeypatch.setattr(stack_sampler, "_BUDGET", 1.0)


def elsewhere(function: Callable[[], None]) -> None:
    """Call in another thread, as the sampler does: a thread never samples itself."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def known_place(entered: threading.Event, leave: threading.Event) -> None:
    entered.set()
    leave.wait()


def test_stacks_reach_the_exporter_as_leaf_frames(tmp_path: Path, soon: None) -> None:  # noqa: ARG001
    """Through the real wire, intake and totals: the main thread's innermost frame, named without a line."""
    off = dataclasses.replace(config(tmp_path / "s"), stacks=StacksConfig(window_seconds=1, enabled=False))
    with exporter(off) as running:
        rank = Rank(running.socket, 0)
        rank.iterate()
        sampler = sampler_to(running.socket)
        sampler.start()
        try:
            wait_for(
                lambda: any(name == "argus_stack_samples_total" for name, _ in scrape(running.url)),
                "samples",
                PATIENCE_S,
            )
            samples = scrape(running.url)
        finally:
            sampler.close()
            rank.link.close(0)
    series = [dict(labels) for name, labels in samples if name == "argus_stack_samples_total"]
    assert {"MainThread"} <= {labels["thread"] for labels in series}
    frames = {labels["frame"] for labels in series} - {"other"}
    assert all(re.fullmatch(r"[^:]+ \([^:]+\)", frame) for frame in frames), frames
    assert samples["argus_channel_up", frozenset(BASE | {("channel", "stacks")})] == 1.0
    assert samples["argus_producer_cpu_seconds_total", frozenset(BASE | {("channel", "stacks")})] > 0


BASE = {("training_job", "job"), ("rank", "0")}


def test_a_stack_is_a_path_from_the_outermost_frame(reader: Reader) -> None:
    """Nodes lead from a root to the innermost frame, each bound before it is used."""
    sampler = sampler_to(reader.path)
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=known_place, args=(entered, leave), name="known")
    thread.start()
    entered.wait()
    sampler.sample()
    leave.set()
    thread.join()
    sampler.send()
    sampler.close()
    sampler._end("stopped")
    labels = [sampler._label(code) for _, code in sampler._tree.nodes]
    until(lambda: len(reader.ranks[0].channels) >= 2, "both states")
    said = reader.ranks[0]
    assert any(label.startswith("known_place (") for label in labels)
    assert all(parent < index for index, (parent, _) in enumerate(sampler._tree.nodes, start=1))
    assert said.hellos[0].channels == 1 << wire.Channel.STACKS
    assert [(state.up, reason) for state, reason in said.channels] == [
        (1, "by_choice"),
        (0, "stopped"),
    ]
    assert said.exit_status is None  # BYE is the recorder's to say


def test_a_thread_that_does_not_move_is_sampled_once(tmp_path: Path) -> None:
    """Waiting threads must not fill the top frames; the main thread counts always."""
    sampler = sampler_to(tmp_path / "nobody")
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=known_place, args=(entered, leave), name="waiting")
    thread.start()
    entered.wait()
    until(lambda: sys._current_frames()[thread.ident or 0].f_code.co_name == "wait", "the thread waiting")
    for _ in range(10):
        elsewhere(sampler.sample)
    leave.set()
    thread.join()
    counts: Counter[str] = Counter()
    for (name, _), count in sampler._pending.items():
        counts[name] += count
    assert counts["waiting"] <= 3  # once, and again if it was caught on its way into the wait
    assert counts["MainThread"] == 10


def test_automatic_mode_waits_for_the_exporters_mark(reader: Reader, soon: None) -> None:  # noqa: ARG001
    """No connection until the mark is there, and none after it has gone."""
    sampler = sampler_to(reader.path, "auto")
    sampler._look()
    assert not sampler._wanted
    sampler.start()
    mark = refusal_path(reader.path, 0, os.getpid())
    mark.write_text("permission\n")
    until(lambda: sampler.sampling, "sampling")
    mark.unlink()
    until(lambda: not sampler.sampling, "silence")
    until(lambda: bool(reader.ranks[0].channels) and reader.ranks[0].channels[-1][0].up == 0, "farewell")
    sampler.close()
    assert reader.ranks[0].channels[-1][1] == "not_wanted"


def test_an_exporter_that_comes_back_learns_every_node(tmp_path: Path) -> None:
    """Nodes and names are sent again on a new connection; none refers to what only the old one knew."""
    path = tmp_path / "s"
    sampler = sampler_to(path)
    for life in range(2):
        with Reader(path) as reader:
            until(functools.partial(_sent, sampler, life), "connection")
            until(functools.partial(_has_state, reader), "state")
    assert sampler._sent_nodes == len(sampler._tree.nodes) > 0


def _has_state(reader: Reader) -> bool:
    return bool(reader.ranks[0].channels)


def _sent(sampler: StackSampler, life: int) -> bool:
    elsewhere(sampler.sample)
    sampler.send()
    return sampler._connects > life


def test_nobody_listening_costs_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    """Samples that cannot be delivered are dropped and counted."""
    sampler = sampler_to(tmp_path / "nobody")
    for _ in range(5):
        elsewhere(sampler.sample)
        sampler.send()
    assert not sampler._pending
    assert sampler._link is not None
    assert sampler._link.dropped > 0


def test_the_tree_of_stacks_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that makes functions without end: what does not fit is dropped and counted."""
    monkeypatch.setattr(stack_sampler, "_NODES_LIMIT", 50)
    sampler = sampler_to(tmp_path / "nobody")
    for index in range(200):
        namespace = {"sampler": sampler, "elsewhere": elsewhere}
        exec(f"def f{index}(): elsewhere(sampler.sample)\nf{index}()", namespace)
    assert len(sampler._tree.nodes) <= 50
    assert sampler.dropped > 0


def test_dear_samples_become_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that takes 40 ms of CPU is taken every 20 s at a budget of 0.2 %."""
    sampler = sampler_to(tmp_path / "nobody")

    def dear() -> None:
        end_ns = time.thread_time_ns() + 40_000_000
        while time.thread_time_ns() < end_ns:
            pass

    monkeypatch.setattr(sampler, "sample", dear)
    assert sampler._turn() >= 20.0
    assert sampler.cpu_ns >= 40_000_000


def test_names_agree_with_py_spy() -> None:
    """The same function is the same series, whoever samples: package path, no line."""
    import torch.nn.modules.linear as linear  # type: ignore[import-not-found, unused-ignore]

    assert short_file(linear.__file__ or "") == "torch/nn/modules/linear.py"
    assert frame_label("Linear.forward (torch/nn/modules/linear.py)") == frame_label(
        "Linear.forward (torch/nn/modules/linear.py:125)"
    )


def test_failures_end_the_sampler_and_nothing_else(
    tmp_path: Path,
    soon: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After three of them, with one line on stderr."""
    sampler = sampler_to(tmp_path / "nobody")

    def broken() -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(sampler, "sample", broken)
    sampler.start()
    assert sampler._thread is not None
    sampler._thread.join(PATIENCE_S)
    assert not sampler._thread.is_alive()
    assert capsys.readouterr().err.count("stacks are no longer sampled") == 1


PROGRAM = """
import os, sys, threading
from pathlib import Path
from argus_training import stack_sampler
from argus_training.identity import Layout, Place, hello
stack_sampler._SHORTEST_INTERVAL_S = stack_sampler._LOOK_S = 0.01
path = Path(sys.argv[1])
stack_sampler.prepare("inprocess", "off", path, lambda: hello(Place("t", 0, 0, 1), "job", Layout()))()
deadline = 5_000_000
while not any(t.name == "argus-stacks" for t in threading.enumerate()):
    pass
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if threading.active_count() == 1 else 9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sum(range(100_000))
sys.exit(7)
"""


def test_a_process_that_forks_and_exits_keeps_its_status(reader: Reader) -> None:
    """The sampler is in no child, and the interpreter ends as if it were not there."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(reader.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert reader.ranks[0].channels


def test_ptracer_names_the_process_that_listens(reader: Reader) -> None:
    """Once for each exporter; off does nothing, any names everybody."""
    calls: list[tuple[int, int]] = []

    def call(option: int, argument: int) -> int:
        calls.append((option, argument))
        return 0

    for mode in ("off", "exporter", "any"):
        grant = Ptracer(mode, reader.path, call)
        grant.renew()
        grant.renew()
    assert calls == [(PR_SET_PTRACER, os.getpid()), (PR_SET_PTRACER, PR_SET_PTRACER_ANY)]


def test_ptracer_without_an_exporter_is_silent(tmp_path: Path) -> None:
    """Nothing to name yet; and the real prctl, where there is no Yama, only says no."""
    Ptracer("exporter", tmp_path / "nobody").renew()
    assert ptracer.prctl(PR_SET_PTRACER, 0) in (0, -1)
