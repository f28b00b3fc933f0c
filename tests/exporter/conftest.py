"""An exporter of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_exporter.server import RunningExporter
from exporter.exporter_process import config, exporter


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningExporter]:
    with exporter(config(tmp_path / "exporter.sock")) as exporter_:
        yield exporter_
