"""What can be learnt of an interpreter's exit status while it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys, threading
from argus_training.exit_status import ExitWatch, main_frame
watch = ExitWatch(main_frame())
sys.exit = watch.wrap(sys.exit)
atexit.register(lambda: print(watch.status(), flush=True))
def main():
    return 4
"""


def reported(ending: str, script: Path) -> tuple[int, int]:
    """What is reported, and the true status."""
    script.write_text(PROGRAM + ending)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return int(result.stdout), result.returncode


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "sys.exit(3)",
        "sys.exit('text')",
        "sys.exit()",
        "sys.exit(main())",
        "raise ValueError",
        "raise SystemExit(3)",
        "raise SystemExit",
        "raise SystemExit('text')",
        "try:\n    sys.exit(3)\nexcept SystemExit:\n    pass",
        "try:\n    raise ValueError\nexcept ValueError:\n    sys.exit(5)",
        "thread = threading.Thread(target=lambda: sys.exit(3))\nthread.start()\nthread.join()",
    ],
)
def test_status_is_the_true_one(ending: str, tmp_path: Path) -> None:
    """However the main module ends."""
    told, true = reported(ending, tmp_path / "script.py")
    assert told == true


def test_interrupt_is_130(tmp_path: Path) -> None:
    """As a shell says it; Python then ends itself by the signal."""
    told, true = reported("raise KeyboardInterrupt", tmp_path / "script.py")
    assert (told, true) == (130, -2)


@pytest.mark.parametrize("ending", ["raise SystemExit(main())", "def end():\n    raise SystemExit(0)\nend()"])
def test_status_that_python_hides_is_minus_one(ending: str, tmp_path: Path) -> None:
    """A computed SystemExit that does not pass sys.exit: unknown, and not success."""
    assert reported(ending, tmp_path / "script.py")[0] == -1
