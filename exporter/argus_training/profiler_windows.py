"""When torch's own profiler records: whoever uses CUPTI stands aside for so long.

CUPTI has one pair of callbacks a process, and Kineto takes them at the start of each window and switches the
activity kinds off at its end, without a word to whoever had them before. Every window of `torch.profiler` and
of `torch.autograd.profiler` goes through the two methods that are wrapped here (torch 2.0 to 2.13).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def around_profiler_windows(
    torch: Any, begins: Callable[[], object], ended: Callable[[], object]
) -> Callable[[], None]:
    """Call `begins` before each window and `ended` after it; their failures go no further.

    Returns:
        What takes the wrappers out again, unless another has wrapped them since.

    Raises:
        AttributeError: this torch's profiler has another shape.
    """
    profile = torch.autograd.profiler.profile
    prepare, leave = profile._prepare_trace, profile.__exit__

    @functools.wraps(prepare)
    def prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            begins()
        return prepare(self, *args, **kwargs)

    @functools.wraps(leave)
    def exit_(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return leave(self, *args, **kwargs)
        finally:
            if getattr(self, "enabled", True):
                with contextlib.suppress(Exception):
                    ended()

    profile._prepare_trace, profile.__exit__ = prepare_trace, exit_

    def undo() -> None:
        if profile._prepare_trace is prepare_trace:
            profile._prepare_trace = prepare
        if profile.__exit__ is exit_:
            profile.__exit__ = leave

    return undo
