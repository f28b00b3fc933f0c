"""Where the injector is, and what a command's environment needs for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_exporter.producer import injector

LIBRARY = Path("/opt/argus/libargus_cupti.so")


def test_a_free_slot_is_taken() -> None:
    assert injector.environment({}, LIBRARY) == ({"CUDA_INJECTION64_PATH": str(LIBRARY)}, "")


def test_our_own_slot_is_no_conflict() -> None:
    """`argus-exporter run` within `argus-exporter run`."""
    environ = {"CUDA_INJECTION64_PATH": str(LIBRARY)}
    assert injector.environment(environ, LIBRARY) == (environ, "")


def test_a_taken_slot_is_left_alone() -> None:
    """One slot, one library: the message says how to have both."""
    added, why = injector.environment({"CUDA_INJECTION64_PATH": "/opt/nsys/inject.so"}, LIBRARY)
    assert added == {}
    assert "taken by /opt/nsys/inject.so" in why
    assert "ARGUS_NEXT_INJECTION=/opt/nsys/inject.so" in why


@pytest.mark.parametrize("name", ["ARGUS_DISABLE", "ARGUS_DISABLE_KERNELS"])
def test_switched_off_means_untouched(name: str) -> None:
    assert injector.environment({name: "1"}, LIBRARY) == ({}, "kernels are switched off")


def test_without_a_library_the_command_runs_without() -> None:
    added, why = injector.environment({}, None)
    assert added == {}
    assert "not installed" in why


def test_the_installed_library_is_found_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel: argus_core/libargus_cupti.so in site-packages."""
    monkeypatch.setattr(injector.sysconfig, "get_path", lambda _: str(tmp_path))
    library = tmp_path / "argus_core" / "libargus_cupti.so"
    before = injector.library_path()
    library.parent.mkdir()
    library.touch()
    assert injector.library_path() in (library, before)
    assert injector.library_path() is not None
