"""A Prometheus file_sd entry for this host, kept while the exporter serves."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from argus_core.replaced_file import replace_text
from argus_exporter.errors import ArgusExporterError
from argus_exporter.publish.config import DiscoveryConfig


@contextlib.contextmanager
def discoverable(config: DiscoveryConfig, url: str, *, everywhere: bool) -> Iterator[None]:
    """Write the entry at the start and take it away at the end, each in one step that no reader sees half.

    Args:
        config: which file, and which address where the default does not fit.
        url: where the exporter serves, as seen from this host.
        everywhere: it serves on all interfaces, so the host's name reaches it.

    Raises:
        ArgusExporterError: the file cannot be written.
    """
    if config.file is None:
        yield
        return
    served = urlsplit(url)
    address = config.address or (f"{socket.getfqdn()}:{served.port}" if everywhere else served.netloc)
    labels = {"__scheme__": "https"} if served.scheme == "https" else {}
    try:
        replace_text(config.file, json.dumps([{"targets": [address], "labels": labels}], indent=2) + "\n")
    except OSError as error:
        raise ArgusExporterError(
            f"cannot write {config.file}: {error.strerror}; name another with --sd.file"
        ) from error
    try:
        yield
    finally:
        config.file.unlink(missing_ok=True)
