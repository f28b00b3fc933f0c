"""Stores of each kind, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.store import ObjectStore, StoreConfig, open_store
from s3_servers import S3Server, moto_server, s3_config
from swift_server import swift_server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture
def s3(moto: S3Server, tmp_path: Path) -> StoreConfig:
    """Configuration of the moto store, under a prefix of the test's own."""
    return s3_config(moto, moto.credentials(tmp_path), prefix=f"{tmp_path.name}/")


@pytest.fixture(scope="session")
def swift() -> Iterator[S3Server]:
    with swift_server() as server:
        yield server


@pytest.fixture(
    params=["folder", *(pytest.param(name, marks=pytest.mark.servers) for name in ("moto", "swift"))]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind."""
    if request.param == "folder":
        return open_store(StoreConfig(folder=tmp_path / "store"))
    server: S3Server = request.getfixturevalue(request.param)
    return open_store(s3_config(server, server.credentials(tmp_path), prefix=f"{tmp_path.name}/"))
