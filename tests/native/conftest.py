"""Builds, and a socket of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from native.builds import Build, build
from native.listener import Listener, listening


@pytest.fixture(scope="session", params=["plain", "thread", "address"])
def injector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Every scenario runs as it is, under ThreadSanitizer, and under AddressSanitizer and UBSan."""
    return build(tmp_path_factory, request.param)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build(tmp_path_factory, "plain")


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "exporter.sock"


@pytest.fixture
def listener(socket: Path) -> Iterator[Listener]:
    with listening(socket) as listening_:
        yield listening_
