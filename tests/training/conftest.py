"""The exporter's end of the socket, bare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .reader import Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path / "s") as reader:
        yield reader
