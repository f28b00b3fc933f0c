"""Debian 11's glibc (2.31) and Python (3.9) in a folder, from its own packages: an older training image."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_FETCH: Final = Path(__file__).resolve().parent / "debian_packages.sh"
_PACKAGES: Final = (
    *("libc6", "libgcc-s1", "libexpat1", "libffi7", "zlib1g"),
    *("python3.9-minimal", "libpython3.9-minimal", "libpython3.9-stdlib"),
)
_ARCHITECTURES: Final = {
    "x86_64": ("amd64", "x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
    "aarch64": ("arm64", "aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
}
"""By the machine: Debian's name, the folder of its libraries, its dynamic loader."""


class Unavailable(Exception):
    """Its packages cannot be had here, or do not run here."""


class Debian11:
    """Its Python, in a folder."""

    def __init__(self, root: Path, machine: str = "x86_64") -> None:
        """Fetch and unpack, some 30 MB.

        Raises:
            Unavailable: no apt-get, no network, or nothing that runs programs of that machine here.
        """
        architecture, self._folder, self._loader = _ARCHITECTURES[machine]
        self._emulator: Sequence[str] = ()
        if platform.machine() != machine:
            emulator = f"qemu-{machine}-static"
            if shutil.which(emulator) is None:
                raise Unavailable(f"this is {platform.machine()}, not {machine}, and there is no {emulator}")
            self._emulator = (emulator,)
        fetch: Sequence[str | Path] = (_FETCH, "--architecture", architecture, "bullseye", root, *_PACKAGES)
        fetched = subprocess.run(fetch, capture_output=True, text=True)
        if fetched.returncode:
            raise Unavailable(fetched.stderr.strip().splitlines()[-1])
        self._root = root

    def python(
        self, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python by its own dynamic loader and libraries, with these variables beside PATH."""
        libraries = [self._root / folder / self._folder for folder in ("lib", "usr/lib")]
        loader: Sequence[str | Path] = (
            *self._emulator,
            *(libraries[0] / self._loader, "--library-path", ":".join(map(str, libraries))),
            self._root / "usr" / "bin" / "python3.9",
        )
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONHOME": str(self._root / "usr"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environment or {}),
        }
        return subprocess.run(
            [*loader, *arguments], env=variables, capture_output=True, text=True, timeout=120
        )
