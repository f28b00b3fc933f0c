"""The frames that rules look for are those that the exporter publishes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import rjsonnet

from argus_exporter.stacks.folded import Stack, frame_label
from argus_exporter.stacks.totals import telling_frame
from rules.scenario import ROOT


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    text = rjsonnet.evaluate_snippet(
        "config", "(import 'mixin.libsonnet')._config", jpathdir=[str(ROOT / "jsonnet")]
    )
    return dict(json.loads(text))


@pytest.mark.parametrize(
    ("frame", "entry"),
    [
        ("_compile (torch/_dynamo/convert_frame.py:1)", True),
        ("compile_fx (torch/_inductor/compile_fx.py:1)", True),
        ("compile_fx_inner (torch/_inductor/compile_fx.py:1)", True),
        ("ASTCompiler.compile (triton/compiler/compiler.py:1)", True),
        ("compile_graph (graph.py:1)", True),
        ("compile_kernel (kernels.py:1)", True),
        ("Backend.compile_model (npu.py:1)", True),
        ("compile_module (mlir.py:1)", True),
        ("compile_program (xla.py:1)", True),
        ("Context.__call__.<locals>.compile_wrapper (torch/_dynamo/eval_frame.py:1)", False),
        ("compile_batch (train.py:1)", False),
        ("recompile (model.py:1)", False),
        ("_compile (re/__init__.py:1)", False),
        ("compile (re/_compiler.py:1)", False),
        ("compile (sre_compile.py:1)", False),
        ("_compile (regex/_main.py:1)", False),
        ("Environment.compile (jinja2/environment.py:1)", False),
    ],
)
def test_compilers_are_known_by_the_same_names(config: dict[str, Any], frame: str, entry: bool) -> None:
    """The exporter counts what they do as one frame, and the rules find that frame."""
    kind = config["compileFrames"]
    label = frame_label(frame)
    found = re.fullmatch(kind["frames"], label) and not re.fullmatch(kind["notFrames"], label)
    assert bool(found) == entry
    assert (telling_frame(Stack("MainThread", (frame, "leaf (x.py:1)"))) == label) == entry


@pytest.mark.parametrize(
    ("cause", "frame"),
    [
        ("host-alloc", "empty_cache (torch/cuda/memory.py:1)"),
        ("host-alloc", "memory_stats (torch/cuda/memory.py:1)"),
        ("host-alloc", "memory_stats.<locals>._recurse_add_to_result (torch/cuda/memory.py:1)"),
        ("host-alloc", "memory_stats_as_nested_dict (torch/cuda/memory.py:1)"),
        ("host-alloc", "cudaMallocHost (libcudart.so)"),
        ("host-alloc", "pin_memory (torch/utils/data/_utils/pin_memory.py:1)"),
        ("data-input", "_SingleProcessDataLoaderIter._next_data (torch/utils/data/dataloader.py:1)"),
        ("data-input", "Connection._recv (multiprocessing/connection.py:1)"),
        ("data-input", "SocketIO.readinto (socket.py:1)"),
        ("host-sync", "synchronize (torch/cuda/__init__.py:1)"),
        ("host-sync", "Event.synchronize (torch/cuda/streams.py:1)"),
    ],
)
def test_the_histories_causes_know_frames_with_their_class(
    config: dict[str, Any], cause: str, frame: str
) -> None:
    """py-spy names a method after its class."""
    label = frame_label(frame)
    found = [kind["cause"] for kind in config["historyFrames"] if re.fullmatch(kind["frames"], label)]
    assert found == [cause]
