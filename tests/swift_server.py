"""A second S3 implementation: OpenStack Swift with its s3api, from Debian, which checks every signature.

One device, one replica, four servers on ports of their own, state in a temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_simulator.stack.ports import free_port
from s3_servers import BUCKET, S3Server, wait_for_port

_KINDS = ("account", "container", "object")
_BACKEND = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
devices = {folder}/devices
mount_check = false
swift_dir = {folder}
user = {user}
workers = 0
log_level = WARNING
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
user = {user}
workers = 0
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_argus_admin = secret .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


@contextlib.contextmanager
def swift_server() -> Iterator[S3Server]:
    """A running Swift with one user and one bucket; skips where it is not installed."""
    if shutil.which("swift-proxy-server") is None or shutil.which("swift-object-server") is None:
        pytest.skip(
            "OpenStack Swift is absent: "
            "apt-get install swift-proxy swift-account swift-container swift-object"
        )
    with tempfile.TemporaryDirectory(prefix="argus-swift-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "devices" / "d1").mkdir(parents=True)
        user = os.environ.get("USER", "root") if os.getuid() else "root"
        for kind in _KINDS:
            port = free_port()
            _make_ring(folder, kind, port)
            stack.enter_context(_running(folder, kind, port, _BACKEND, user))
        port = free_port()
        proxy = stack.enter_context(_running(folder, "proxy", port, _PROXY, user))
        server = S3Server(port, "argus:admin", "secret", BUCKET, proxy)
        server.client().create_bucket(Bucket=BUCKET)
        yield server


def _make_ring(folder: Path, kind: str, port: int) -> None:
    for arguments in (
        ("create", "4", "1", "1"),
        ("add", f"r1z1-127.0.0.1:{port}/d1", "1"),
        ("rebalance",),
    ):
        subprocess.run(
            ["swift-ring-builder", f"{kind}.builder", *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
            env=_environment(),
        )


@contextlib.contextmanager
def _running(
    folder: Path, kind: str, port: int, template: str, user: str
) -> Iterator[subprocess.Popen[bytes]]:
    configuration = folder / f"{kind}-server.conf"
    configuration.write_text(template.format(port=port, folder=folder, user=user, kind=kind))
    log = folder / f"{kind}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [f"swift-{kind}-server", str(configuration)], stdout=stream, stderr=stream, env=_environment()
        )
    try:
        wait_for_port(port, process, log)
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


def _environment() -> dict[str, str]:
    """Swift runs on the system's Python: a virtual environment's variables would mislead it."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
