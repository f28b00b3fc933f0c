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
    label = frame_label(frame)
    found = re.fullmatch(config["compileFrames"], label) and not re.fullmatch(
        config["compileFramesNot"], label
    )
    assert bool(found) == entry
    assert (telling_frame(Stack("MainThread", (frame, "leaf (x.py:1)"))) == label) == entry


@pytest.mark.parametrize(
    ("frame", "allocates"),
    [
        ("empty_cache (torch/cuda/memory.py:1)", True),
        ("cudaMallocHost (libcudart.so)", True),
        ("pin_memory (torch/utils/data/_utils/pin_memory.py:1)", True),
        ("_SingleProcessDataLoaderIter._next_data (torch/utils/data/dataloader.py:1)", False),
        ("synchronize (torch/cuda/__init__.py:1)", False),
    ],
)
def test_allocations_are_known_by_their_function(config: dict[str, Any], frame: str, allocates: bool) -> None:
    assert bool(re.fullmatch(config["allocationFrames"], frame_label(frame))) == allocates
