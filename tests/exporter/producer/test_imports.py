"""Waiting for an import without causing it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_exporter.producer.imports import ImportWatch


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable package with a submodule, forgotten afterwards."""
    folder = tmp_path / "awaited"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n")
    (folder / "inner.py").write_text("from awaited import value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "awaited"
    for name in [name for name in sys.modules if name.split(".")[0] == "awaited"]:
        del sys.modules[name]


def test_callback_comes_after_the_import_and_the_finder_goes(package: str) -> None:
    """With the finished module; sys.meta_path is as before."""
    before = list(sys.meta_path)
    heard: list[int] = []
    ImportWatch().when_imported(f"{package}.inner", lambda module: heard.append(module.value))
    assert heard == []
    importlib.import_module(f"{package}.inner")
    assert heard == [1]
    assert list(sys.meta_path) == before


def test_module_that_is_there_is_told_at_once() -> None:
    """No finder is put in place."""
    before = list(sys.meta_path)
    heard: list[str] = []
    ImportWatch().when_imported("json", lambda module: heard.append(module.__name__))
    assert heard == ["json"]
    assert list(sys.meta_path) == before


def test_undone_callback_is_not_called(package: str) -> None:
    """A hook that was detached in the meantime."""
    heard: list[str] = []
    undo = ImportWatch().when_imported(package, lambda module: heard.append(module.__name__))
    undo()
    importlib.import_module(package)
    assert heard == []


def test_broken_callback_does_not_break_the_import(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr; the module is imported."""

    def broken(_: object) -> None:
        raise RuntimeError("ours")

    ImportWatch().when_imported(package, broken)
    assert importlib.import_module(package).value == 1
    assert "ours" in capsys.readouterr().err


def test_module_that_does_not_exist_fails_as_ever() -> None:
    """The error is Python's own."""
    ImportWatch().when_imported("no_such_module_of_anybody", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module_of_anybody'"):
        importlib.import_module("no_such_module_of_anybody")
