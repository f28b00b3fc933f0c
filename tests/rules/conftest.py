"""Stories of a module share a run of promtool's (rules/beside.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from long_forms import LONG
from rules import beside

MODULES = pytest.StashKey[dict[Any, beside.Module]]()


@pytest.fixture(autouse=True)
def stories_beside_others(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """For tests with the mark `beside_others`, but for their long form."""
    if LONG or not request.node.get_closest_marker("beside_others"):
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with beside.played(request.node, request.config.stash.setdefault(MODULES, {}), folder):
        yield
