"""The S3 server of upload tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from s3_servers import S3Server, moto_server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server
