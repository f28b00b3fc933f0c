"""libargus_cupti loads in training images that are older than the system which built it."""

from __future__ import annotations

import re
import subprocess

from argus_core.injection import needs_glibc
from native.builds import Build

WHEEL_POLICY = (2, 28)
"""manylinux_2_28, the level of PyTorch's own wheels."""


def test_it_asks_for_no_glibc_newer_than_the_wheels_policy(plain: Build) -> None:
    """Debian 12 has newer versions of dlopen, pthread_create and stat: they are not asked for."""
    assert needs_glibc(str(plain.library)) <= WHEEL_POLICY


def test_it_brings_its_cxx_library_along(plain: Build) -> None:
    """libdl and libpthread have dlopen and pthread_create before glibc 2.34, and are asked for."""
    headers = subprocess.run(
        ["objdump", "-p", str(plain.library)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    needed = {name for name in re.findall(r"NEEDED\s+(\S+)", headers) if not name.startswith("ld-linux")}
    assert needed >= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "libgcc_s.so.1"}
