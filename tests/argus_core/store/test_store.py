"""What every store does alike: the folder and the bucket of a server that checks signatures."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from argus_core.store import (
    ObjectStore,
    StoreConfig,
    StoreDenied,
    StoredObject,
    StoreError,
    StoreMissing,
    open_store,
)
from argus_core.store.base import CHUNK_BYTES, read
from s3_servers import S3Server, moto_server, s3_config

LARGE = bytes(range(256)) * (6 * 4096)  # 6 MiB: two parts of a multipart upload


def put(store: ObjectStore, key: str, content: bytes = b"trace") -> None:
    store.put(key, io.BytesIO(content))


@pytest.mark.parametrize("content", [b"", b"trace", LARGE], ids=["empty", "small", "multipart"])
def test_what_was_put_is_what_comes_back(store: ObjectStore, content: bytes) -> None:
    """Byte for byte, and head says the size."""
    put(store, "job/2026-11-21/0/a", content)
    assert b"".join(store.get("job/2026-11-21/0/a")) == content
    assert store.head("job/2026-11-21/0/a").size == len(content)


def test_put_replaces_what_was(store: ObjectStore) -> None:
    """A retried upload is no error."""
    put(store, "job/a", b"first, longer")
    put(store, "job/a", b"second")
    assert read(store, "job/a", 100) == b"second"


def test_the_stream_is_read_from_where_it_stands_and_stays_open(store: ObjectStore) -> None:
    """The caller owns the stream."""
    source = io.BytesIO(b"head|rest")
    source.seek(5)
    store.put("job/a", source)
    assert read(store, "job/a", 100) == b"rest"
    assert not source.closed


def test_a_range_is_cut_at_the_end(store: ObjectStore) -> None:
    """Start and length; a length beyond the end gives what there is."""
    put(store, "job/a", LARGE)
    assert b"".join(store.get("job/a", 10, 20)) == LARGE[10:30]
    assert b"".join(store.get("job/a", len(LARGE) - 3, 100)) == LARGE[-3:]
    assert b"".join(store.get("job/a", 5_000_000)) == LARGE[5_000_000:]


def test_chunks_are_bounded(store: ObjectStore) -> None:
    """A reader of a large object holds one chunk at a time."""
    put(store, "job/a", LARGE)
    assert max(map(len, store.get("job/a"))) <= CHUNK_BYTES


@pytest.mark.parametrize("start", [-1, 5, 100])
def test_a_range_outside_of_the_object_is_refused(store: ObjectStore, start: int) -> None:
    """HTTP says 416 for these."""
    put(store, "job/a", b"12345")
    with pytest.raises(ValueError, match="job/a"):
        b"".join(store.get("job/a", start))


def test_a_missing_object_is_missing(store: ObjectStore) -> None:
    """Not an empty one, and not an outage."""
    with pytest.raises(StoreMissing, match="job/none"):
        store.head("job/none")
    with pytest.raises(StoreMissing, match="job/none"):
        store.get("job/none")
    store.delete("job/none")


def test_list_is_by_prefix_and_sorted(store: ObjectStore) -> None:
    """A prefix need not end at a part."""
    for key in ("b/2", "a/2/x", "a/10", "ab"):
        put(store, key)
    assert [item.key for item in store.list()] == ["a/10", "a/2/x", "ab", "b/2"]
    assert [item.key for item in store.list("a/")] == ["a/10", "a/2/x"]
    assert [item.key for item in store.list("a")] == ["a/10", "a/2/x", "ab"]
    assert [item.key for item in store.list("c/d/")] == []
    assert store.head("ab") == next(iter(store.list("ab")))


def test_deleted_is_gone(store: ObjectStore) -> None:
    """And its siblings stay."""
    put(store, "a/1")
    put(store, "a/2")
    store.delete("a/1")
    assert [item.key for item in store.list()] == ["a/2"]


def test_the_time_of_an_object_is_unix_time(store: ObjectStore, tmp_path: Path) -> None:
    """Near the time of a file written now."""
    put(store, "a")
    (tmp_path / "now").touch()
    assert store.head("a").modified == pytest.approx((tmp_path / "now").stat().st_mtime, abs=60)


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a//b", "a/../b", "a/.x", "a b", "a/", "é", "a" * 600]
)
def test_what_is_no_key_is_refused(store: ObjectStore, key: str) -> None:
    """Whoever names a key cannot leave the store."""
    for use in (store.head, store.get, store.delete, lambda k: put(store, k), lambda k: store.presign(k, 60)):
        with pytest.raises(ValueError, match="not allowed"):
            use(key)


def test_read_refuses_what_is_too_large(store: ObjectStore) -> None:
    """The message says both sizes."""
    put(store, "a", b"12345")
    with pytest.raises(StoreError, match="5 bytes; allowed here: 4"):
        read(store, "a", 4)


@pytest.mark.servers
def test_a_signed_link_needs_no_credentials(tmp_path: Path) -> None:
    """A browser follows it. (The server that checks signatures of headers knows no signed links.)"""
    with moto_server(check_signatures=False) as server:
        follow_a_link(server, tmp_path)


def test_a_signed_link_is_checked_by_its_server(swift: S3Server, tmp_path: Path) -> None:
    """Swift checks the signature; a changed link is refused."""
    url = follow_a_link(swift, tmp_path)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(url.replace("job/a?", "job/b?"))
    assert raised.value.code == 403


def follow_a_link(server: S3Server, folder: Path) -> str:
    store = open_store(s3_config(server, server.credentials(folder)))
    put(store, "job/a", b"trace")
    put(store, "job/b", b"other")
    url = store.presign("job/a", 60)
    assert url is not None
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"trace"
    return url


def test_wrong_credentials_are_denied_by_a_second_server(swift: S3Server, tmp_path: Path) -> None:
    """A wrong secret, and a key that nobody has."""
    for changes in ({"secret_key": "wrong"}, {}):
        config = s3_config(swift, swift.credentials(tmp_path, **changes))
        if not changes:
            text = config.credentials_file.read_text().replace("argus:admin", "argus:nobody")
            config.credentials_file.write_text(text)
        with pytest.raises(StoreDenied, match="credentials"):
            put(open_store(config), "job/a")


def test_a_signed_link_names_the_address_that_people_use(s3: StoreConfig) -> None:
    """Pods and people may reach the server by different names."""
    store = open_store(StoreConfig(**(vars(s3) | {"presign_endpoint": "https://traces.example"})))
    assert store.presign("job/a", 60).startswith(f"https://traces.example/{s3.bucket}/{s3.prefix}job/a?")


def test_a_folder_has_no_links(tmp_path: Path) -> None:
    """The worker serves its objects itself."""
    assert open_store(StoreConfig(folder=tmp_path)).presign("a", 60) is None


def test_what_a_killed_put_left_is_not_listed_and_replaced(tmp_path: Path) -> None:
    """A torn temporary file is no object."""
    store = open_store(StoreConfig(folder=tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".upload-b").write_bytes(b"torn")
    assert list(store.list()) == []
    put(store, "a/b", b"whole")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_file_where_a_folder_should_be_is_denied(tmp_path: Path) -> None:
    """A person has to act, and the message names the place."""
    (tmp_path / "a").write_text("")
    store = open_store(StoreConfig(folder=tmp_path))
    with pytest.raises(StoreDenied, match=str(tmp_path)):
        put(store, "a/b")


def test_objects_compare_by_value() -> None:
    """`list` and `head` agree where the object is the same."""
    assert StoredObject("a", 1, 2.0) == StoredObject("a", 1, 2.0)
