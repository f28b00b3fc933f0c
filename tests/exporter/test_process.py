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
        "import resource; from argus_exporter import process\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most)); process.prepare()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))"
    )
    assert run(script) == "True"


def test_memory_of_a_window_goes_back_when_it_is_freed():
    """Also after glibc has seen large arrays come and go, and with a small one above it on the heap."""
    script = (
        "import re, numpy as np; from pathlib import Path; from argus_exporter import process\n"
        "process.prepare()\n"
        "for _ in range(3): np.ones(3 << 20)\n"  # 24 MB: what glibc's own threshold would learn from
        "def rss(): return int(re.search(r'VmRSS:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "window = [np.ones(1 << 20) for _ in range(8)]; above = [np.ones(64) for _ in range(4096)]\n"
        "held = rss(); del window\n"
        "print(held - rss() > 60_000)"
    )
    assert run(script) == "True"


def test_what_was_there_at_the_start_is_not_collected_again():
    """It is out of sight of the collector."""
    script = (
        "import gc; from argus_exporter import process\n"
        "kept = [[] for _ in range(100_000)]; process.settle()\n"
        "print(gc.get_freeze_count() > 100_000 > len(gc.get_objects()))"
    )
    assert run(script) == "True"
