"""The interface of a store of objects, and what can go wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from argus_core.errors import ArgusError, UserError

CHUNK_BYTES = 256 * 1024
"""What `get` hands out at a time: large enough for throughput, small enough to hold many."""


class StoreError(ArgusError):
    """A store did not do what it was asked; the message names the store, the key and what to do."""


class StoreMissing(StoreError, UserError):
    """There is no object under the key."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is overloaded or has failed: the same request may succeed later."""


class StoreDenied(StoreError):
    """The store refuses: credentials, permissions, a bucket that does not exist. A person has to act."""


@dataclass(frozen=True)
class StoredObject:
    """What a store knows of an object. `modified` is Unix time in seconds."""

    key: str
    size: int
    modified: float


class ObjectStore(Protocol):
    """A flat map from keys to bytes. Every method blocks; one object may be used by several threads.

    All methods raise `StoreUnavailable` or `StoreDenied`, and `ValueError` for a key that is none
    (see `keys.check_key`).
    """

    @property
    def name(self) -> str:
        """For messages: the folder, or `s3://bucket/prefix`."""
        ...

    def put(self, key: str, source: BinaryIO) -> None:
        """Store the rest of a seekable stream; readers see the whole object or none. Replaces what was."""
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Bytes of an object from `start` on, at most `length`, in chunks of `CHUNK_BYTES` or less.

        Raises:
            StoreMissing: before the first chunk.
            ValueError: `start` is negative, or at or beyond the end of an object that is not empty.
        """
        ...

    def head(self, key: str) -> StoredObject:
        """Size and time of an object.

        Raises:
            StoreMissing: there is none.
        """
        ...

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Objects whose keys begin with `prefix`, ascending by key."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...

    def presign(self, key: str, seconds: int) -> str | None:
        """A URL that anyone may read the object from for a while; None where the store has none."""
        ...


def read(store: ObjectStore, key: str, limit: int) -> bytes:
    """A whole object.

    Raises:
        StoreError: it is larger than `limit` bytes.
    """
    size = store.head(key).size
    if size > limit:
        raise StoreError(f"{store.name}: {key} has {size} bytes; allowed here: {limit}")
    return b"".join(store.get(key))
