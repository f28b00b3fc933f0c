"""What all tests share: where real traces lie, and what CI may skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skips import SkipCount

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCount())


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of the real GPU traces; skips where they are absent."""
    folder = Path(os.environ.get("ARGUS_TRACES", REPOSITORY.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"real GPU traces are absent: no folder {folder} (set ARGUS_TRACES)")
    return folder
