"""Waiting for an import without causing it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from argus_training.imports import ImportWatch


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
    for finder in [finder for finder in sys.meta_path if isinstance(finder, ImportWatch)]:
        sys.meta_path.remove(finder)


def test_callback_comes_once_after_the_import(package: str) -> None:
    """With the finished module, whose loader is as before."""
    heard: list[int] = []
    ImportWatch().when_imported(f"{package}.inner", lambda module: heard.append(module.value))
    assert heard == []
    module = importlib.import_module(f"{package}.inner")
    assert heard == [1]
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert heard == [1]


def test_module_that_was_only_looked_up_is_still_awaited(package: str) -> None:
    """Libraries ask by find_spec whether another is installed, and throw the answer away."""
    heard: list[int] = []
    ImportWatch().when_imported(package, lambda module: heard.append(module.value))
    assert importlib.util.find_spec(package) is not None
    assert importlib.util.find_spec(package) is not None
    assert heard == []
    importlib.import_module(package)
    assert heard == [1]


def test_import_past_the_watch_is_seen_at_the_next_look_up(package: str) -> None:
    """A finder in front of ours has found it."""
    heard: list[int] = []
    ImportWatch().when_imported(package, lambda module: heard.append(module.value))
    sys.meta_path.insert(0, PathFinder)
    try:
        importlib.import_module(package)
    finally:
        sys.meta_path.remove(PathFinder)
    assert heard == []
    assert importlib.util.find_spec("no_such_module_of_anybody") is None
    assert heard == [1]


def test_lazy_module_is_not_loaded_by_the_watch(package: str) -> None:
    """importlib.util.LazyLoader: told when the program loads it."""
    heard: list[int] = []
    ImportWatch().when_imported(package, lambda module: heard.append(module.value))
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[package] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.util.find_spec("no_such_module_of_anybody")
    assert heard == []
    assert (module.value, heard) == (1, [1])


def test_module_that_is_executed_by_hand_is_told_when_it_is_whole(package: str, tmp_path: Path) -> None:
    """Its own imports are look-ups too."""
    (tmp_path / package / "__init__.py").write_text("import awaited.other\nvalue = 1\n")
    (tmp_path / package / "other.py").touch()
    heard: list[int] = []
    ImportWatch().when_imported(package, lambda module: heard.append(module.value))
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[package] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert heard == [1]


def test_import_that_fails_is_awaited_again(package: str, tmp_path: Path) -> None:
    """The module raises the first time."""
    (tmp_path / package / "inner.py").write_text("import os\nvalue = os.environ['ARGUS_TEST_VALUE']\n")
    heard: list[str] = []
    ImportWatch().when_imported(f"{package}.inner", lambda module: heard.append(module.value))
    with pytest.raises(KeyError):
        importlib.import_module(f"{package}.inner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARGUS_TEST_VALUE", "2")
        importlib.import_module(f"{package}.inner")
    assert heard == ["2"]


def test_two_watches_hear_of_one_module(package: str) -> None:
    """Finders that ask each other end."""
    heard: list[str] = []
    ImportWatch().when_imported(package, lambda _: heard.append("first"))
    ImportWatch().when_imported(package, lambda _: heard.append("second"))
    importlib.import_module(package)
    importlib.util.find_spec("no_such_module_of_anybody")
    assert sorted(heard) == ["first", "second"]


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
