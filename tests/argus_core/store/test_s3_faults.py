"""What a bad network and wrong settings look like to whoever uses the bucket."""

from __future__ import annotations

import io
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from argus_core.store import StoreConfig, StoreDenied, StoreError, StoreMissing, StoreUnavailable, open_store
from argus_core.store.base import read
from s3_servers import FaultyNetwork, S3Server, s3_config

LARGE = bytes(range(256)) * (12 * 4096)  # 12 MiB: three parts


def through(network: FaultyNetwork, config: StoreConfig, **changes) -> StoreConfig:
    """The same store behind the faulty network."""
    return StoreConfig(**(vars(config) | {"endpoint": network.endpoint, "timeout_seconds": 5.0} | changes))


def test_a_connection_that_breaks_in_mid_upload_leaves_no_object(moto: S3Server, s3: StoreConfig) -> None:
    """No part gets through: unavailable, and readers see nothing; the next try succeeds."""
    with FaultyNetwork(moto.port, cut_after=3 * 2**20) as network:
        store = open_store(through(network, s3, attempts=2))
        with pytest.raises(StoreUnavailable, match="job/a"):
            store.put("job/a", io.BytesIO(LARGE))
        assert network.cuts >= 1
        with pytest.raises(StoreMissing):
            open_store(s3).head("job/a")
        network.cut_after = None
        store.put("job/a", io.BytesIO(LARGE))
        assert read(store, "job/a", 2 * len(LARGE)) == LARGE


def test_a_part_whose_connection_breaks_is_sent_again(moto: S3Server, s3: StoreConfig) -> None:
    """One broken connection costs one attempt of one part, not the upload."""
    with FaultyNetwork(moto.port, cut_after=3 * 2**20, cut_limit=1) as network:
        open_store(through(network, s3, attempts=2)).put("job/a", io.BytesIO(LARGE))
        assert network.cuts == 1
    assert read(open_store(s3), "job/a", 2 * len(LARGE)) == LARGE


def test_a_503_storm_is_ridden_out_within_the_attempts(moto: S3Server, s3: StoreConfig) -> None:
    """Two refusals, then the object is there."""
    with FaultyNetwork(moto.port, refuse=2) as network:
        store = open_store(through(network, s3, attempts=3))
        store.put("job/a", io.BytesIO(b"trace"))
        assert network.refused == 2
        assert read(store, "job/a", 100) == b"trace"


def test_a_longer_503_storm_is_an_outage(moto: S3Server, s3: StoreConfig) -> None:
    """Not a refusal: the queue tries again later."""
    with FaultyNetwork(moto.port, refuse=10**6) as network:
        store = open_store(through(network, s3, attempts=2))
        with pytest.raises(StoreUnavailable, match="SlowDown"):
            store.put("job/a", io.BytesIO(b"trace"))
        with pytest.raises(StoreUnavailable):
            list(store.list())


def test_a_server_that_is_not_there_is_an_outage(s3: StoreConfig) -> None:
    """Connection refused."""
    with FaultyNetwork(0) as network:
        port = network.port
    store = open_store(StoreConfig(**(vars(s3) | {"endpoint": f"http://127.0.0.1:{port}", "attempts": 1})))
    with pytest.raises(StoreUnavailable, match="job/a"):
        store.put("job/a", io.BytesIO(b"trace"))


def test_a_server_that_never_answers_is_given_up(moto: S3Server, s3: StoreConfig) -> None:
    """After the timeout, not never."""
    with FaultyNetwork(moto.port, silent=True) as network:
        store = open_store(through(network, s3, attempts=1, timeout_seconds=0.5))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.put("job/a", io.BytesIO(b"trace"))
        assert time.monotonic() - began < 60


def test_a_slow_server_gets_all(moto: S3Server, s3: StoreConfig) -> None:
    """Slow is not broken: 12 MiB at 8 MiB/s outlast the timeout of one second."""
    with FaultyNetwork(moto.port, bytes_per_second=8 * 2**20) as network:
        store = open_store(through(network, s3, timeout_seconds=1.0))
        store.put("job/a", io.BytesIO(LARGE))
    assert read(open_store(s3), "job/a", 2 * len(LARGE)) == LARGE


def test_an_upload_holds_a_few_parts_in_memory(s3: StoreConfig, tmp_path: Path) -> None:
    """However large the file: 64 MiB in parts of 5 MiB stay under 32 MiB."""
    file = tmp_path / "large"
    with file.open("wb") as target:
        target.truncate(64 * 2**20)
    store = open_store(s3)
    store.put("job/warm", io.BytesIO(b"imports and connections"))
    tracemalloc.start()
    try:
        with file.open("rb") as source:
            store.put("job/a", source)
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()


def test_a_wrong_secret_is_denied_until_the_file_is_right(moto: S3Server, s3: StoreConfig) -> None:
    """The server checks signatures; a rotated credentials file is read again without a restart."""
    folder = s3.credentials_file.parent
    moto.credentials(folder, secret_key="wrong")
    store = open_store(s3)
    with pytest.raises(StoreDenied, match="credentials"):
        store.put("job/a", io.BytesIO(b"trace"))
    moto.credentials(folder)
    store.put("job/a", io.BytesIO(b"trace"))
    assert read(store, "job/a", 100) == b"trace"


def test_credentials_may_come_from_the_environment(
    moto: S3Server, s3: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain of AWS, where the configuration names no file."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    store = open_store(StoreConfig(**(vars(s3) | {"credentials_file": None})))
    store.put("job/a", io.BytesIO(b"trace"))
    assert store.head("job/a").size == 5


def test_no_credentials_at_all_are_denied(s3: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says so."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store(StoreConfig(**(vars(s3) | {"credentials_file": None})))
    with pytest.raises(StoreDenied, match="credentials"):
        store.put("job/a", io.BytesIO(b"trace"))


def test_a_bucket_that_does_not_exist_is_denied(moto: S3Server, tmp_path: Path) -> None:
    """Waiting does not make it."""
    store = open_store(s3_config(moto, moto.credentials(tmp_path), bucket="no-such-bucket"))
    with pytest.raises(StoreDenied, match="NoSuchBucket"):
        store.put("job/a", io.BytesIO(b"trace"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[default]\naws_access_key_id = a\n", "aws_secret_access_key"),
        ("[other]\naws_access_key_id = a\naws_secret_access_key = b\n", "default"),
        ("super secret", "not in the form"),
    ],
)
def test_a_bad_credentials_file_is_refused_at_start(
    moto: S3Server, tmp_path: Path, content: str, message: str
) -> None:
    """With the file and what is missing, never with its content."""
    file = tmp_path / "credentials"
    file.write_text(content)
    with pytest.raises(StoreDenied, match=message) as raised:
        open_store(s3_config(moto, file))
    assert str(file) in str(raised.value)
    assert "super secret" not in str(raised.value)


def test_a_missing_credentials_file_is_refused_at_start(moto: S3Server, tmp_path: Path) -> None:
    """Before any trace waits for it."""
    with pytest.raises(StoreDenied, match="No such file"):
        open_store(s3_config(moto, tmp_path / "none"))


def test_without_boto3_the_extra_is_named(s3: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base install has no boto3, and a folder needs none."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(StoreError, match=r"install argus-for-prometheus\[trace\]"):
        open_store(s3)
    open_store(StoreConfig())
