"""What the exporter sets of its own process."""

from __future__ import annotations

import subprocess
import sys


def run(script: str) -> str:
    """In a process of its own, which nothing else is to be set in."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_as_many_files_may_be_open_as_the_system_allows():
    """The soft limit becomes the hard one."""
    script = (
        "import resource; from argus_exporter.intake import process\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most)); process.prepare()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))"
    )
    assert run(script) == "True"


def test_what_was_there_at_the_start_is_not_collected_again():
    """It is out of sight of the collector."""
    script = (
        "import gc; from argus_exporter.intake import process\n"
        "kept = [[] for _ in range(100_000)]; process.settle()\n"
        "print(gc.get_freeze_count() > 100_000 > len(gc.get_objects()))"
    )
    assert run(script) == "True"
