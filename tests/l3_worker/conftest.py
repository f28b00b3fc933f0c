"""Fixtures of the worker's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.servers import PrometheusServer


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    """A Prometheus of this test alone."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on PATH: run tools/setup.sh")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = PrometheusServer(folder)
    try:
        yield server.start()
    finally:
        server.stop()
