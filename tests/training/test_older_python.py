"""Training images have older Pythons than our programs ask for: the producer runs on 3.9, Debian 11's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.debian_11 import Debian11, Unavailable

import argus_training
from argus_core import wire
from argus_core.slotted import with_slots
from native.listener import listening

PACKAGES = Path(argus_training.__file__).parents[1]

TORCH = """\
from types import SimpleNamespace
__version__ = "2.1.0"
class CUDAGraph:
    def capture_begin(self, *_): pass
    def capture_end(self): pass
cuda = SimpleNamespace(CUDAGraph=CUDAGraph, is_initialized=lambda: False, is_available=lambda: False)
distributed = SimpleNamespace(is_available=lambda: False)
"""
"""What is asked of torch before any hook; hooks that do not fit it are left out, and say so."""

TRAIN = """\
import torch
from argus_training import iteration, span
for _ in range(4):
    with iteration(), span("tokenise"):
        pass
"""

IMPORT_ALL = """\
import importlib, pkgutil, sys
import argus_training.torch_hooks
for module in pkgutil.walk_packages(argus_training.__path__, "argus_training."):
    if ".boot" not in module.name:
        importlib.import_module(module.name)
        print(module.name)
"""


@pytest.fixture(scope="module")
def debian_11(tmp_path_factory: pytest.TempPathFactory) -> Debian11:
    try:
        return Debian11(tmp_path_factory.mktemp("debian-11"))
    except Unavailable as error:
        pytest.skip(f"Debian 11's packages cannot be had here: {error}")


@pytest.mark.slow
def test_every_module_of_the_training_process_is_loaded(debian_11: Debian11) -> None:
    loaded = debian_11.python("-c", IMPORT_ALL, environment={"PYTHONPATH": str(PACKAGES)})
    assert loaded.returncode == 0, loaded.stderr
    assert {"argus_training.attach", "argus_training.torch_hooks.traced"} <= set(loaded.stdout.split())


@pytest.mark.slow
def test_a_rank_attaches_and_reports(debian_11: Debian11, tmp_path: Path) -> None:
    """By PYTHONPATH alone, as `argus-exporter run` and the manifests have it; torch is a stand-in."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "train.py").write_text(TRAIN)
    socket = tmp_path / "exporter.sock"
    with listening(socket) as exporter:
        trained = debian_11.python(
            tmp_path / "train.py",
            environment={
                "PYTHONPATH": f"{argus_training.boot_directory()}:{tmp_path}",
                "ARGUS_SOCKET": str(socket),
                "RANK": "3",
                "LOCAL_RANK": "3",
                "WORLD_SIZE": "4",
            },
        )
        assert trained.returncode == 0, trained.stderr
        (rank,) = exporter.wait_ended()
    assert (rank.hello.rank, rank.hello.world_size) == (3, 4)
    assert "tokenise" in rank.names.values()
    assert {wire.MessageType.SPANS.name, wire.MessageType.ITERATIONS.name} <= set(rank.types)


def test_slots_come_as_dataclasses_make_them() -> None:
    """What 3.9 gets, run here: of the fields that no base has, with defaults and without a dictionary."""

    @dataclass(frozen=True)
    class Base:
        rank: int

    @dataclass(frozen=True)
    class Plain(with_slots(Base)):  # type: ignore[misc]
        step: int = 7

    slotted = with_slots(Plain)
    one = slotted(rank=3)
    assert (one.rank, one.step) == (3, 7)
    assert type(one).__slots__ == ("step",)
    assert not hasattr(one, "__dict__")
    assert one == slotted(3, 7)
