"""Which store to use: the same section in the files of the exporter and of the worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from argus_core.settings import constant, setting
from argus_core.store.base import ObjectStore
from argus_core.store.folder import FolderStore


@dataclass(frozen=True)
class StoreConfig:
    type: Literal["folder", "s3"] = setting("folder", "where traces are kept")
    folder: Path | None = setting(
        None, "folder of type folder; default: $ARGUS_TRACE_STORE, else traces in the user's state folder"
    )
    bucket: str = setting("", "bucket of type s3")
    prefix: str = setting("", "what keys in the bucket begin with, such as argus/")
    endpoint: str | None = setting(None, "URL of the S3 service; default: AWS")
    region: str | None = setting(None, "region; default: what AWS_REGION or the AWS configuration file says")
    credentials_file: Path | None = setting(
        None, "file in the form of ~/.aws/credentials, read anew after a refusal; default: the AWS chain"
    )
    profile: str | None = setting(None, "section of the credentials file or AWS profile; default: default")
    addressing: Literal["auto", "path", "virtual"] = setting(
        "auto", "bucket in the path or in the host name; most servers but AWS want path"
    )
    ca_file: Path | None = setting(None, "certificate authorities to trust instead of the system's")
    attempts: int = constant(3, "tries of one request; the exporter's queue tries again later, for hours")
    timeout_seconds: float = constant(
        20.0, "longest wait to connect or for an answer; uploads run beside the rest, and are tried again"
    )
    part_bytes: int = constant(
        8 * 1024 * 1024, "parts of a larger object: boto3's own size, above the protocol's least of 5 MiB"
    )
    presign_endpoint: str | None = setting(
        None, "URL of the S3 service for links, where people reach it by another name"
    )

    def __post_init__(self) -> None:
        if self.type == "s3" and not self.bucket:
            raise ValueError("bucket is ''; type s3 needs the name of a bucket")
        for name in ("endpoint", "presign_endpoint"):
            url = getattr(self, name)
            if url is not None and (
                urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc
            ):
                raise ValueError(f"{name} is {url!r}; allowed: a URL with http or https and a host")
        if self.prefix and (not self.prefix.endswith("/") or self.prefix.startswith("/")):
            raise ValueError(f"prefix is {self.prefix!r}; allowed: nothing, or a text that ends in /")


def default_folder() -> Path:
    """Folder of traces where the configuration names none."""
    named = os.environ.get("ARGUS_TRACE_STORE")
    return Path(named) if named else state_folder() / "traces"


def state_folder() -> Path:
    """Where programs keep what should survive a restart: systemd's choice, XDG's, /var/lib for root.

    A unit's user may have no home, or none that it may write to.
    """
    made = os.environ.get("STATE_DIRECTORY")
    if made:
        return Path(made.split(":")[0])
    named = os.environ.get("XDG_STATE_HOME")
    if named:
        return Path(named) / "argus"
    return Path("/var/lib/argus") if os.getuid() == 0 else Path.home() / ".local" / "state" / "argus"


def open_store(config: StoreConfig) -> ObjectStore:
    """The store; nothing is contacted yet.

    Raises:
        StoreError: boto3 is not installed, or the credentials file is not usable.
    """
    if config.type == "folder":
        return FolderStore(config.folder or default_folder())
    from argus_core.store.s3 import S3Store  # needs the extra [trace]

    return S3Store(config)
