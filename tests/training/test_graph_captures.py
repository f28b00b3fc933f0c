"""CUDA graphs that are captured while a process is told its rank: CUPTI does not come up meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from argus_training import attach
from argus_training.graph_captures import GraphCaptures
from argus_training.identity import Place


class CUDAGraph:
    fails = False

    def capture_begin(self) -> None:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

    def capture_end(self) -> None: ...


class Process:
    """What `attach` sees of a process that trains, and to whom libargus_cupti was told it belongs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, torch: str = "2.11.0") -> None:
        self.graph = type("CUDAGraph", (CUDAGraph,), {})
        self.captures = GraphCaptures(self.graph)
        self.place: Place | None = Place("torchrun", 3, 1, 8)
        self.adopted: list[tuple[int, int, int, str]] = []
        self.loaded = True
        control = SimpleNamespace(loaded=lambda: self.loaded, adopt=lambda *told: self.adopted.append(told))
        monkeypatch.setattr(attach, "KernelsControl", lambda: control)
        layout: Any = SimpleNamespace(place=lambda: self.place)
        observer: Any = SimpleNamespace(periodic=[])
        attach._adopt_kernels(SimpleNamespace(__version__=torch), observer, layout, "llama", self.captures)
        self.observer = observer

    def step(self) -> None:
        for periodic in list(self.observer.periodic):
            periodic()


def test_a_process_is_adopted_once_it_has_a_rank_and_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.loaded = False
    process.step()
    process.loaded, process.place = True, None
    process.step()
    assert process.adopted == []
    process.place = Place("torchrun", 3, 1, 8)
    process.step()
    process.step()
    assert process.adopted == [(3, 1, 8, "llama")]


def test_not_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On whichever stream, and with as many at once as there are; a capture that fails to begin is none."""
    process = Process(monkeypatch)
    one, other, failing = process.graph(), process.graph(), process.graph()
    failing.fails = True
    one.capture_begin()
    other.capture_begin()
    with pytest.raises(RuntimeError, match="not permitted"):
        failing.capture_begin()
    process.step()
    one.capture_end()
    process.step()
    assert process.adopted == []
    other.capture_end()
    process.step()
    assert process.adopted == [(3, 1, 8, "llama")]


@pytest.mark.parametrize("version", ["1.13.1", "2.0.1"])
def test_never_after_a_capture_by_a_torch_before_2_1(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """CUPTI that comes up after it would hang the graph (pytorch#97199); without one it may come up."""
    captured, plain = Process(monkeypatch, version), Process(monkeypatch, version)
    graph = captured.graph()
    graph.capture_begin()
    graph.capture_end()
    captured.step()
    assert captured.adopted == []
    assert captured.observer.periodic == [], "it is not asked again"
    plain.step()
    assert plain.adopted == [(3, 1, 8, "llama")]
