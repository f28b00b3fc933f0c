"""A store in a folder: the default, for one host or a shared file system."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from argus_core.store.base import CHUNK_BYTES, StoreDenied, StoredObject, StoreMissing, StoreUnavailable
from argus_core.store.keys import WrongKey, check_key

_TEMPORARY = ".upload-"
"""Begins the name of a file that is being written: no part of a key begins with a dot."""
_DENIED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST))


class FolderStore:
    """Objects are files under `root`, whose folders are made when needed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        return str(self._root)

    def put(self, key: str, source: BinaryIO) -> None:
        path = self._path(key)
        with self._errors(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            # One name a key: what a killed process left is overwritten by the next try.
            temporary = path.parent / f"{_TEMPORARY}{path.name}"
            try:
                with temporary.open("wb") as target:
                    shutil.copyfileobj(source, target, CHUNK_BYTES)
                    target.flush()
                    os.fsync(target.fileno())
                temporary.replace(path)
                _sync_folder(path.parent)
            finally:
                temporary.unlink(missing_ok=True)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        path = self._path(key)
        with self._errors(key):
            source = path.open("rb")
        size = os.fstat(source.fileno()).st_size
        if start < 0 or (start >= size and size > 0):
            source.close()
            raise ValueError(f"{self.name}: {key} has {size} bytes, so none at {start}")
        return self._chunks(key, source, start, size - start if length is None else length)

    def head(self, key: str) -> StoredObject:
        path = self._path(key)
        with self._errors(key):
            status = path.stat()
            if not path.is_file():
                raise FileNotFoundError(path)
        return StoredObject(key, status.st_size, status.st_mtime)

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        if prefix.startswith("/") or ".." in prefix.split("/"):
            raise WrongKey(f"prefix {prefix!r} is not the beginning of a key")
        folder = self._root / prefix.rpartition("/")[0]
        with self._errors(prefix):
            found = sorted(
                path.relative_to(self._root).as_posix()
                for path in folder.rglob("*")
                if path.is_file() and not path.name.startswith(_TEMPORARY)
            )
        for key in found:
            if key.startswith(prefix):
                with contextlib.suppress(StoreMissing):  # deleted since
                    yield self.head(key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors(key):
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty, or gone
                for parent in path.parents:
                    if parent == self._root:
                        break
                    parent.rmdir()

    def presign(self, key: str, seconds: int) -> str | None:  # noqa: ARG002 (a folder has no URL)
        check_key(key)
        return None

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key

    def _chunks(self, key: str, source: BinaryIO, start: int, left: int) -> Iterator[bytes]:
        with source, self._errors(key):
            source.seek(start)
            while left > 0 and (chunk := source.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StoreMissing(f"{self.name}: there is no object {key}") from error
        except OSError as error:
            text = f"{self.name}: {key}: {error.strerror or error}"
            if error.errno in _DENIED:
                raise StoreDenied(f"{text}; choose a folder that this user may use") from error
            raise StoreUnavailable(text) from error


def _sync_folder(folder: Path) -> None:
    """The name of a new file survives a power failure only once its folder was written."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
