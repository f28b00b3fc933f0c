"""NVIDIA's headers of CUPTI, out of its wheels, into .venv/cupti-headers: our offsets are compared with them.

    python -m tools.cupti_headers

The wheels themselves are not installed: beside PyTorch's own they would be a second CUDA.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).resolve().parent.parent / ".venv" / "cupti-headers"
WHEELS: Final = {
    "12.9": (
        "nvidia-cuda-cupti-cu12==12.9.79",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "nvidia-cuda-crt==13.5.37",  # host_defines.h, which of 12.9 only the compiler's wheel of 40 MB has
    ),
    "13.5": ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37"),
}
"""The newest of each major version: records only grow at their end, so those between agree."""


def fetch(version: str) -> None:
    """Put the headers of one version below `TARGET`, whole or not at all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "--dest", name, *WHEELS[version]], check=True)
        headers = folder / "headers"
        for wheel in sorted(folder.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    _, include, path = member.partition("/include/")
                    if include and path:
                        file = headers / path
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(archive.read(member))
        TARGET.mkdir(parents=True, exist_ok=True)
        shutil.move(headers, TARGET / version)


def main() -> int:
    """0: they are there; 1: they could not be fetched, which pip has said."""
    try:
        for version in WHEELS:
            if not (TARGET / version).is_dir():
                fetch(version)
    except subprocess.CalledProcessError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
