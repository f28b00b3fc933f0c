"""A stopped process, as the kernel tells of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argus_exporter.ranks.process_state import is_stopped
from exporter.exporter_process import wait_for


def test_a_process_is_stopped_between_two_signals() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            assert not is_stopped(child.pid)
            os.kill(child.pid, signal.SIGSTOP)
            wait_for(lambda: is_stopped(child.pid), "the stop")
            os.kill(child.pid, signal.SIGCONT)
            wait_for(lambda: not is_stopped(child.pid), "the end of it")
        finally:
            child.kill()
    assert not is_stopped(child.pid), "it is gone"


@pytest.mark.parametrize(
    ("text", "stopped"),
    [
        ("7 (a) T) S 1 1", False),
        ("7 (python3 -c R () T 1 1", True),
        ("7 (gdb) t 1 1", True),
        ("7 (x) D 1 1", False),
        ("", False),
    ],
)
def test_the_name_of_a_process_may_be_anything(text: str, stopped: bool, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(text)
    assert is_stopped(7, tmp_path) is stopped


def test_a_process_that_is_not_visible_is_not_stopped(tmp_path: Path) -> None:
    """Its pid is 0: it lives in another namespace."""
    assert not is_stopped(0, tmp_path)
