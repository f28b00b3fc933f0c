"""What all tests share: where real traces lie, what CI may skip, what `make check` runs, and coroutines."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path

import pytest

from check import Check
from long_forms import LONG
from skips import SkipCount

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--check", action="store_true", help="quick tests without servers (check.py)")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCount())
    if config.getoption("--check"):
        config.pluginmanager.register(Check())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not LONG:
        left_out = {one for one in items if one.get_closest_marker("long_form")}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [one for one in items if one not in left_out]


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of the real GPU traces; skips where they are absent."""
    folder = Path(os.environ.get("ARGUS_TRACES", REPOSITORY.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"real GPU traces are absent: no folder {folder} (set ARGUS_TRACES)")
    return folder
