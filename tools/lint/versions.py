"""The version stands in pyproject.toml; where a page or a manifest has to repeat it, it is the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.generate_version import ROOT, declared

_REPEATED: Final = re.compile(
    r"argus-(?:exporter|l3-worker):(?P<image>\d+\.\d+[\w.]*)|argus_for_prometheus-(?P<file>\d+\.\d+\.\d+)"
)
_KINDS: Final = ("*.md", "*.yaml", "*.service", "*Containerfile")


def other_versions(root: Path = ROOT) -> Iterator[str]:
    """Tags of our images and names of our wheels, in what users read and apply, of another version."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", *_KINDS], capture_output=True, text=True, check=True
    )
    version = declared(root)
    for name in listed.stdout.splitlines():
        if name == "CHANGELOG.md":
            continue
        yield from other_versions_of(name, (root / name).read_text(), version)


def other_versions_of(name: str, text: str, version: str) -> Iterator[str]:
    """The same of one file."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in _REPEATED.finditer(line):
            if (found["image"] or found["file"]) != version:
                yield f"{name}:{number}: {found[0]}, but pyproject.toml has version {version}"
