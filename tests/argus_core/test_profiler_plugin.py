"""How NCCL is told of libargus_nccl, and what becomes of a plugin that it was told of before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.injection import (
    NEXT_PROFILER,
    PROFILER,
    PROFILER_MEMORY,
    PROFILER_SLOT,
    find,
    place_profiler,
    profiler_memory,
)
from argus_core.nccl_page import NcclPageReader


@pytest.fixture
def library(tmp_path: Path) -> str:
    """Something that this process could load."""
    folder = tmp_path / "argus_core"
    folder.mkdir()
    shutil.copy("/bin/true", folder / PROFILER)
    return str(folder / PROFILER)


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    made: dict[str, str] = {}
    yield made
    memory = profiler_memory(made)
    if memory is not None:
        os.close(memory)


def test_nccl_is_told_of_ours_and_gets_memory_to_count_in(library: str, environ: dict[str, str]) -> None:
    assert find([str(Path(library).parents[1])], PROFILER) == library
    assert place_profiler(environ, library, alone=True) == ("", "")
    assert environ[PROFILER_SLOT] == library
    assert environ[PROFILER_MEMORY].startswith(f"{os.getpid()}:")
    memory = profiler_memory(environ)
    assert memory is not None
    reader = NcclPageReader(os.dup(memory))
    assert reader.read().state == "not_loaded"
    reader.close()


def test_twice_in_a_process_is_once(library: str, environ: dict[str, str]) -> None:
    place_profiler(environ, library, alone=True)
    before = dict(environ)
    assert place_profiler(environ, library, alone=False) == ("", "")
    assert environ == before


def test_after_an_exec_memory_is_made_anew(library: str, environ: dict[str, str]) -> None:
    """The process keeps its number and its environment, and the descriptor is closed, or another file's."""
    assert place_profiler(environ, library, alone=True) == ("", "")
    former = profiler_memory(environ)
    assert former is not None
    with Path(os.devnull).open("rb") as other:
        os.dup2(other.fileno(), former)
        assert profiler_memory(environ) is None
        assert place_profiler(environ, library, alone=True) == ("", "")
    assert profiler_memory(environ) not in (None, former)


def test_a_child_gets_memory_of_its_own(library: str, environ: dict[str, str]) -> None:
    """It inherits the parent's variables, whose descriptor is none of its own."""
    environ |= {PROFILER_SLOT: library, PROFILER_MEMORY: "1:3"}
    assert profiler_memory(environ) is None
    place_profiler(environ, library, alone=True)
    assert profiler_memory(environ) is not None
    assert NEXT_PROFILER not in environ


@pytest.mark.parametrize("former", ["/opt/libinspector.so", "inspector"])
def test_another_plugin_is_chained_behind_ours(library: str, environ: dict[str, str], former: str) -> None:
    environ[PROFILER_SLOT] = former
    place_profiler(environ, library, alone=True)
    assert (environ[PROFILER_SLOT], environ[NEXT_PROFILER]) == (library, former)


@pytest.mark.parametrize("value", ["none", "NONE", "STATIC_PLUGIN"])
def test_who_wants_none_or_the_programs_own_keeps_it(
    library: str, environ: dict[str, str], value: str
) -> None:
    environ[PROFILER_SLOT] = value
    reason, why = place_profiler(environ, library, alone=True)
    assert reason == "slot_taken"
    assert value in why
    assert environ == {PROFILER_SLOT: value}


def test_what_cannot_be_is_said_by_a_word(library: str, environ: dict[str, str], tmp_path: Path) -> None:
    assert place_profiler(environ, "", alone=True)[0] == "missing"
    assert place_profiler(environ, str(tmp_path / "gone.so"), alone=True)[0] == "missing"
    assert place_profiler(environ, library, alone=False)[0] == "threads"
    assert environ == {}
