"""Traces reach the store whatever happens on the way, within the budget; what is lost is counted."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.store import ObjectStore, StoreConfig, open_store
from argus_core.store.base import StoreDenied, read
from argus_core.store.folder import FolderStore
from argus_core.store.keys import DumpKey, TraceKey
from argus_exporter.traces.outbox import Outbox
from argus_exporter.traces.uploads import Uploader
from exporter.exporter_process import wait_for
from s3_servers import FaultyNetwork, S3Server, s3_config, start_moto

LIMIT_S = 120.0


def key(number: int) -> str:
    return f"job/2026-11-21/0/{number:012d}-{number:012d}-20261121T070343.456Z.perfetto-trace"


def content(number: int, size: int = 300_000) -> bytes:
    return bytes([number % 251]) * size


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox", 64 << 20)


@pytest.fixture
def s3(moto: S3Server, tmp_path: Path) -> StoreConfig:
    return dataclasses.replace(
        s3_config(moto, moto.credentials(tmp_path), prefix=f"{tmp_path.name}/"),
        timeout_seconds=5.0,
        attempts=1,
    )


@pytest.fixture
def uploading() -> Iterator:
    """Starts uploaders, and ends them with the test."""
    started: list[Uploader] = []

    def start(outbox: Outbox, store: ObjectStore) -> Uploader:
        uploader = Uploader(outbox, store, first_pause_s=0.05)
        uploader.start()
        started.append(uploader)
        return uploader

    yield start
    for uploader in started:
        uploader.stop()


def stored(store: ObjectStore) -> dict[str, bytes]:
    return {item.key: read(store, item.key, 1 << 30) for item in store.list()}


def wanted(count: int, size: int = 300_000) -> dict[str, bytes]:
    return {key(number): content(number, size) for number in range(count)}


def test_uploads_go_oldest_first_and_leave_nothing_behind(outbox: Outbox, tmp_path: Path, uploading) -> None:
    """A folder as the store; the outbox is empty at the end."""
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    for number in range(5):
        outbox.put(key(number), content(number))
    uploader = uploading(outbox, store)
    assert uploader.wait_until_empty(LIMIT_S)
    assert stored(store) == wanted(5)
    assert list((tmp_path / "outbox").iterdir()) == []
    assert uploader.results == {"success": 5}
    assert uploader.uploaded_bytes == 5 * 300_000


def test_uploads_go_on_after_a_restart(tmp_path: Path, uploading) -> None:
    """What a killed exporter left waits, in the order in which it came; half a file does not."""
    first = Outbox(tmp_path / "outbox", 64 << 20)
    for number in range(3):
        first.put(key(number), content(number))
        os.utime(first._waiting[key(number)].path, (number, number))
    (tmp_path / "outbox" / ".writing-x").write_bytes(b"half")
    second = Outbox(tmp_path / "outbox", 64 << 20)
    assert second.files == 3
    assert second.oldest().key == key(0)
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    assert uploading(second, store).wait_until_empty(LIMIT_S)
    assert stored(store) == wanted(3)


@pytest.mark.servers
def test_nothing_is_lost_while_the_server_is_killed_in_mid_upload(
    outbox: Outbox, s3: StoreConfig, moto: S3Server, uploading
) -> None:
    """Every connection breaks after 100 kB of 300 kB; once it holds, everything arrives."""
    with FaultyNetwork(moto.port, cut_after=100_000) as network:
        uploader = uploading(outbox, open_store(dataclasses.replace(s3, endpoint=network.endpoint)))
        for number in range(4):
            outbox.put(key(number), content(number))
        uploader.notify()
        wait_for(lambda: network.cuts >= 3, "three cuts", LIMIT_S)
        assert outbox.files == 4
        network.cut_after = None
        assert uploader.wait_until_empty(LIMIT_S)
    assert stored(open_store(s3)) == wanted(4)
    assert uploader.results["unavailable"] >= 3
    assert not outbox.dropped


@pytest.mark.servers
def test_nothing_is_lost_when_the_server_process_is_killed(outbox: Outbox, tmp_path: Path, uploading) -> None:
    """SIGKILL of the server; another, with other keys, gets all that the first had not acknowledged."""
    server = start_moto(tmp_path)
    with FaultyNetwork(server.port) as network:
        config = dataclasses.replace(
            s3_config(server, server.credentials(tmp_path)),
            endpoint=network.endpoint,
            timeout_seconds=5.0,
            attempts=1,
        )
        uploader = uploading(outbox, open_store(config))
        outbox.put(key(0), content(0))
        uploader.notify()
        assert uploader.wait_until_empty(LIMIT_S)
        server.kill()
        for number in range(1, 4):
            outbox.put(key(number), content(number))
        uploader.notify()
        wait_for(lambda: uploader.results["unavailable"] >= 2, "two tries", LIMIT_S)
        server = start_moto(tmp_path)
        try:
            server.credentials(tmp_path)
            network.target = server.port
            assert uploader.wait_until_empty(LIMIT_S)
            assert set(stored(open_store(config))) == {key(number) for number in range(1, 4)}
        finally:
            server.kill()


def test_a_503_storm_and_a_slow_server_only_delay(
    outbox: Outbox, s3: StoreConfig, moto: S3Server, uploading
) -> None:
    """Five refusals, then 2 MB/s."""
    with FaultyNetwork(moto.port, refuse=5, bytes_per_second=2e6) as network:
        uploader = uploading(outbox, open_store(dataclasses.replace(s3, endpoint=network.endpoint)))
        for number in range(4):
            outbox.put(key(number), content(number))
        uploader.notify()
        assert uploader.wait_until_empty(LIMIT_S)
        assert network.refused == 5
    assert stored(open_store(s3)) == wanted(4)


def test_wrong_credentials_lose_nothing(
    outbox: Outbox, s3: StoreConfig, moto: S3Server, tmp_path: Path, uploading
) -> None:
    """Denied until somebody puts the right file in its place; no restart."""
    moto.credentials(tmp_path, secret_key="wrong")
    uploader = uploading(outbox, open_store(s3))
    outbox.put(key(0), content(0))
    uploader.notify()
    wait_for(lambda: uploader.results["denied"] >= 2, "two refusals", LIMIT_S)
    assert outbox.files == 1
    moto.credentials(tmp_path)
    assert uploader.wait_until_empty(LIMIT_S)
    assert stored(open_store(s3)) == wanted(1)


def test_beyond_the_budget_the_oldest_are_dropped_and_counted(tmp_path: Path, uploading) -> None:
    """The store is away; the newest that fit are kept and arrive."""
    outbox = Outbox(tmp_path / "outbox", 1_000_000)
    for number in range(10):
        assert outbox.put(key(number), content(number))
        assert outbox.size <= 1_000_000
        assert outbox.size == sum(path.stat().st_size for path in (tmp_path / "outbox").iterdir())
    assert outbox.dropped == {"budget": 7}
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    assert uploading(outbox, store).wait_until_empty(LIMIT_S)
    assert set(stored(store)) == {key(number) for number in range(7, 10)}


def test_what_cannot_fit_at_all_is_dropped_and_counted(tmp_path: Path) -> None:
    """Larger than the whole outbox."""
    outbox = Outbox(tmp_path / "outbox", 1000)
    assert not outbox.put(key(0), bytes(1001))
    assert (outbox.files, outbox.dropped) == (0, {"budget": 1})


def test_a_full_disk_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half file stays."""
    outbox = Outbox(tmp_path / "outbox", 1 << 20)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("argus_exporter.traces.outbox.os.fsync", full)
    assert not outbox.put(key(0), b"trace")
    assert (outbox.files, outbox.dropped) == (0, {"disk": 1})
    assert list((tmp_path / "outbox").iterdir()) == []


class Stubborn:
    """A store with a bug for one key."""

    name = "stubborn"

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, key_: str, source) -> None:
        if key_ == key(0):
            raise TypeError("a bug")
        self._store.put(key_, source)


def test_one_trace_that_can_never_be_stored_does_not_stop_the_others(
    outbox: Outbox, tmp_path: Path, uploading
) -> None:
    """It is dropped and counted."""
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    for number in range(2):
        outbox.put(key(number), content(number))
    assert uploading(outbox, Stubborn(store)).wait_until_empty(LIMIT_S)
    assert set(stored(store)) == {key(1)}
    assert outbox.dropped == {"refused": 1}


class Selective:
    """A store that denies one key."""

    name = "selective"

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, key_: str, source) -> None:
        if key_ == key(0):
            raise StoreDenied("not this one")
        self._store.put(key_, source)


def test_one_trace_that_is_denied_lets_the_others_pass(outbox: Outbox, tmp_path: Path, uploading) -> None:
    """A policy may allow some jobs only. It waits behind them, until a person acts."""
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    for number in range(4):
        outbox.put(key(number), content(number))
    uploading(outbox, Selective(store))
    wait_for(lambda: outbox.files == 1, "all others", LIMIT_S)
    assert set(stored(store)) == {key(1), key(2), key(3)}
    assert key(0) in outbox


@pytest.mark.parametrize("name", ["训" * 21, "(" * 64, "a"])
def test_a_job_of_any_name_has_traces_and_dumps(tmp_path: Path, uploading, name: str) -> None:
    """A key has three characters for a byte that is no letter, and a file's name 255 bytes."""
    keys = [
        str(TraceKey(name, 99_999, 1, 2, 10**18)),
        str(DumpKey(name, 99_999, 10**18, 10**18, "nccl1")),
    ]
    outbox = Outbox(tmp_path / "outbox", 1 << 20)
    assert all(outbox.put(key_, key_.encode()) for key_ in keys)
    store = open_store(StoreConfig(folder=tmp_path / "store"))
    assert uploading(Outbox(tmp_path / "outbox", 1 << 20), store).wait_until_empty(LIMIT_S)
    assert stored(store) == {key_: key_.encode() for key_ in keys}
    Outbox(tmp_path / "outbox", 1 << 20)
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_new_version_of_a_waiting_trace_is_not_lost(outbox: Outbox) -> None:
    """The upload of the old one ends after the new one came: the new one still waits."""
    outbox.put(key(0), b"old")
    old = outbox.oldest()
    outbox.put(key(0), b"new")
    outbox.done(old)
    assert outbox.oldest().path.read_bytes() == b"new"


def test_a_disk_that_cannot_be_written_ends_no_thread(
    outbox: Outbox, tmp_path: Path, uploading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk became read-only: what is in the store stays on it, the next trace is uploaded all the same."""
    store = FolderStore(tmp_path / "store")
    outbox.put(key(1), content(1))
    outbox.put(key(2), content(2))

    unlink = Path.unlink

    def broken(path: Path, missing_ok: bool = False) -> None:
        if path.parent == tmp_path / "outbox":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        unlink(path, missing_ok)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", broken)
        assert uploading(outbox, store).wait_until_empty(LIMIT_S)
    assert set(stored(store)) == {key(1), key(2)}
