"""Whether the process of a rank is stopped: what no page, record or connection of it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STOPPED: Final = frozenset({"T", "t"})
"""By a signal, or by who traces it: a debugger; py-spy does so for milliseconds."""


def is_stopped(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether the kernel has stopped the process. False where it is gone, or not ours to look at.

    Args:
        pid: as we see it; 0: not visible from our namespace.

    Source: proc_pid_stat(5), field 3; the name before it may hold blanks and parentheses.
    """
    if not pid:
        return False
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].lstrip()[:1] in _STOPPED
