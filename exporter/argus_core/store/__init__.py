"""Where finished traces are kept: a folder, or a bucket of an S3-compatible store.

The exporter writes, the worker reads and hands out links; both see one interface (`ObjectStore`) and the same
keys (`keys`). Blocking: callers on an event loop use a thread.
"""

from __future__ import annotations

from argus_core.store.base import (
    ObjectStore,
    StoreDenied,
    StoredObject,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from argus_core.store.config import StoreConfig, default_folder, open_store

__all__ = [
    "ObjectStore",
    "StoreConfig",
    "StoreDenied",
    "StoreError",
    "StoreMissing",
    "StoreUnavailable",
    "StoredObject",
    "default_folder",
    "open_store",
]
